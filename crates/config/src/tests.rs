//! Configurations good and bad: what they become, and the line that a bad one gets.

use std::path::Path;

use wire::{NodeId, Partition, RackId, RouterId, ShimId};

use super::load::read;
use super::{Caching, Config, Member, Override, Routing, Secret, StorageConfig};

const EXAMPLE: &str = r#"
[cluster]
name = "demo"
secret = "00112233445566778899aabbccddeeff"
mode = "strict"
routing = "on-path"
lease_ms = 1000

[security]
insecure_listen = false

[[controller]]
id = "controller"
listen = "127.0.0.1:7000"
store = "memory"

[[layer]]
name = "leaf"
partition = "rack"
[[layer]]
name = "spine"
partition = "hash"

[[node]]
id = "spine-0"
layer = "spine"
listen = "unix:///run/spine-0.sock"
capacity = 2.5
[[node]]
id = "leaf-0"
layer = "leaf"
rack = "r0"
listen = "127.0.0.1:7200"
objects_max = 10000
bytes_max = "64MiB"
capacity = 1.0
rate_max = 0
admin = "127.0.0.1:7290"
[[node]]
id = "leaf-1"
layer = "leaf"
rack = "r1"
listen = "127.0.0.1:7201"

[[shim]]
id = "shim-0"
rack = "r0"
listen = "127.0.0.1:7100"
storage = "redis://USER:PASSWORD@127.0.0.1:6379"
[[shim]]
id = "shim-1"
rack = "r1"
listen = "127.0.0.1:7101"

[[router]]
id = "router-0"
listen = "127.0.0.1:6380"
protocol = "redis"
listen_unix = "/run/distcache.sock"
"#;

#[test]
fn the_documented_example_becomes_a_map() {
    let config = Config::parse(EXAMPLE).unwrap();
    assert_eq!(config.cluster.routing, Routing::OnPath);
    assert_eq!(config.cluster.lease_guard_ms, 10);
    assert_eq!(config.node(NodeId(1)).bytes_max.0, 64 << 20);
    assert_eq!(config.shim(ShimId(1)).storage, StorageConfig::Embedded);
    assert_eq!(config.member("leaf-0"), Some(Member::Node(NodeId(1))));
    assert_eq!(config.member("router-0"), Some(Member::Router(RouterId(0))));
    assert_eq!(config.member("nobody"), None);
    assert_eq!(config.router(RouterId(0)).listens().count(), 2);
    let ids: Vec<_> = config.member_ids().collect();
    assert_eq!(ids, ["controller", "shim-0", "shim-1", "spine-0", "leaf-0", "leaf-1", "router-0"]);

    let map = config.map_with(9, 1, |node| if node == NodeId(2) { 0 } else { 1000 });
    assert_eq!(map.epoch, 9);
    let [leaf, spine] = map.layers.as_slice() else { panic!("two layers") };
    assert_eq!((leaf.partition, spine.partition), (Partition::Rack, Partition::Hash));
    let leaves: Vec<_> =
        leaf.nodes.iter().map(|node| (node.id.0, node.rack, node.capacity, node.share)).collect();
    assert_eq!(leaves, [(1, Some(RackId(0)), 1000, 1000), (2, Some(RackId(1)), 1000, 0)]);
    assert_eq!((spine.nodes[0].id, spine.nodes[0].rack, spine.nodes[0].capacity), (NodeId(0), None, 2500));
    assert_eq!(map.shims[1].rack, RackId(1));
}

/// Replaces `old` in the example by `new` and expects the line `expected`.
fn check(old: &str, new: &str, expected: &str) {
    assert!(EXAMPLE.contains(old), "{old:?} is not in the example");
    let text = EXAMPLE.replacen(old, new, 1);
    let error = read(&text, "f.toml", Path::new(""), &[]).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(expected), "for {new:?}\nexpected: {expected}\n     got: {error}");
}

#[test]
fn what_a_file_says_cannot_move_the_cursor() {
    for text in
        ["[cuts\r\0\x1b[2J = 3\n", "[cluster]\n\"na\\u001b[2Jme\" = 3\n", "cluster = {\"\\u000d\" = 3}\n"]
    {
        let error = read(text, "f.toml", Path::new(""), &[]).unwrap_err().to_string();
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}

#[test]
fn bad_fields_are_named_with_line_section_and_remedy() {
    check(
        "lease_ms",
        "lease_mss",
        "f.toml:7: [cluster]: unknown key `lease_mss` (did you mean `lease_ms`?); allowed here: `name`, `secret`",
    );
    check(
        "[security]",
        "[secure]",
        "f.toml:9: [secure]: unknown section `secure` (did you mean `security`?); allowed here: `cluster`, `placement`",
    );
    check(
        "objects_max",
        "objects",
        "f.toml:34: [[node]]: unknown key `objects` (did you mean `objects_max`?); allowed here: `id`, `host`",
    );
    check(
        "lease_ms = 1000",
        "lease_ms = \"1s\"",
        "f.toml:7: [cluster]: lease_ms: \"1s\": write a whole number of milliseconds",
    );
    check("\"64MiB\"", "\"64 megs\"", "bytes_max: \"64 megs\" is not a size: write bytes (65536)");
    check("\"on-path\"", "\"fast\"", "routing: unknown value `fast`: write \"learned\" or \"on-path\"");
    check("\"rack\"", "\"row\"", "partition: unknown value `row`");
    check("\"127.0.0.1:7200\"", "\"localhost\"", "listen: \"localhost\" is not an address: write IP:PORT");
    check("name = \"spine\"\n", "", "[[layer]]: `name` is missing");
    check("[cluster]", "cluster]", "f.toml:2: top level:");
    check("ddeeff", "", "[cluster]: secret: it has 26 digits; the secret is 32 hexadecimal digits");
}

#[test]
fn what_this_release_lacks_is_refused_in_clear_words() {
    check(
        "\"memory\"",
        "\"consul://127.0.0.1:2379\"",
        "unknown store; write \"memory\", or \"etcd://HOST:PORT\"",
    );
    check("\"memory\"", "\"etcd://127.0.0.1\"", "\"127.0.0.1\" is not HOST:PORT");
    check("\"memory\"", "\"etcd://127.0.0.1:1,\"", "\"\" is not HOST:PORT");
    check("\"memory\"", "\"etcd://u:p@127.0.0.1:2379\"", "a password does not belong there: write USER@");
    check("\"memory\"", "\"etcd://u@127.0.0.1:2379\"", "write etcd://USER@HOST:PORT and store_password_file");
    check("\"memory\"", "\"etcds://10.0.0.1:2379\"", "there is no [tls.store]; add it with ca_file");
    check(
        "\"memory\"",
        "\"etcd://[::1]:1,10.0.0.1:2379\"",
        "10.0.0.1 is another machine and nothing is encrypted; write etcds:// and [tls.store]",
    );
    check(
        "\"memory\"",
        "\"etcd://[::1]:1,localhost:2379\"\nmember_lease_ms = 1500",
        "at least 2000: etcd has no",
    );
    check(
        "redis://USER:PASSWORD@127.0.0.1:6379",
        "memcached://127.0.0.1",
        "other shims have memcached:// storage",
    );
    let mixed = "storage = \"redis-cluster://...\": shim \"shim-1\" has another kind of storage";
    check("redis://USER", "redis-cluster://x", mixed);
}

#[test]
fn references_between_members_are_checked() {
    check("rack = \"r0\"", "rack = \"r9\"", "[[node]] \"leaf-0\": rack = \"r9\": no shim is in this rack");
    check("rack = \"r0\"\nlisten", "listen", "[[node]] \"leaf-0\": rack is missing");
    check(
        "layer = \"spine\"",
        "layer = \"top\"",
        "layer = \"top\": no [[layer]] has this name; there are: \"leaf\", \"spine\"",
    );
    check("layer = \"spine\"\n", "layer = \"spine\"\nrack = \"r0\"\n", "is partitioned by hash; remove rack");
    check("id = \"leaf-0\"", "id = \"shim-0\"", "id = \"shim-0\": a node has this id; ids are unique");
    check("id = \"leaf-0\"", "id = \"leaf 0\"", "id = \"leaf 0\": write 1 to 64 letters, digits");
    check(
        "rack = \"r1\"\nlisten = \"127.0.0.1:7201\"",
        "rack = \"r0\"\nlisten = \"127.0.0.1:7201\"",
        "for rack \"r1\"",
    );
    check("name = \"spine\"", "name = \"leaf\"", "two layers have this name");
    check("capacity = 2.5", "capacity = 0.0", "[[node]] \"spine-0\": capacity = 0: write 0.001 to 1000.0");
    check("lease_ms = 1000", "lease_ms = 5", "[cluster] lease_ms = 5: write 20 to 60000");
    check(
        "\"strict\"",
        "\"bounded\"\nbounded_staleness_ms_max = 999",
        "[cluster] bounded_staleness_ms_max = 999: write lease_ms (1000) to 60000, or lower lease_ms",
    );
    check("\"strict\"", "\"bounded\"\nbounded_age_ms_max = 0", "bounded_age_ms_max = 0: write 1 to 60000");
    let text = EXAMPLE.replace("\"strict\"", "\"bounded\"");
    let storage = "redis://USER:PASSWORD@127.0.0.1:6379";
    let text = text.replace(storage, "memcached://127.0.0.1:11211");
    let error = read(&text, "f.toml", Path::new(""), &[]).unwrap_err().to_string();
    assert!(error.contains("follows what Redis servers report"), "{error}");
    check("secret =", "#", "[cluster] secret is missing");
    check("secret =", "secret_file = \"/nonexistent\"\nsecret =", "give one of them");
    check(
        "[[controller]]",
        "[heat]\ncounters = 1000\n[[controller]]",
        "[heat] counters = 1000: write a power of two",
    );
    check("[[controller]]", "[limits]\nviews_max = 0\n[[controller]]", "[limits] views_max = 0");
    let input = "[limits]\nclient_input_bytes_max = \"1KiB\"\n[[controller]]";
    check("[[controller]]", input, "client_input_bytes_max = \"1KiB\": write \"64KiB\" to");
}

#[test]
fn addresses_are_unique_and_stay_on_loopback() {
    check("7201", "7100", "listen = \"127.0.0.1:7100\"");
    check(
        "7290",
        "7200",
        "[[node]] \"leaf-0\": admin = \"127.0.0.1:7200\": [[node]] \"leaf-0\" has it as listen",
    );
    check(
        "127.0.0.1:6380",
        "0.0.0.0:6380",
        "[[router]] \"router-0\": listen = \"0.0.0.0:6380\": reachable from",
    );
    check("127.0.0.1:7290", "10.0.0.1:7290", "admin = \"10.0.0.1:7290\": reachable from other machines");
    let open = EXAMPLE
        .replace("insecure_listen = false", "insecure_listen = true")
        .replace("127.0.0.1:6380", "0.0.0.0:1");
    assert!(Config::parse(&open).is_ok());
    let ephemeral = EXAMPLE.replace(":7200", ":0").replace(":7201", ":0");
    assert!(Config::parse(&ephemeral).is_ok());
    let shared = EXAMPLE.replace("capacity = 2.5", "admin = \"127.0.0.1:7290\"");
    assert!(Config::parse(&shared).is_ok());
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let environment =
        [("DISTCACHE_CLUSTER_LEASE_MS", "400"), ("DISTCACHE_CLUSTER_NAME", "env"), ("DISTCACHE_LOG", "x")];
    let mut overrides = Override::from_environment(environment.map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert_eq!(overrides.len(), 2);
    overrides.push(Override::from_flag("cluster.lease_ms=300").unwrap());
    overrides.push(Override::from_flag("limits.command_bytes_max=1MiB").unwrap());
    let config = read(EXAMPLE, "f.toml", Path::new(""), &overrides).unwrap();
    assert_eq!((config.cluster.lease_ms, config.cluster.name.as_str()), (300, "env"));
    assert_eq!(config.limits.command_bytes_max.0, 1 << 20);

    let unknown = Override::from_environment([("DISTCACHE_HEAT_TREND".to_owned(), "1".to_owned())]);
    let error = read(EXAMPLE, "f.toml", Path::new(""), &unknown).unwrap_err().to_string();
    assert!(
        error.starts_with("DISTCACHE_HEAT_TREND: unknown key `trend`; allowed here: `threshold`"),
        "{error}"
    );
    assert!(Override::from_flag("lease_ms=1").is_err());
    assert!(Override::from_flag("node.capacity=1").is_err());
}

#[test]
fn the_secret_may_live_in_a_file_beside_the_configuration() {
    let directory = std::env::temp_dir().join(format!("distcache-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("secret"), "ffeeddccbbaa99887766554433221100\n").unwrap();
    let text = EXAMPLE.replace("secret = \"00112233445566778899aabbccddeeff\"", "secret_file = \"secret\"");
    let path = directory.join("cluster.toml");
    std::fs::write(&path, &text).unwrap();
    let config = Config::load(&path);
    let missing = read(&text, "f.toml", Path::new("/nonexistent"), &[]);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(config.unwrap().secret().0[..2], [0xff, 0xee]);
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("secret_file = \"/nonexistent/secret\": there is no such file")
    );
}

#[test]
fn a_secret_that_is_left_out_is_made_once_beside_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("distcache.toml");
    let beside = directory.path().join("distcache.secret");
    let text =
        "[[shim]]\nstorage = \"redis://127.0.0.1:6391\"\n[[shim]]\nstorage = \"redis://127.0.0.1:6392\"\n";
    std::fs::write(&path, text).unwrap();
    let looked = Config::load_to_check(&path, &[]).unwrap();
    assert!(
        looked.assumed().join("\n").contains("secret_file = \"distcache.secret\" (made at the first start)")
    );
    let refused = Config::load(&path).unwrap_err().to_string();
    assert!(
        refused.contains("[cluster] secret is missing") && refused.contains("distcache.secret"),
        "{refused}"
    );
    assert!(!beside.exists(), "who does not start anything makes nothing");

    let first = Config::load_to_start(&path, &[]).unwrap();
    let second = Config::load_to_start(&path, &[]).unwrap();
    assert_eq!(first.secret(), second.secret());
    assert_eq!(Config::load(&path).unwrap().secret(), first.secret());
    assert_eq!(first.read_again().unwrap().secret(), first.secret());
    let (_, reloaded) = first.changed_to(&second).unwrap();
    assert!(reloaded.changed.is_empty() && reloaded.restart_needed.is_empty(), "{reloaded:?}");
    std::fs::remove_file(&beside).unwrap();
    let lost = first.read_again().unwrap_err().to_string();
    assert!(lost.contains("bring it back"), "{lost}");
    assert!(!beside.exists(), "reading again makes no other secret");

    let spread = "[[shim]]\nlisten = \"10.0.0.1:7100\"\n[security]\ninsecure_listen = true\n";
    std::fs::write(&path, spread).unwrap();
    let error = Config::load_to_start(&path, &[]).unwrap_err().to_string();
    assert!(error.contains("members are on several machines") && !beside.exists(), "{error}");
    std::fs::write(&path, "[[shim]]\nweight = 0\n[[node]]\nlayer = \"spin\"\n").unwrap();
    assert!(Config::load_to_start(&path, &[]).is_err() && !beside.exists(), "a wrong file makes no secret");
}

/// A secret that appeared between two looks at its file left the second with none.
#[test]
fn processes_that_start_at_once_read_one_secret() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("distcache.toml");
        std::fs::write(&path, "[[shim]]\n[[shim]]\n").unwrap();
        let start = std::sync::Barrier::new(8);
        let secrets: Vec<Secret> = std::thread::scope(|scope| {
            let load = || {
                start.wait();
                *Config::load_to_start(&path, &[]).unwrap().secret()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let kept = super::secret_file::read(&directory.path().join("distcache.secret")).unwrap().unwrap();
        assert!(secrets.iter().all(|secret| *secret == kept));
    }
}

#[test]
fn a_configuration_built_by_code_is_checked_alike() {
    use super::{LayerConfig, NodeConfig, RouterConfig, ShimConfig};
    let mut config = Config::new("built", Secret([7; 16]));
    assert!(config.validate().is_err());
    let address = || "127.0.0.1:0".parse().unwrap();
    config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("n", "spine", None, address()));
    config.shims.push(ShimConfig::new("s", "r", address(), StorageConfig::Embedded));
    config.routers.push(RouterConfig::new("x", address()));
    config.validate().unwrap();
}

#[test]
fn policies_are_read_and_their_mistakes_named() {
    let policies = r#"
[[policy]]
prefix = "session:"
cache = "never"
[[policy]]
prefix = 'bin\x00'
ttl_ms_max = 500
value_bytes_max = "1KiB"

[[layer]]
name = "leaf""#;
    let text = EXAMPLE.replacen("\n[[layer]]\nname = \"leaf\"", policies, 1);
    let config = read(&text, "f.toml", Path::new(""), &[]).unwrap();
    assert_eq!((config.policies.len(), config.policies[0].cache), (2, Caching::Never));
    assert_eq!((config.policies[1].cache, config.policies[1].ttl_ms_max), (Caching::Heat, Some(500)));
    assert_eq!(config.policies[1].prefix_bytes(), b"bin\0");

    let wrong =
        |tables: &str, expected: &str| check("\n[[layer]]", &format!("{tables}\n[[layer]]"), expected);
    wrong("[[policy]]\ncache = \"never\"", "`prefix` is missing");
    wrong("[[policy]]\nprefix = \"a\"\ncache = \"often\"", "unknown value `often`");
    wrong("[[policy]]\nprefix = \"a\"\n[[policy]]\nprefix = \"a\"", "there are two of it");
    wrong("[[policy]]\nprefix = \"a\"\nttl_ms_max = 0", "ttl_ms_max = 0: write 1 to");
    wrong("[[policy]]\nprefix = \"a\"\ncache = \"never\"\nttl_ms_max = 9", "leaves nothing for ttl_ms_max");
    let stale = |ms: &str| format!("[[policy]]\nprefix = \"a\"\nstale_if_error_ms = {ms}");
    wrong(&stale("30000"), "which mode = \"strict\" rules out; take it out, or write mode = \"bounded\"");
    let bounded = |ms: &str, expected: &str| {
        let text = EXAMPLE.replacen("mode = \"strict\"", "mode = \"bounded\"", 1);
        let text = text.replacen("\n[[layer]]", &format!("\n{}\n[[layer]]", stale(ms)), 1);
        let error = read(&text, "f.toml", Path::new(""), &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    bounded("999", "stale_if_error_ms = 999: write 1000 to 86400000: a copy may be as old as");
    bounded("86400001", "stale_if_error_ms = 86400001: write 1000 to 86400000");
    wrong(
        &(stale("5000") + "\ncache = \"never\""),
        "leaves nothing for ttl_ms_max, value_bytes_max and stale_if",
    );
    let many: String = (0..257).map(|n| format!("[[policy]]\nprefix = \"{n}\"\n")).collect();
    wrong(&many, "257 of them; at most 256");
}

#[test]
fn users_are_named_once_and_come_from_one_place() {
    let user = |name: &str| format!("[[user]]\nname = \"{name}\"\nrules = \"on\"\n");
    let before = |text: &str| format!("{text}[[controller]]");
    check("[[controller]]", &before(&user("two words")), "[[user]] name = \"two words\": write a name");
    check(
        "[[controller]]",
        &before(&(user("app") + &user("app"))),
        "[[user]] name = \"app\": two users have this name",
    );
    check("[[controller]]", &before("[[user]]\nname = \"app\"\n"), "`rules` is missing");
    check(
        "[[controller]]",
        &before("[[user]]\nname = \"app\"\nrules = \"on\"\npassword_file = \"/nonexistent\"\n"),
        "[[user]] \"app\": password_file = \"/nonexistent\": there is no such file",
    );
    check(
        "[security]",
        "[security]\nusers = \"ldap\"",
        "unknown value `ldap`: write \"config\" or \"storage\"",
    );
    let storage = "[security]\nusers = \"storage\"";
    check("[security]", storage, "the storage of [[shim]] \"shim-1\" has no users");
    let redis = EXAMPLE.replace("[security]", storage).replace("embedded:", "redis://127.0.0.1:1");
    let both = redis.replace("[[controller]]", &before(&user("app")));
    assert!(Config::parse(&both).unwrap_err().to_string().contains("would never count"));
}

/// The example with two more shims, listed in this order.
fn listed(ids: &[&str], storage: &str) -> Config {
    let (before, _) = EXAMPLE.split_once("[[shim]]").unwrap();
    let (_, routers) = EXAMPLE.split_once("[[router]]").unwrap();
    let shim = |(index, id): (usize, &&str)| {
        let rack = if *id == "shim-0" { "r0" } else { "r1" };
        format!(
            "[[shim]]\nid = \"{id}\"\nrack = \"{rack}\"\nlisten = \"127.0.0.1:{}\"\nstorage = \"{storage}{index}\"\n",
            7100 + index
        )
    };
    let shims: String = ids.iter().enumerate().map(shim).collect();
    let routers = match storage.starts_with("memcached") {
        true => routers.replace("protocol = \"redis\"", "protocol = \"memcached\""),
        false => routers.to_owned(),
    };
    read(&format!("{before}{shims}[[router]]{routers}"), "f", Path::new(""), &[]).unwrap()
}

#[test]
fn the_order_of_shims_in_the_file_decides_nothing_but_on_a_pool_of_memcached_servers() {
    let redis = "redis://127.0.0.1:637";
    let sorted = ["shim-0", "shim-9", "shim-10"];
    let (one, other) = (listed(&sorted, redis), listed(&["shim-10", "shim-9", "shim-0"], redis));
    for config in [&one, &other] {
        let ids: Vec<&str> = config.shims.iter().map(|shim| shim.id.as_str()).collect();
        assert_eq!(ids, sorted);
    }
    assert_eq!((one.agreement(), one.map()), (other.agreement(), other.map()));
    let fewer = listed(&sorted[..2], redis).agreement();
    assert!(one.agreement().difference(&fewer).is_some());
    let renamed = listed(&["shim-0", "shim-9", "shim-11"], redis).agreement();
    assert!(one.agreement().difference(&renamed).is_some());

    let memcached = "memcached://127.0.0.1:1121";
    let (one, other) = (listed(&sorted, memcached), listed(&["shim-10", "shim-9", "shim-0"], memcached));
    assert_eq!(other.shims[0].id, "shim-10", "as the clients of the pool have it");
    assert!(one.agreement().difference(&other.agreement()).is_some());
}
