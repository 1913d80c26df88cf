//! Takeovers before as much of a server as they ask for: who may write, and what successors are told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use wire::resp::{Command, Value};

use super::{
    FenceDemand, FenceName, FenceShare, Incarnation, LeaseRecord, RedisSettings, Step, Takeover, Trouble,
};
use crate::coherence::lease::{LeaseLimits, Unrecorded};
use crate::storage::network::Endpoint;
use crate::time::Time;

/// As much of a server as a takeover asks for.
#[derive(Default)]
struct Server {
    users: BTreeSet<Bytes>,
    /// Users with connections.
    connected: Vec<String>,
    /// For how many seconds these have said nothing.
    idle: u64,
    /// Its run.
    run: &'static str,
    /// Commands that nobody may use, with their subcommands.
    refused: Vec<&'static str>,
}

fn bulk(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

impl Server {
    fn execute(&mut self, command: &Command) -> Value {
        let words =
            [command.get(0), command.get(1)].map(|word| word.unwrap_or_default().to_vec()).join(&b' ');
        if self.refused.iter().any(|refused| words.starts_with(refused.as_bytes())) {
            return Value::Error(Bytes::from_static(
                b"NOPERM this user has no permissions to run the command",
            ));
        }
        match (command.arg(0), command.get(1).unwrap_or_default()) {
            (b"INFO", b"server") => bulk(&format!("redis_version:7.0.15\r\nrun_id:run-{}\r\n", self.run)),
            (b"INFO", b"replication") => bulk("role:master\r\nmaster_replid:b\r\n"),
            (b"HELLO", _) => Value::Array(
                ["server", "redis", "version", "7.0.15", "mode", "standalone", "role", "master"]
                    .map(bulk)
                    .to_vec(),
            ),
            (b"TIME", _) => Value::Array(vec![bulk("100"), bulk("0")]),
            (b"ACL", b"WHOAMI") => bulk("default"),
            (b"ACL", b"LIST") => Value::Array(vec![bulk("user default on nopass ~* &* +@all")]),
            (b"ACL", b"USERS") => Value::Array(self.users.iter().cloned().map(Value::Bulk).collect()),
            (b"ACL", b"SETUSER") => {
                self.users.insert(command.arg_bytes(2));
                Value::Simple(Bytes::from_static(b"OK"))
            }
            (b"ACL", b"DELUSER") => {
                let removed = (2..command.len()).filter(|&index| self.users.remove(command.arg(index)));
                Value::Integer(removed.count() as i64)
            }
            (b"CLIENT", b"LIST") => {
                let idle = self.idle;
                let lines =
                    self.connected.iter().map(|user| format!("id=1 idle={idle} user={user} cmd=ping\n"));
                bulk(&lines.collect::<String>())
            }
            _ => Value::Integer(0),
        }
    }
}

fn takeover(seed: u64) -> Takeover {
    waited_for(seed, 1000)
}

/// One whose leases are waited for so many milliseconds.
fn waited_for(seed: u64, wait: u64) -> Takeover {
    takeover_of(seed, wait, |_| {})
}

fn takeover_of(seed: u64, wait: u64, change: impl FnOnce(&mut RedisSettings)) -> Takeover {
    let mut settings = RedisSettings {
        endpoint: Endpoint::Configured,
        address: String::new(),
        tls: false,
        user: None,
        password: None,
        fence: FenceName { cluster: "test".to_owned(), shim: "shim-0".to_owned(), share: FenceShare::Whole },
        fence_demand: FenceDemand::Always,
        mark: None,
        adopts: false,
        lease_record: LeaseRecord {
            wait: Duration::from_millis(wait),
            limits: LeaseLimits::default(),
            is_first: false,
        },
        standby: None,
        cluster_mode: false,
        timeout: Duration::from_secs(1),
        pinned_max: 0,
        seed,
    };
    change(&mut settings);
    let mut takeover = Takeover::new(&settings, SmallRng::seed_from_u64(seed));
    takeover.restart();
    takeover
}

#[test]
fn of_shims_that_take_over_at_once_never_two_can_write() {
    let (mut alone, mut stood_by) = (0, 0);
    for case in cases::seeds(300) {
        let seed = case.seed;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut server = Server::default();
        let mut waits = [20, 500, 5051];
        waits.rotate_left(random.random_range(0..3));
        let mut shims = [1, 2, 3].map(|shim| waited_for(seed.rotate_left(shim as u32), waits[shim - 1]));
        shims[0].record.is_first = true;
        assert!(dialogue(&mut shims[0], &mut server));
        let first = shims[0].settled().map(|own| (own.number, waits[0]));
        let mut granted = BTreeMap::from_iter(first);
        for _ in 0..100 {
            let settled = shims.iter().filter_map(Takeover::settled).map(|found| found.user.clone());
            server.connected = settled.filter(|user| server.users.contains(user.as_bytes())).collect();
            let index = random.random_range(0..3);
            let shim = &mut shims[index];
            let user = shim.settled().map(|incarnation| incarnation.user.clone());
            match (shim.command(Time(0)), user) {
                (Some(command), _) => {
                    let reply = server.execute(&command);
                    match shim.reply(Time(0), &reply) {
                        Ok(_) => {
                            // Whose user has gone meanwhile is let in nowhere, and grants nothing.
                            let alive = |own: &&Incarnation| server.users.contains(own.user.as_bytes());
                            if let Some(own) = shim.settled().filter(alive) {
                                let others = granted.iter().filter(|(number, _)| **number != own.number);
                                let longest = others.map(|(_, wait)| *wait).max().unwrap_or(0);
                                let told = own.earlier.recorded.as_millis() as u64;
                                // Two may have deleted each other; then nobody knows.
                                let knows = told >= longest || own.earlier.unrecorded == Unrecorded::Unknown;
                                assert!(knows || granted.contains_key(&own.number), "seed {seed}");
                                granted.insert(own.number, waits[index]);
                            }
                        }
                        Err(Trouble::Replaced(_)) => stood_by += 1,
                        Err(other) => panic!("a server without troubles: {other:?}"),
                    }
                }
                // Its connections are refused, so it starts again, though not at once.
                (None, Some(user)) if !server.users.contains(user.as_bytes()) && random.random_bool(0.02) => {
                    shim.renounce();
                }
                _ => {}
            }
            let alive = shims.iter().filter_map(Takeover::settled);
            let alive = alive.filter(|found| server.users.contains(found.user.as_bytes())).count();
            assert!(alive <= 1, "seed {seed}");
            alone += alive;
        }
    }
    let enough = alone > 3000 && stood_by > 300;
    assert!(cases::alone() || enough, "the test must reach what it tests: {alone}, {stood_by}");
}

/// Asks until it has settled, or stands by.
fn dialogue(shim: &mut Takeover, server: &mut Server) -> bool {
    while let Some(command) = shim.command(Time(0)) {
        let reply = server.execute(&command);
        if let Err(trouble) = shim.reply(Time(0), &reply) {
            assert!(matches!(trouble, Trouble::Replaced(_)), "{trouble:?}");
            return false;
        }
    }
    server.connected = shim.settled().map(|found| found.user.clone()).into_iter().collect();
    true
}

#[test]
fn the_older_of_two_processes_stands_by_until_the_newer_is_gone() {
    let (mut server, mut older, mut newer) = (Server::default(), takeover(1), takeover(2));
    assert!(dialogue(&mut older, &mut server) && dialogue(&mut newer, &mut server));
    older.renounce();
    for _ in 0..5 {
        assert!(!dialogue(&mut older, &mut server) && older.is_replaced());
    }
    // It died and left its user behind; once may be chance.
    server.connected.clear();
    assert!(!dialogue(&mut older, &mut server));
    assert!(dialogue(&mut older, &mut server) && !older.is_replaced());
    assert_eq!(server.users.len(), 1);
}

/// What the shim is told of earlier leases, in milliseconds, whether of all, and whether they are of the same data.
fn earlier(shim: &Takeover) -> (u128, bool, bool) {
    let earlier = shim.settled().expect("nothing is in the way").earlier;
    (earlier.recorded.as_millis(), earlier.unrecorded == Unrecorded::Nobody, earlier.same_data)
}

/// However long it was there, and whatever leases of others may run.
#[test]
fn who_brings_keys_to_another_s_server_leaves_nothing_there() {
    let mut server = Server::default();
    let mut guest = takeover_of(1, 20, |settings| settings.fence.share = FenceShare::Arriving);
    assert!(dialogue(&mut guest, &mut server));
    guest.shrink(Time(100_000_000));
    assert!(guest.command(Time(100_000_000)).is_none());
    for command in guest.farewell(Time(100_000_000), false).expect("it governs") {
        server.execute(&command);
    }
    assert!(server.users.is_empty(), "{:?}", server.users);
}

#[test]
fn each_successor_is_told_of_all_leases_that_may_run() {
    let mut server = Server::default();
    let mut first = waited_for(1, 5051);
    assert!(dialogue(&mut first, &mut server));
    assert_eq!(earlier(&first), (0, false, false), "nobody knows what was before");
    let mut second = waited_for(2, 203);
    assert!(dialogue(&mut second, &mut server));
    assert_eq!(earlier(&second), (60_600, true, false), "the first did not know");
    second.shrink(Time(60_599_999));
    assert!(second.command(Time(0)).is_none());
    let users = server.users.clone();
    let mut between = waited_for(9, 20);
    assert!(dialogue(&mut between, &mut server));
    assert_eq!(earlier(&between), (60_600, true, false), "the second did not wait for long enough");
    server.users = users;
    second.shrink(Time(60_600_000));
    assert!(dialogue(&mut second, &mut server) && server.users.len() == 2);
    // It leaves in order, and its leases run on.
    for command in second.farewell(Time(0), false).expect("it governs") {
        server.execute(&command);
    }
    let mut third = waited_for(3, 20);
    assert!(dialogue(&mut third, &mut server));
    assert_eq!((earlier(&third), server.users.len()), ((203, true, true), 1));
    let mut fourth = waited_for(4, 500);
    assert!(dialogue(&mut fourth, &mut server));
    assert_eq!(earlier(&fourth), (203, true, true), "the third did not wait for long enough");
    // Another run of the server, whose users were saved.
    server.run = "b";
    let mut fifth = waited_for(5, 20);
    assert!(dialogue(&mut fifth, &mut server));
    assert_eq!(earlier(&fifth), (500, true, false));
    let mut sixth = waited_for(6, 20);
    assert!(dialogue(&mut sixth, &mut server));
    assert_eq!(earlier(&sixth), (500, true, false), "copies of before the restart may still be there");
    sixth.shrink(Time(500_000));
    assert!(dialogue(&mut sixth, &mut server));
    let mut seventh = waited_for(7, 20);
    assert!(dialogue(&mut seventh, &mut server));
    assert_eq!(earlier(&seventh), (20, true, true));
}

#[test]
fn who_comes_between_a_look_and_a_name_is_not_forgotten() {
    let (mut server, mut first) = (Server::default(), waited_for(1, 20));
    first.record.is_first = true;
    assert!(dialogue(&mut first, &mut server));
    let mut slow = waited_for(2, 20);
    while slow.step != Step::Make {
        let reply = server.execute(&slow.command(Time(0)).expect("it has not looked yet"));
        slow.reply(Time(0), &reply).expect("a server without troubles");
    }
    let mut between = waited_for(3, 5051);
    assert!(dialogue(&mut between, &mut server) && dialogue(&mut slow, &mut server));
    assert_eq!(earlier(&slow), (5051, true, true));
    let mut last = waited_for(4, 20);
    assert!(dialogue(&mut last, &mut server));
    assert_eq!(earlier(&last), (5051, true, true), "leases of the one between may run on");
}

#[test]
fn the_first_one_of_all_waits_for_nobody_and_only_once() {
    let (mut server, mut shim) = (Server::default(), takeover(1));
    shim.record.is_first = true;
    assert!(dialogue(&mut shim, &mut server));
    assert_eq!((earlier(&shim), server.users.len()), ((0, true, true), 1));
    server.users.clear();
    shim.renounce();
    assert!(dialogue(&mut shim, &mut server));
    assert_eq!(earlier(&shim), (0, false, false), "somebody may have come between");
}

#[test]
fn a_user_that_nobody_has_replaced_is_made_again_at_once() {
    let (mut server, mut shim) = (Server::default(), takeover(1));
    assert!(dialogue(&mut shim, &mut server));
    let number = shim.settled().expect("nothing is in the way").number;
    server.users.clear();
    shim.renounce();
    assert!(dialogue(&mut shim, &mut server));
    assert_ne!(shim.settled().expect("nothing is in the way").number, number);
}

#[test]
fn a_lost_connection_is_fenced_before_the_incarnation_is_settled_again() {
    let (mut server, mut shim) = (Server::default(), takeover(1));
    let run = |shim: &mut Takeover, server: &mut Server| {
        let mut asked = Vec::new();
        while let Some(command) = shim.command(Time(0)) {
            asked.push(format!("{command:?}"));
            let reply = server.execute(&command);
            shim.reply(Time(0), &reply).expect("a server without troubles");
        }
        asked
    };
    run(&mut shim, &mut server);
    let number = shim.settled().expect("nothing is in the way").number;
    shim.lost(7);
    shim.lost(8);
    assert!(shim.settled().is_none());
    assert_eq!(
        run(&mut shim, &mut server),
        [
            "Command(INFO server)",
            "Command(INFO replication)",
            "Command(CLIENT KILL ID 7)",
            "Command(CLIENT KILL ID 8)"
        ]
    );
    assert_eq!(shim.settled().expect("it is fenced").number, number);
}

#[test]
fn a_busy_server_is_asked_the_same_again() {
    let mut shim = takeover(1);
    let first = shim.command(Time(0));
    let busy = Value::Error(Bytes::from_static(b"BUSY Redis is busy running a script."));
    assert!(matches!(shim.reply(Time(0), &busy), Err(Trouble::Wait(_))));
    assert_eq!(shim.command(Time(0)), first);
}

/// Asks until it has settled or is refused.
fn is_refused(shim: &mut Takeover, server: &mut Server) -> bool {
    while let Some(command) = shim.command(Time(0)) {
        let reply = server.execute(&command);
        match shim.reply(Time(0), &reply) {
            Ok(_) => {}
            Err(Trouble::Refused(what)) => {
                assert!(what.contains("another DistCache serves"), "{what}");
                return true;
            }
            Err(trouble) => panic!("{trouble:?}"),
        }
    }
    server.connected = shim.settled().map(|found| found.user.clone()).into_iter().collect();
    false
}

/// Who adopts a server does it once: two that did it in turn would never end.
#[test]
fn strangers_that_are_connected_are_displaced_by_who_is_told_to_and_once() {
    for cluster_mode in [false, true] {
        let share = if cluster_mode { FenceShare::Slots(0, 5460) } else { FenceShare::Whole };
        let of = |seed, cluster: &str, adopts| {
            takeover_of(seed, 20, |settings| {
                settings.fence = FenceName { cluster: cluster.to_owned(), shim: "shim-0".to_owned(), share };
                settings.adopts = adopts;
            })
        };
        let mut server = Server::default();
        let (mut first, mut second) = (of(1, "a", true), of(2, "b", true));
        assert!(!is_refused(&mut first, &mut server) && is_refused(&mut of(3, "b", false), &mut server));
        assert!(!is_refused(&mut second, &mut server));
        first.renounce();
        assert!(is_refused(&mut first, &mut server) && !first.is_replaced());
        server.connected.clear();
        assert!(!is_refused(&mut first, &mut server), "the other is gone");
    }
}

#[test]
fn one_that_stands_by_leaves_who_lives_alone_and_takes_the_place_of_who_hangs() {
    for case in cases::seeds(100) {
        let seed = case.seed;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut server = Server::default();
        let mut shims = [0, 1, 2].map(|place: u8| {
            takeover_of(seed.rotate_left(place.into()), 1000, |settings| settings.standby = Some(place))
        });
        assert!(dialogue(&mut shims[0], &mut server));
        let mut serving = 0;
        for _ in 0..3 {
            let own = shims[serving].settled().expect("it serves").user.clone();
            (server.connected, server.idle) = (vec![own.clone()], random.random_range(0..3));
            for _ in 0..60 {
                let shim = &mut shims[random.random_range(0..3)];
                if shim.settled().is_some() {
                    shim.recheck();
                }
                let Some(command) = shim.command(Time(0)) else { continue };
                match shim.reply(Time(0), &server.execute(&command)) {
                    Ok(_) | Err(Trouble::Replaced(_)) => {}
                    Err(other) => panic!("seed {seed}: {other:?}"),
                }
                assert!(server.users.contains(own.as_bytes()), "seed {seed}: {own} was displaced");
            }
            let standing_by: Vec<usize> = (0..3).filter(|shim| shims[*shim].is_replaced()).collect();
            assert!(!standing_by.contains(&serving), "seed {seed}");
            // It hangs, or its connections are gone.
            match random.random_bool(0.5) {
                true => server.idle = 3,
                false => server.connected.clear(),
            }
            let next = (0..3).find(|shim| *shim != serving).expect("another one");
            let looks = (0..20).take_while(|_| !dialogue(&mut shims[next], &mut server)).count();
            assert!(looks >= 1, "seed {seed}: it was not looked for twice");
            assert!(shims[next].settled().is_some(), "seed {seed}");
            assert!(!server.users.contains(own.as_bytes()), "seed {seed}");
            // It wakes, finds its user gone and stands by.
            server.connected = vec![shims[next].settled().expect("it serves").user.clone()];
            server.idle = 0;
            shims[serving].renounce();
            assert!(!dialogue(&mut shims[serving], &mut server), "seed {seed}");
            assert!(shims[serving].is_replaced(), "seed {seed}");
            serving = next;
        }
    }
}

#[test]
fn one_that_stood_by_knows_whose_leases_may_run_when_the_server_comes_back_without_users() {
    let mut server = Server::default();
    let stands_by = |seed, place| takeover_of(seed, 203, move |settings| settings.standby = Some(place));
    let mut serves = takeover_of(1, 1000, |settings| {
        (settings.standby, settings.lease_record.is_first) = (Some(0), true);
    });
    assert!(dialogue(&mut serves, &mut server));
    let (mut saw, mut saw_nothing) = (stands_by(2, 1), stands_by(3, 2));
    server.connected = vec![serves.settled().expect("it serves").user.clone()];
    assert!(!dialogue(&mut saw, &mut server) && saw.is_replaced());
    // Another run of the server: users are not kept.
    let empty = || Server { run: "2", ..Server::default() };
    assert!(dialogue(&mut saw, &mut empty()));
    let (recorded, knows_all, _) = earlier(&saw);
    assert_eq!((recorded, knows_all), (1000, false), "others may have come since");
    let wait = |shim: &Takeover| shim.record.limits.wait(shim.settled().expect("it serves").earlier, None);
    assert!(wait(&saw) < Duration::from_millis(1200), "{:?}", wait(&saw));
    assert!(dialogue(&mut saw_nothing, &mut empty()));
    assert_eq!(wait(&saw_nothing), LeaseLimits::default().wait_max);
}

fn refusing(refused: &[&'static str]) -> Server {
    Server { refused: refused.to_vec(), ..Server::default() }
}

/// One that does without fences where the server refuses them.
fn follower(seed: u64, standby: Option<u8>) -> Takeover {
    takeover_of(seed, 1000, |settings| {
        (settings.fence_demand, settings.standby) = (FenceDemand::WherePossible, standby);
    })
}

/// What it asks until it has settled, or why it never does.
fn asked(shim: &mut Takeover, server: &mut Server) -> Result<Vec<String>, String> {
    let mut asked = Vec::new();
    while let Some(command) = shim.command(Time(0)) {
        let words = (0..command.len().min(2)).map(|index| String::from_utf8_lossy(command.arg(index)));
        asked.push(words.collect::<Vec<_>>().join(" "));
        match shim.reply(Time(0), &server.execute(&command)) {
            Ok(_) => {}
            Err(Trouble::Refused(what)) => return Err(what),
            Err(other) => panic!("{other:?}"),
        }
    }
    Ok(asked)
}

#[test]
fn what_a_fence_needs_is_needed_or_done_without_and_nothing_is_left_either_way() {
    let fences = ["ACL WHOAMI", "ACL LIST", "ACL DELUSER", "CLIENT KILL", "ACL USERS", "ACL SETUSER", "INFO"];
    for refused in fences {
        let mut server = refusing(&[refused]);
        let what = asked(&mut takeover(1), &mut server).expect_err("a fence is needed");
        assert!(what.starts_with(refused) && what.contains("NOPERM"), "{what}");
        assert!(what.contains("give the storage user +acl") && what.contains("mode = \"bounded\""), "{what}");
        assert!(server.users.is_empty(), "{refused}: {:?}", server.users);

        let mut shim = follower(1, None);
        asked(&mut shim, &mut server).expect("it does without");
        let own = shim.settled().expect("nothing is in the way");
        let has_user = matches!(refused, "CLIENT KILL" | "INFO");
        assert_eq!((own.has_user, own.traits.unfenced), (has_user, !has_user), "{refused}");
        assert_eq!(own.traits.short_leases, !has_user, "{refused}");
        assert_eq!(server.users.len(), usize::from(has_user), "{refused}");
        assert!(has_user || own.user == "default" && own.password.is_none(), "{refused}");
        let told = shim.lacks().expect("people are told");
        assert!(told.contains(&format!("({refused}")) && told.contains("NOPERM"), "{told}");
        assert!(has_user || shim.farewell(Time(0), true).is_none(), "{refused}: it has no user to take away");

        let what = asked(&mut follower(1, Some(0)), &mut refusing(&[refused]));
        let works = matches!(refused, "CLIENT KILL" | "INFO");
        assert_eq!(what.is_ok(), works, "{refused}");
        assert!(works || what.is_err_and(|what| what.contains("there can be no [[standby]]")), "{refused}");
    }
    let mut all = follower(1, None);
    asked(&mut all, &mut Server::default()).expect("nothing is refused");
    assert!(all.lacks().is_none() && all.settled().is_some_and(|own| own.has_user));
}

#[test]
fn a_busy_server_is_not_taken_for_one_that_refuses() {
    for error in ["BUSY a script runs", "LOADING its data", "ERR max number of clients reached"] {
        let mut shim = follower(1, None);
        let mut server = Server::default();
        while shim.step != Step::WhoAmI {
            let reply = server.execute(&shim.command(Time(0)).expect("it asks"));
            shim.reply(Time(0), &reply).expect("a server without troubles");
        }
        let error = Value::Error(Bytes::from_static(error.as_bytes()));
        assert!(matches!(shim.reply(Time(0), &error), Err(Trouble::Wait(_) | Trouble::Broken(_))));
        assert!(shim.lacks().is_none());
    }
}

#[test]
fn who_has_no_user_waits_for_all_that_is_on_record_and_for_a_short_lease() {
    let wait = |shim: &Takeover| {
        let earlier = shim.settled().expect("nothing is in the way").earlier;
        shim.record.limits.wait(earlier, None).as_millis()
    };
    let mut first = follower(1, None);
    first.record.is_first = true;
    asked(&mut first, &mut refusing(&["ACL"])).expect("it does without");
    assert_eq!(wait(&first), 0, "nothing was before");
    let mut second = follower(2, None);
    asked(&mut second, &mut refusing(&["ACL"])).expect("it does without");
    assert_eq!(wait(&second), 1010, "who has left no record had short leases");
    // One with a user was before, and then users were forbidden.
    let (mut server, mut fenced) = (Server::default(), waited_for(3, 5051));
    fenced.record.is_first = true;
    assert!(dialogue(&mut fenced, &mut server));
    server.refused = vec!["ACL SETUSER", "ACL DELUSER"];
    let mut third = follower(4, None);
    asked(&mut third, &mut server).expect("it does without");
    assert_eq!(wait(&third), 5051);
    assert!(!third.settled().is_some_and(|own| own.earlier.same_data));
}

#[test]
fn lost_connections_are_ended_where_that_is_allowed_and_else_followed() {
    for (refused, ends) in [(&["ACL"][..], true), (&["ACL", "CLIENT KILL"], false), (&["CLIENT KILL"], false)]
    {
        let (mut server, mut shim) = (refusing(refused), follower(1, None));
        asked(&mut shim, &mut server).expect("it does without");
        let number = shim.settled().expect("nothing is in the way").number;
        shim.lost(7);
        assert!(shim.settled().is_none(), "the server may be another one");
        let asked_then = asked(&mut shim, &mut server).expect("it does without");
        assert_eq!(asked_then.contains(&"CLIENT KILL".to_owned()), ends, "{refused:?}: {asked_then:?}");
        assert_eq!(shim.settled().expect("it goes on").number, number, "{refused:?}");
    }
}

#[test]
fn who_does_not_know_the_run_takes_each_connection_for_another_one() {
    let (mut server, mut shim) = (refusing(&["INFO"]), follower(1, None));
    asked(&mut shim, &mut server).expect("it does without");
    let number = shim.settled().expect("nothing is in the way").number;
    shim.recheck();
    asked(&mut shim, &mut server).expect("it does without");
    assert_eq!(shim.settled().expect("it goes on").number, number, "the same connection");
    shim.restart();
    asked(&mut shim, &mut server).expect("it does without");
    assert_ne!(shim.settled().expect("it goes on").number, number);
}
