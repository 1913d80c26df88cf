//! What INFO says about a storage server: who it is, whether it will do. Not what is done about it.

use wire::resp::Value;

use crate::storage::StorageTraits;

/// One storage state. Another value of either id means that what was known of its data is void.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Changes when the server is started.
    pub(super) run_id: String,
    /// Changes when another server's data takes the place of its own.
    pub(super) replication_id: String,
}

impl Identity {
    /// A short name of it, for names of users.
    pub(super) fn tag(&self) -> String {
        let last = |id: &str| id.get(id.len().saturating_sub(8)..).unwrap_or_default().to_owned();
        format!("{}{}", last(&self.run_id), last(&self.replication_id))
    }
}

/// The first release with ACL rules for channels and CLIENT KILL as fences need them.
const VERSION_MIN: (u32, u32) = (6, 2);
/// Fields of hashes may expire from here on.
const REDIS_FIELD_EXPIRY: (u32, u32) = (7, 4);
const VALKEY_FIELD_EXPIRY: (u32, u32) = (9, 0);

/// A line of INFO.
pub fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// What the server is able to do, from `INFO server`; the error says why it cannot be used.
pub fn traits(info: &str, cluster_mode: bool) -> Result<StorageTraits, String> {
    let redis = field(info, "redis_version").and_then(version);
    let valkey = field(info, "valkey_version").and_then(version);
    let found = field(info, "redis_version").unwrap_or("unknown");
    if valkey.is_none() && redis.is_none_or(|version| version < VERSION_MIN) {
        return Err(format!(
            "the server's version is {found}: DistCache needs Redis 6.2 or newer, or Valkey"
        ));
    }
    // Valkey has a name of its own for it.
    let mode = field(info, "redis_mode").or(field(info, "server_mode"));
    match (mode == Some("cluster"), cluster_mode) {
        (true, false) => {
            return Err("the server runs in cluster mode, which redis:// storage does not serve: write \
                        redis-cluster://HOST:PORT,HOST:PORT for all shims"
                .to_owned());
        }
        (false, true) => {
            return Err(
                "the server does not run in cluster mode, which redis-cluster:// storage is for: write \
                        redis://HOST:PORT, one per shim"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let hash_field_expiry = match valkey {
        Some(version) => version >= VALKEY_FIELD_EXPIRY,
        None => redis.is_some_and(|version| version >= REDIS_FIELD_EXPIRY),
    };
    Ok(StorageTraits { hash_field_expiry, tracks_reads: true, ..StorageTraits::default() })
}

/// What HELLO says of a server: less than INFO, and allowed to everybody.
#[derive(Debug, PartialEq, Eq)]
pub struct Greeting {
    server: String,
    pub version: String,
    mode: String,
    pub is_primary: bool,
}

impl Greeting {
    /// From its reply, a map that RESP2 writes as a flat array.
    pub fn read(hello: &Value) -> Option<Greeting> {
        let field = |name: &str| {
            let is_it = |value: &Value| value.bytes().is_some_and(|bytes| bytes == name.as_bytes());
            let found = match hello {
                Value::Map(pairs) => &pairs.iter().find(|(name, _)| is_it(name))?.1,
                flat => &flat.elements()?.chunks_exact(2).find(|pair| is_it(&pair[0]))?[1],
            };
            Some(String::from_utf8_lossy(found.bytes()?).into_owned())
        };
        Some(Greeting {
            server: field("server")?,
            version: field("version")?,
            mode: field("mode")?,
            is_primary: field("role")? == "master",
        })
    }

    /// The same as lines of INFO.
    pub fn info(&self) -> String {
        format!("{}_version:{}\r\nserver_mode:{}\r\n", self.server, self.version, self.mode)
    }
}

/// The server's clock in whole seconds, from the reply to TIME.
pub(super) fn time(reply: &Value) -> Option<u64> {
    std::str::from_utf8(reply.elements()?.first()?.bytes()?).ok()?.parse().ok()
}

/// The policy by which a server evicts keys, from its `INFO memory`; none if it has no limit, or refuses writes at it.
pub fn eviction(memory: &str) -> Option<&str> {
    let limited = field(memory, "maxmemory").is_some_and(|limit| limit != "0");
    field(memory, "maxmemory_policy").filter(|policy| limited && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::resp::Value;

    use super::{Greeting, eviction, traits};

    fn check(info: &str, expected: Result<bool, &str>) {
        check_mode(info, false, expected);
    }

    fn check_mode(info: &str, cluster_mode: bool, expected: Result<bool, &str>) {
        match (traits(info, cluster_mode), expected) {
            (Ok(traits), Ok(expiry)) => assert_eq!(traits.hash_field_expiry, expiry, "{info}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{info}: {error}"),
            (found, _) => panic!("{info}: {found:?}"),
        }
    }

    #[test]
    fn versions_decide() {
        check("redis_version:6.0.16\r\n", Err("6.0.16"));
        check("nonsense", Err("unknown"));
        check("# Server\r\nredis_version:6.2.0\r\nredis_mode:standalone\r\n", Ok(false));
        check("redis_version:7.0.15\r\n", Ok(false));
        check("redis_version:7.4.1\r\n", Ok(true));
        check("redis_version:8.0.0\r\n", Ok(true));
        check("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n", Ok(false));
        check("redis_version:7.2.4\r\nvalkey_version:9.0.0\r\n", Ok(true));
        check("redis_version:7.0.15\r\nredis_mode:cluster\r\n", Err("write redis-cluster://"));
        check_mode("redis_version:7.0.15\r\nredis_mode:cluster\r\n", true, Ok(false));
        check("redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nserver_mode:standalone\r\n", Ok(false));
        let valkey = "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nserver_mode:cluster\r\n";
        check(valkey, Err("write redis-cluster://"));
        check_mode(valkey, true, Ok(false));
        check_mode("redis_version:7.0.15\r\nredis_mode:standalone\r\n", true, Err("write redis://"));
    }

    #[test]
    fn a_greeting_says_as_much_of_a_server_as_is_needed() {
        let text = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        let greeting = |server, version, mode, role| {
            let pairs = [("server", server), ("version", version), ("mode", mode), ("role", role)];
            let map = Value::Map(pairs.map(|(name, value)| (text(name), text(value))).to_vec());
            let flat = Value::Array(pairs.into_iter().flat_map(|(a, b)| [text(a), text(b)]).collect());
            assert_eq!(Greeting::read(&map), Greeting::read(&flat));
            Greeting::read(&flat).expect("a greeting")
        };
        let redis = greeting("redis", "7.4.1", "standalone", "master");
        assert!(
            redis.is_primary && traits(&redis.info(), false).is_ok_and(|traits| traits.hash_field_expiry)
        );
        let valkey = greeting("valkey", "8.0.1", "cluster", "replica");
        assert!(
            !valkey.is_primary && traits(&valkey.info(), true).is_ok_and(|traits| !traits.hash_field_expiry)
        );
        assert!(traits(&valkey.info(), false).is_err(), "it is one of a Redis Cluster");
        assert!(traits(&greeting("redis", "6.0.16", "standalone", "master").info(), false).is_err());
        assert_eq!(Greeting::read(&Value::Error(Bytes::from_static(b"NOPERM no"))), None);
    }

    #[test]
    fn storage_evicts_only_if_it_has_a_limit_and_a_policy() {
        let memory = |limit: u64, policy: &str| {
            format!("# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_human:x\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(eviction(&memory(0, "allkeys-lru")), None);
        assert_eq!(eviction(&memory(1, "noeviction")), None);
        assert_eq!(eviction(&memory(1, "volatile-ttl")), Some("volatile-ttl"));
        assert_eq!(eviction(""), None);
    }
}
