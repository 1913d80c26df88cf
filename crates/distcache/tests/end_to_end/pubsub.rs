//! Publish and subscribe, over one storage server and several, beside a real Redis and through lost links. Not how
//! subscriptions travel.

use std::collections::BTreeMap;

use redis::Commands;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, Program, REPLY_MAX, RedisServer, installed, shared, until};

/// Who says what; a line without a command only listens.
const SESSION: &str = include_str!("pubsub_session.txt");

/// Connections of all threads of some routers: each thread hears from servers by links of its own.
struct Barrier(Vec<Client>);

impl Barrier {
    fn new(connect: impl Fn(usize) -> Client) -> Barrier {
        Barrier((0..8).map(connect).collect())
    }

    /// Waits until every thread has heard what servers have told subscribers by now, and servers have what it told them.
    fn wait(&mut self) {
        for client in &mut self.0 {
            // Asks every server, on the connection that tells subscribers.
            client.call(&["PUBSUB", "CHANNELS", "nobody's"]);
        }
    }
}

/// Everything that each line of the session brings to each of the clients.
fn session(connect: impl Fn() -> Client) -> Vec<String> {
    let mut clients: Vec<Client> = (0..4).map(|_| connect()).collect();
    let mut barrier = Barrier::new(|_| connect());
    let mut shown = Vec::new();
    for line in SESSION.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (who, commands) = line.split_once("> ").expect("CLIENT> COMMANDS");
        let speaker = usize::from(who.as_bytes()[0] - b'a');
        let sent: String = commands.split(" / ").map(|command| format!("{command}\r\n")).collect();
        shown.push(line.to_owned());
        clients[speaker].write(sent.as_bytes()).expect("written");
        shown.push(format!("{who} {}", clients[speaker].heard().join(" ")));
        barrier.wait();
        for (index, client) in clients.iter_mut().enumerate().filter(|(index, _)| *index != speaker) {
            let mut frames = client.heard();
            if commands.starts_with("MSET") {
                // Each server tells of its own keys, in no order among them.
                frames.sort_unstable();
            }
            if !frames.is_empty() {
                shown.push(format!("{} {}", char::from(b'a' + index as u8), frames.join(" ")));
            }
        }
    }
    shown
}

#[test]
fn subscribers_see_what_redis_shows_them() {
    check_session(Program::Redis);
}

/// Whatever is behind, a router shows what Redis shows.
pub(crate) fn check_session(program: Program) {
    if !program.is_installed() || !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let direct = RedisServer::with(&["--notify-keyspace-events", "KEA"]);
    let expected = session(|| direct.connect());
    for count in [1, 3] {
        let start = |_| program.with(&["--notify-keyspace-events", "KEA"]);
        let servers: Vec<RedisServer> = (0..count).map(start).collect();
        let cluster = Cluster::up(Layout::before(&servers));
        let seen = session(|| cluster.connect(0));
        if program == Program::Valkey {
            // It tells who publishes of its own message only after the reply, and so perhaps a line later.
            assert_eq!(in_all(&seen), in_all(&expected), "{count} servers");
            continue;
        }
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "{count} servers");
        }
    }
}

/// All that each client got in the whole session, in no order.
fn in_all(lines: &[String]) -> BTreeMap<char, Vec<&str>> {
    let mut clients: BTreeMap<char, Vec<&str>> = BTreeMap::new();
    for line in lines.iter().filter(|line| !line.contains("> ")) {
        let mut frames = line.split(' ');
        let client = frames.next().and_then(|name| name.chars().next()).expect("a client");
        clients.entry(client).or_default().extend(frames.filter(|frame| !frame.is_empty()));
    }
    clients.values_mut().for_each(|frames| frames.sort_unstable());
    clients
}

#[test]
fn the_embedded_store_publishes_too() {
    let _machine = shared();
    let cluster = Cluster::up(Layout::embedded(2));
    let mut subscriber = cluster.connect(0).resp3();
    let mut publisher = cluster.connect(0);
    let mut barrier = Barrier::new(|_| cluster.connect(0));
    subscriber.write(b"SUBSCRIBE one two\r\nPSUBSCRIBE t*\r\nSSUBSCRIBE one\r\n").expect("written");
    assert_eq!(subscriber.heard().len(), 4);
    for (command, count) in [("PUBLISH one m", 1), ("PUBLISH two m", 2), ("SPUBLISH one m", 1)] {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(publisher.call(&words), Value::Integer(count), "{command}");
        barrier.wait();
        assert_eq!(subscriber.heard().len() as i64, count, "{command}");
    }
    assert_eq!(publisher.call(&["PUBSUB", "NUMPAT"]), Value::Integer(1));
    let counted = format!("{:?}", publisher.call(&["PUBSUB", "NUMSUB", "one", "two", "none"]));
    assert_eq!(counted.matches("Integer(1)").count(), 2, "{counted}");
}

/// Two routers and two servers: messages reach everybody, PUBLISH counts everybody, storage has each channel once.
#[test]
fn routers_and_shims_count_together() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let layout = Layout::before(&servers);
    let second = Layout::embedded(1).routers;
    let cluster = Cluster::up(Layout { routers: [&layout.routers[..], &second].concat(), ..layout });
    let mut subscribers: Vec<Client> = (0..10).map(|index| cluster.connect(index % 2).resp3()).collect();
    for subscriber in &mut subscribers {
        subscriber.write(b"SUBSCRIBE news\r\nPSUBSCRIBE n*\r\n").expect("written");
        assert_eq!(subscriber.heard().len(), 2);
    }
    let mut barrier = Barrier::new(|index| cluster.connect(index % 2));
    for router in [0, 1] {
        let mut publisher = cluster.connect(router);
        assert_eq!(publisher.call(&["PUBLISH", "news", "m"]), Value::Integer(20));
        assert_eq!(publisher.call(&["PUBSUB", "NUMPAT"]), Value::Integer(1));
        barrier.wait();
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.heard().len(), 2);
        }
    }
    let at_storage = |server: &RedisServer| match server.connect().call(&["PUBSUB", "NUMSUB", "news"]) {
        Value::Array(values) => values[1].clone(),
        other => panic!("{other:?}"),
    };
    let counts: Vec<Value> = servers.iter().map(at_storage).collect();
    assert!(counts.contains(&Value::Integer(1)) && counts.contains(&Value::Integer(0)), "{counts:?}");
    drop(subscribers);
    until("nobody subscribes any more", || {
        let mut publisher = cluster.connect(0);
        (publisher.call(&["PUBLISH", "news", "m"]) == Value::Integer(0)).then_some(())
    });
    until("storage has no subscription any more", || {
        let none = |server: &RedisServer| at_storage(server) == Value::Integer(0);
        servers.iter().all(none).then_some(())
    });
}

/// A message reaches the subscriber again, once what was cut is back.
fn comes_back(cluster: &Cluster, subscriber: &mut Client, channel: &str) {
    until("messages come again", || {
        let mut publisher = cluster.connect(0);
        let answer = publisher.call(&["PUBLISH", channel, "back"]);
        let heard = subscriber.heard();
        (answer == Value::Integer(1) && heard.iter().any(|frame| frame.contains("back"))).then_some(())
    });
}

#[test]
fn subscriptions_outlive_lost_links() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let mut servers = [RedisServer::start(), RedisServer::start()];
    let mut cluster = Cluster::apart(Layout::before(&servers));
    let mut subscriber = cluster.connect(0).resp3();
    let channels = ["one", "two", "three", "four"];
    subscriber.write(format!("SUBSCRIBE {}\r\n", channels.join(" ")).as_bytes()).expect("written");
    assert_eq!(subscriber.heard().len(), 4);

    // The subscriber connections alone.
    for server in &servers {
        server.connect().call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }
    channels.iter().for_each(|channel| comes_back(&cluster, &mut subscriber, channel));

    // A storage server.
    for server in &mut servers {
        server.kill();
        server.run();
    }
    channels.iter().for_each(|channel| comes_back(&cluster, &mut subscriber, channel));

    // A shim.
    cluster.kill("shim-1");
    cluster.start("shim-1");
    channels.iter().for_each(|channel| comes_back(&cluster, &mut subscriber, channel));
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_harms_nobody() {
    let _machine = shared();
    let tables = "[limits]\noutput_bytes_max = \"16KiB\"\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::embedded(1) });
    let (mut slow, mut reader) = (cluster.connect(0).resp3(), cluster.connect(0).resp3());
    for client in [&mut slow, &mut reader] {
        client.write(b"SUBSCRIBE flood\r\n").expect("written");
        assert_eq!(client.heard().len(), 1);
    }
    let mut publisher = cluster.connect(0);
    let mut barrier = Barrier::new(|_| cluster.connect(0));
    let message = "x".repeat(256 << 10);
    until("the one that does not read is gone", || {
        let receivers = publisher.call(&["PUBLISH", "flood", &message]);
        barrier.wait();
        assert_eq!(reader.heard().len(), 1);
        (receivers == Value::Integer(1)).then_some(())
    });
    // Whatever was on its way comes, then the end.
    let rest = slow.rest().map_or(0, |rest| rest.len());
    assert!(rest < 64 << 20, "{rest} bytes");
    let status = cluster.fresh_status(|status| status["routers"][0]["sheds_total"]["slow_client"] == 1);
    assert_eq!(status["routers"][0]["subscriptions"], 1);
}

#[test]
fn the_redis_crate_subscribes_unmodified() -> redis::RedisResult<()> {
    if !installed(&["redis-server"]) {
        return Ok(());
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let mut barrier = Barrier::new(|_| cluster.connect(0));
    for protocol in ["", "?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://{}/{protocol}", cluster.router(0)))?;
        let (mut listener, mut publisher) = (client.get_connection()?, client.get_connection()?);
        let mut pubsub = listener.as_pubsub();
        pubsub.set_read_timeout(Some(REPLY_MAX))?;
        // One at a time: it takes the second channel's confirmation for that of the next command.
        ["rs:a", "rs:b"].into_iter().try_for_each(|channel| pubsub.subscribe(channel))?;
        pubsub.psubscribe("rs:*")?;
        for channel in ["rs:a", "rs:b", "rs:c"] {
            let receivers: i64 = publisher.publish(channel, "payload")?;
            assert_eq!(receivers, if channel == "rs:c" { 1 } else { 2 });
            for _ in 0..receivers {
                let message = pubsub.get_message()?;
                assert_eq!(message.get_channel_name(), channel);
                assert_eq!(message.get_payload::<String>()?, "payload");
            }
        }
        pubsub.unsubscribe("rs:a")?;
        pubsub.punsubscribe("rs:*")?;
        barrier.wait();
        assert_eq!(publisher.publish::<_, _, i64>("rs:a", "payload")?, 0);
        assert_eq!(publisher.publish::<_, _, i64>("rs:b", "payload")?, 1);
        assert_eq!(pubsub.get_message()?.get_channel_name(), "rs:b");
        drop(pubsub);
        barrier.wait();
        assert_eq!(publisher.publish::<_, _, i64>("rs:b", "payload")?, 0);
        listener.set::<_, _, ()>("rs:key", 1)?;
        assert_eq!(listener.get::<_, i64>("rs:key")?, 1);
    }
    Ok(())
}
