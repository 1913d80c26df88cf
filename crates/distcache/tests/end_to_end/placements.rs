//! Keys that other software has laid out: found where a real nutcracker puts them, and served from there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command as Program;

use bytes::Bytes;
use config::Config;
use protocol::placement::Placement;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use wire::resp::{Command, Value};

use crate::cluster::{
    Client, Cluster, Directory, Layout, Process, RedisServer, UP, distcache, free_port, installed, loopback,
    ok, shared, text, until,
};

const HASHES: [&str; 12] = [
    "one_at_a_time",
    "md5",
    "crc16",
    "crc32",
    "crc32a",
    "fnv1_64",
    "fnv1a_64",
    "fnv1_32",
    "fnv1a_32",
    "hsieh",
    "murmur",
    "jenkins",
];
const SECRET: &str = "00112233445566778899aabbccddeeff";

/// A Redis that listens on TCP, as nutcracker and its users know it.
struct TcpRedis {
    address: SocketAddr,
    redis: RedisServer,
}

impl TcpRedis {
    fn start(address: SocketAddr) -> TcpRedis {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let redis = RedisServer::with(&["--appendonly", "no", "--bind", &host, "--port", &port]);
        TcpRedis { address, redis }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

/// How nutcracker and DistCache are told of the same pool.
#[derive(Clone, Debug)]
struct ToldPool {
    distribution: &'static str,
    hash: &'static str,
    hash_tag: &'static str,
    weights: Vec<u32>,
    /// Left out where addresses are the names.
    names: Vec<&'static str>,
}

impl ToldPool {
    fn placement(&self) -> String {
        let ToldPool { distribution, hash, hash_tag, .. } = self;
        let tag = if hash_tag.is_empty() { String::new() } else { format!("hash_tag = \"{hash_tag}\"\n") };
        format!("[placement]\ndistribution = \"{distribution}\"\nhash = \"{hash}\"\n{tag}")
    }

    /// What stands in the entry of a shim.
    fn keys(&self, server: usize) -> String {
        let name = self.names.get(server).map(|name| format!("server_name = \"{name}\"\n"));
        format!("{}weight = {}\n", name.unwrap_or_default(), self.weights[server])
    }

    fn config(&self, servers: &[TcpRedis]) -> Config {
        let mut text = format!("[cluster]\nsecret = \"{SECRET}\"\n{}", self.placement());
        for (index, server) in servers.iter().enumerate() {
            let url = server.url();
            let entry = format!("[[shim]]\nid = \"shim-{index}\"\nstorage = \"{url}\"\n{}", self.keys(index));
            text.push_str(&entry);
        }
        Config::parse(&text).expect("a configuration")
    }
}

/// Killed when dropped.
struct Nutcracker {
    _process: Process,
    _directory: Directory,
    pools: Vec<SocketAddr>,
}

impl Nutcracker {
    fn start(servers: &[TcpRedis], pools: &[ToldPool]) -> Nutcracker {
        let mut text = String::new();
        let mut listens = Vec::new();
        for (index, told) in pools.iter().enumerate() {
            let listen = loopback();
            listens.push(listen);
            let ToldPool { distribution, hash, hash_tag, .. } = told;
            let tag =
                if hash_tag.is_empty() { String::new() } else { format!("  hash_tag: \"{hash_tag}\"\n") };
            writeln!(text, "pool-{index}:\n  listen: {listen}\n  redis: true\n  hash: {hash}").expect("text");
            writeln!(text, "  distribution: {distribution}\n{tag}  servers:").expect("text");
            for ((server, weight), index) in servers.iter().zip(&told.weights).zip(0..) {
                let name = told.names.get(index).map(|name| format!(" {name}")).unwrap_or_default();
                writeln!(text, "   - {}:{weight}{name}", server.address).expect("text");
            }
        }
        let directory = Directory::new();
        let file = directory.join("nutcracker.yml");
        std::fs::write(&file, text).expect("written");
        let mut command = Program::new("nutcracker");
        command.arg("-c").arg(&file).args(["-a", "127.0.0.1", "-s", &free_port().to_string()]);
        let process = Process::start("nutcracker", command, &directory.join("nutcracker.log"));
        for listen in &listens {
            until("nutcracker listens", || TcpStream::connect(listen).ok().map(drop));
        }
        Nutcracker { _process: process, _directory: directory, pools: listens }
    }
}

/// Sends commands without waiting for each reply, and gives the replies.
fn pipelined(client: &mut Client, commands: impl Iterator<Item = Command>) -> Vec<Value> {
    let commands: Vec<Command> = commands.collect();
    let mut replies = Vec::with_capacity(commands.len());
    for some in commands.chunks(500) {
        let frames: Vec<u8> = some.iter().flat_map(|command| command.frame().to_vec()).collect();
        client.write(&frames).expect("written");
        for _ in some {
            replies.push(Value::parse(&client.frame().expect("a reply")).expect("RESP"));
        }
    }
    replies
}

fn set_all(client: &mut Client, keys: &[Bytes]) {
    let commands = keys.iter().map(|key| Command::from_args(&[b"SET".as_slice(), key, &value(key)]));
    for reply in pipelined(client, commands) {
        assert_eq!(text(&reply), "OK");
    }
}

fn value(key: &[u8]) -> Vec<u8> {
    [b"value of ".as_slice(), key].concat()
}

/// Keys as people make them and as nobody does: of any bytes and length, with tags, and with what is none.
fn keys(random: &mut SmallRng, count: usize) -> Vec<Bytes> {
    let mut keys: Vec<Bytes> = (0..count)
        .map(|number| match number % 8 {
            0 | 1 => format!("key-{number}").into(),
            2 => format!("user:{{{}}}:{number}", number % 1000).into(),
            3 => format!("schl\u{fc}ssel:\u{20ac}{number}").into(),
            4 => format!("[{}]{number}{{}}", number % 77).into(),
            5 => format!("{{}}{{x}}{number}").into(),
            _ => {
                let mut bytes = vec![0; random.random_range(0..40)];
                random.fill_bytes(&mut bytes);
                bytes.extend(number.to_be_bytes());
                bytes.into()
            }
        })
        .collect();
    keys.push(Bytes::new());
    keys
}

/// Where each key lies, by the number of its server.
fn lies(servers: &[TcpRedis]) -> HashMap<Bytes, usize> {
    let mut found = HashMap::new();
    for (index, server) in servers.iter().enumerate() {
        let Value::Array(keys) = server.redis.connect().call(&["KEYS", "*"]) else { panic!("KEYS") };
        found.extend(keys.iter().filter_map(Value::bytes).map(|key| (key.clone(), index)));
    }
    found
}

fn empty(servers: &[TcpRedis]) {
    servers.iter().for_each(|server| ok(&mut server.redis.connect(), &["FLUSHALL"]));
}

/// One of them on the port that is left out of names, at an address that nobody else who tests has.
fn servers(count: usize) -> Vec<TcpRedis> {
    let [high, low] = free_port().to_be_bytes();
    let first = SocketAddr::from((Ipv4Addr::new(127, 100, high, low), 11211));
    let rest = (1..count).map(|_| loopback());
    std::iter::once(first).chain(rest).map(TcpRedis::start).collect()
}

/// Every hash with every distribution, with weights and names and without; of a hundred thousand keys for each hash.
#[test]
fn keys_lie_where_nutcracker_puts_them() {
    if !installed(&["redis-server", "nutcracker"]) {
        return;
    }
    let _machine = shared();
    let servers = servers(5);
    let mut pools = Vec::new();
    for (number, hash) in HASHES.into_iter().enumerate() {
        for distribution in ["ketama", "modula"] {
            let hash_tag = ["", "{}", "[]", "xx"][number % 4];
            let plain = ToldPool { distribution, hash, hash_tag: "", weights: vec![1; 5], names: Vec::new() };
            let weights = vec![1, 3, 2 + number as u32, 1, 100];
            let named = vec!["gamma", "b", "alpha", "delta", "a-long-name.example:6379"];
            pools.push(ToldPool { hash_tag, weights, names: named, ..plain.clone() });
            pools.push(plain);
        }
    }
    let nutcracker = Nutcracker::start(&servers, &pools);
    let case = cases::one();
    let mut random = SmallRng::seed_from_u64(case.seed);
    for (told, listen) in pools.iter().zip(&nutcracker.pools) {
        // twemproxy's default hash has as many in each pool.
        let count = if told.hash == "fnv1a_64" { 100_000 } else { 25_000 };
        let keys = keys(&mut random, count);
        set_all(&mut Client::tcp(*listen), &keys);
        let (config, found) = (told.config(&servers), lies(&servers));
        let placement = config.placement(config.map()).expect("a map");
        assert_eq!(found.len(), keys.len());
        for (key, server) in &found {
            let ours = usize::from(shim_of(&placement, key));
            assert_eq!(ours, *server, "{} by {told:?}", key.escape_ascii());
        }
        empty(&servers);
    }
}

fn shim_of(placement: &Placement, key: &Bytes) -> u16 {
    placement.shim(&placement.key(0, key.clone())).0
}

/// The file of a cluster before these servers, told as nutcracker was or as nobody was.
fn configured(cluster: &Cluster, told: Option<&ToldPool>) -> String {
    let mut text = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let Some(told) = told else { return text };
    for server in 0..told.weights.len() {
        let id = format!("id = \"shim-{server}\"\n");
        text = text.replacen(&id, &format!("{id}{}", told.keys(server)), 1);
    }
    format!("{}\n{text}", told.placement())
}

/// What the binary says: its exit code, standard output and standard error.
fn says(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = distcache().args(arguments).arg("--config").arg(&cluster.config).output().expect("it runs");
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), words(&output.stdout), words(&output.stderr))
}

#[test]
fn a_data_set_of_nutcracker_is_read_to_the_last_key() {
    if !installed(&["redis-server", "nutcracker"]) {
        return;
    }
    let _machine = shared();
    let servers = servers(4);
    let told = ToldPool {
        distribution: "ketama",
        hash: "murmur",
        hash_tag: "{}",
        weights: vec![1, 4, 2, 1],
        names: vec!["one", "two", "three", "four"],
    };
    let case = cases::one();
    let mut random = SmallRng::seed_from_u64(case.seed);
    let keys = keys(&mut random, 20_000);
    {
        let nutcracker = Nutcracker::start(&servers, std::slice::from_ref(&told));
        let mut client = Client::tcp(nutcracker.pools[0]);
        set_all(&mut client, &keys);
        for (key, member) in [("{pair}a", "1"), ("{pair}b", "2")] {
            assert_eq!(client.call(&["SADD", key, member]), Value::Integer(1));
        }
    }
    let before = lies(&servers);

    // Without its placement it is refused, and the doctor says which one it is.
    let mut cluster = Cluster::unstarted(Layout::new(servers.iter().map(TcpRedis::url).collect()));
    let (code, _, said) = says(&cluster, &["up"]);
    assert!(code == Some(1) && said.contains("lie elsewhere") && said.contains("doctor"), "{said}");
    let bare = ToldPool { hash: "md5", hash_tag: "", ..told.clone() };
    let (plain, wrong) = (configured(&cluster, None), configured(&cluster, Some(&bare)));
    std::fs::write(&cluster.config, wrong).expect("written");
    let (code, shown, _) = says(&cluster, &["doctor", "--storage-only"]);
    assert!(
        code == Some(1) && shown.contains("sampled keys of 4 servers lie where ketama:md5 puts them"),
        "{shown}"
    );
    let advice =
        "do: write [placement] distribution = \"ketama\", hash = \"murmur\", hash_tag = \"{}\", where ";
    assert!(shown.contains(advice), "{shown}");

    // With it every key is there, unchanged.
    std::fs::write(&cluster.config, plain).expect("written");
    let fitting = configured(&cluster, Some(&told));
    std::fs::write(&cluster.config, &fitting).expect("written");
    let (_, checked, _) = says(&cluster, &["check"]);
    assert!(checked.contains(", keys laid out by ketama:murmur:{},"), "{checked}");
    cluster.start(UP);
    cluster.wait_linked();
    let mut client = cluster.connect(0);
    check_all(&mut client, &keys);
    assert_eq!(client.call(&["SUNIONSTORE", "{pair}c", "{pair}a", "{pair}b"]), Value::Integer(2));
    assert_eq!(client.call(&["DEL", "{pair}c"]), Value::Integer(1));
    assert_eq!(client.call(&["MGET", "{pair}x", "{pair}y"]), Value::Array(vec![Value::Null, Value::Null]));
    assert_eq!(client.call(&["DBSIZE"]), Value::Integer(before.len() as i64));
    assert_eq!(lies(&servers), before, "nothing has moved");
    let (_, shown, _) = says(&cluster, &["doctor", "--storage-only"]);
    assert!(shown.contains("ok       [placement]: "), "{shown}");

    check_later_starts(&mut cluster, &servers, &keys, &fitting);
}

fn check_later_starts(cluster: &mut Cluster, servers: &[TcpRedis], keys: &[Bytes], fitting: &str) {
    // Nobody has to say `--adopt` where the sample alone is looked at.
    cluster.kill(UP);
    servers.iter().for_each(|server| ok(&mut server.redis.connect(), &["FUNCTION", "FLUSH"]));
    cluster.start(UP);
    cluster.wait_linked();
    check_all(&mut cluster.connect(0), keys);

    // What the servers hold says so from now on.
    cluster.kill(UP);
    let other = fitting.replace("distribution = \"ketama\"", "distribution = \"modula\"");
    std::fs::write(&cluster.config, other).expect("written");
    let (code, _, said) = says(cluster, &["up"]);
    let words = "with another [placement]: ketama:murmur:{}, and it is modula:murmur:{} now";
    assert!(code == Some(1) && said.contains(words), "{said}");
}

/// GET and MGET, each key by both.
fn check_all(client: &mut Client, keys: &[Bytes]) {
    let gets = keys.iter().map(|key| Command::from_args(&[b"GET".as_slice(), key]));
    for (key, reply) in keys.iter().zip(pipelined(client, gets)) {
        assert_eq!(reply.bytes().map(|bytes| bytes.to_vec()), Some(value(key)), "GET {}", key.escape_ascii());
    }
    let mgets = keys.chunks(40).map(|some| {
        let keys = some.iter().map(|key| &key[..]);
        Command::from_args(&std::iter::once(b"MGET".as_slice()).chain(keys).collect::<Vec<_>>())
    });
    for (some, reply) in keys.chunks(40).zip(pipelined(client, mgets)) {
        let values: Vec<_> = reply.elements().expect("values").iter().map(Value::bytes).collect();
        for (key, found) in some.iter().zip(values) {
            assert_eq!(found.map(|bytes| bytes.to_vec()), Some(value(key)), "MGET {}", key.escape_ascii());
        }
    }
}

/// With other marks, and with none, keys that share `{tag}` need not lie together: nobody takes them for one server's.
#[test]
fn keys_lie_together_by_the_tags_of_their_placement_alone() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    for (tag, remedy) in [
        ("[]", "give them one hash tag, as in [user1].a and [user1].b"),
        ("", "[placement] has no hash_tag, so use one command for each key"),
    ] {
        let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
        let tables = format!("[placement]\ndistribution = \"jump\"\nhash_tag = \"{tag}\"");
        let cluster = Cluster::up(Layout { tables, ..Layout::before(&servers) });
        let mut client = cluster.connect(0);
        let keys: Vec<String> = (0..12).map(|number| format!("{{t}}{number}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let pairs: Vec<&str> = keys.iter().flat_map(|key| [*key, "v"]).collect();
        ok(&mut client, &[&["MSET"], &pairs[..]].concat());
        let found = client.call(&[&["MGET"], &keys[..]].concat());
        assert!(
            found.elements().is_some_and(|found| found.iter().all(|value| text(value) == "v")),
            "{found:?}"
        );
        let held = servers.iter().filter(|server| server.connect().call(&["DBSIZE"]) != Value::Integer(0));
        assert_eq!(held.count(), 3, "they lie apart");
        let said = text(&client.call(&[&["SUNIONSTORE"], &keys[..]].concat()));
        assert!(said.starts_with("CROSSSLOT ") && said.ends_with(remedy), "{said}");
        let said = text(&client.call(&["SORT", "{t}list", "BY", "{t}w_*"]));
        assert!(said.starts_with("CROSSSLOT ") && said.contains("sort without patterns"), "{said}");
        if !tag.is_empty() {
            assert_eq!(client.call(&["MSETNX", "[t]a", "1", "[t]b", "2", "[t]c", "3"]), Value::Integer(1));
        }
        assert_eq!(client.call(&["DBSIZE"]), Value::Integer(if tag.is_empty() { 12 } else { 15 }));
    }
}
