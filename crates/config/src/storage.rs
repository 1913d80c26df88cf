//! Where a shim's data lives, as a URL. Not how it is reached.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use wire::resp::Command;

use super::load::ConfigError;
use crate::Address;

/// `embedded:`, `embedded:///PATH`, `memcached://HOST:PORT`, `redis://USER:PASSWORD@HOST:PORT` (`rediss://` with TLS),
/// `redis+unix://USER:PASSWORD@/PATH`, `redis-cluster://USER:PASSWORD@HOST:PORT,HOST:PORT` or
/// `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME` (`rediss-cluster://`, `rediss+sentinel://`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StorageConfig {
    /// In memory, gone when the shim ends.
    #[default]
    Embedded,
    /// In files of this folder, which one shim has alone.
    Durable(PathBuf),
    Memcached {
        address: Address,
        /// As the URL has them: ketama places keys by this name.
        host: String,
        port: u16,
    },
    Redis(Box<RedisStorage>),
}

/// Redis or Valkey, in any of the ways in which these are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStorage {
    pub servers: RedisServers,
    /// For the servers.
    pub login: Login,
    /// To servers and sentinels.
    pub tls: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisServers {
    One {
        address: Address,
        /// The host as the URL names it, for which the server's certificate must be; empty for a Unix socket.
        host: String,
    },
    Sentinels(SentinelGroup),
    /// Each shim has a range of the slots, on whichever servers they are. Some servers of the cluster: they tell of the
    /// others.
    Cluster(Vec<SocketAddr>),
}

/// Servers of which sentinels say which is the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelGroup {
    pub sentinels: Vec<SocketAddr>,
    /// Name of the group.
    pub name: String,
    /// For the sentinels.
    pub login: Login,
}

/// User and password. Without a user it is Redis' `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    pub user: Option<String>,
    pub password: Option<Password>,
}

impl Login {
    /// The command that a connection begins with; none where everybody may connect.
    pub fn command(&self) -> Option<Command> {
        let password = &self.password.as_ref()?.0;
        Some(match &self.user {
            Some(user) => Command::from_args(&["AUTH", user, password]),
            None => Command::from_args(&["AUTH", password]),
        })
    }

    fn lacks_password(&self) -> bool {
        self.user.is_some() && self.password.is_none()
    }
}

impl RedisStorage {
    /// One server to which everybody may connect.
    pub fn open(address: Address) -> RedisStorage {
        let servers = RedisServers::One { address, host: String::new() };
        RedisStorage { servers, login: Login::default(), tls: false }
    }
}

/// What a write to an embedded store on disk survives once it is acknowledged. Whatever it says, the end of the process takes
/// nothing away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the operating system, as by a power cut.
    #[default]
    Always,
    /// The same, if it is older than this.
    Interval(Duration),
    /// What the operating system has written by itself.
    Never,
}

impl<'de> Deserialize<'de> for Durability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Durability, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "always" => Ok(Durability::Always),
            "100ms" => Ok(Durability::Interval(Duration::from_millis(100))),
            "never" => Ok(Durability::Never),
            other => Err(de::Error::unknown_variant(other, &["always", "100ms", "never"])),
        }
    }
}

impl StorageConfig {
    pub fn is_memcached(&self) -> bool {
        matches!(self, StorageConfig::Memcached { .. })
    }

    pub fn is_redis_cluster(&self) -> bool {
        self.redis().is_some_and(|redis| matches!(redis.servers, RedisServers::Cluster(_)))
    }

    /// Where an embedded store has its files.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            StorageConfig::Durable(folder) => Some(folder),
            _ => None,
        }
    }

    /// The kind of storage that has users, passwords and TLS.
    pub fn redis(&self) -> Option<&RedisStorage> {
        match self {
            StorageConfig::Redis(redis) => Some(redis),
            _ => None,
        }
    }

    pub(super) fn wants_tls(&self) -> bool {
        self.redis().is_some_and(|redis| redis.tls)
    }

    /// Whether there is a user without a password.
    pub(super) fn lacks_password(&self) -> bool {
        self.redis().is_some_and(|redis| redis.login.lacks_password())
    }

    /// Reads the password from a file, where a person or a secrets store has put it without the rest of the URL.
    pub(super) fn take_password(&mut self, at: &str, path: &Path) -> Result<(), ConfigError> {
        let wrong =
            |what: &str| Err(ConfigError::new(format!("{at} = {:?}: {what}", path.display().to_string())));
        let StorageConfig::Redis(redis) = self else {
            return wrong("only Redis has a password; remove it");
        };
        if redis.login.password.is_some() {
            return wrong("the storage URL has a password, too; give one of them");
        }
        redis.login.password = Some(Password::read(at, path)?);
        Ok(())
    }
}

/// A password that never shows in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl Password {
    /// From a file of its own, where a line may end. `at` names the setting with the file's name.
    pub(super) fn read(at: &str, path: &Path) -> Result<Password, ConfigError> {
        let wrong = |what: &str| ConfigError::new(format!("{at} = {:?}: {what}", path.display().to_string()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&super::words::unreadable(&error)))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(wrong("it is empty")),
            text => Ok(Password(text.to_owned())),
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

const FORMS: &str = "embedded:, embedded:///PATH, memcached://HOST:PORT, redis://USER:PASSWORD@HOST:PORT (rediss:// with TLS), \
                     redis+unix://USER:PASSWORD@/PATH, redis-cluster://USER:PASSWORD@HOST:PORT,HOST:PORT \
                     (rediss-cluster:// with TLS) or redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME \
                     (rediss+sentinel:// with TLS)";
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const MEMCACHED_PORT: u16 = 11211;

impl FromStr for StorageConfig {
    type Err = String;

    /// Errors never repeat the URL, which may hold a password.
    fn from_str(url: &str) -> Result<StorageConfig, String> {
        if url == "embedded" || url == "embedded:" {
            return Ok(StorageConfig::Embedded);
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(format!("this is no storage URL: write {FORMS}"));
        };
        match scheme {
            "embedded" => embedded(rest),
            "redis" => redis_tcp(rest, false),
            "rediss" => redis_tcp(rest, true),
            "redis+unix" => redis_unix(rest),
            "memcached" => memcached(rest),
            "redis-cluster" => redis_cluster(rest, false),
            "rediss-cluster" => redis_cluster(rest, true),
            "redis+sentinel" => redis_sentinel(rest, false),
            "rediss+sentinel" => redis_sentinel(rest, true),
            "etcd" => Err(format!("{scheme}:// storage is not in this release: write {FORMS}")),
            _ => Err(format!("unknown storage scheme {scheme:?}: write {FORMS}")),
        }
    }
}

/// The part before the path, which can only be database 0.
fn without_database(place: &str) -> Result<&str, String> {
    match place.split_once('/') {
        None => Ok(place),
        Some((before, "" | "0")) => Ok(before),
        Some((_, path)) => {
            Err(format!("database {path:?}: DistCache serves database 0 only; leave the path away"))
        }
    }
}

fn redis(servers: RedisServers, login: Login, tls: bool) -> StorageConfig {
    StorageConfig::Redis(Box::new(RedisStorage { servers, login, tls }))
}

/// No options, so that a folder may have any name.
fn embedded(path: &str) -> Result<StorageConfig, String> {
    let path = Path::new(path);
    if !path.is_absolute() || path.parent().is_none() {
        return Err("the folder must be given from the root on: write embedded:///PATH".to_owned());
    }
    Ok(StorageConfig::Durable(path.components().collect()))
}

fn redis_cluster(rest: &str, tls: bool) -> Result<StorageConfig, String> {
    let (login, place) = credentials(rest)?;
    let seeds = without_database(place)?.split(',').map(|seed| resolve(seed, REDIS_PORT));
    Ok(redis(RedisServers::Cluster(seeds.collect::<Result<_, _>>()?), login, tls))
}

/// The name may not hold `?`, nor a password an unescaped one.
fn redis_sentinel(rest: &str, tls: bool) -> Result<StorageConfig, String> {
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, place) = credentials(rest)?;
    let (hosts, name) = place.split_once('/').unwrap_or((place, ""));
    if name.is_empty() || name.contains('/') {
        return Err("the name by which the sentinels know the primary is missing: write \
                    redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME"
            .to_owned());
    }
    let sentinels = hosts.split(',').map(|host| resolve(host, SENTINEL_PORT)).collect::<Result<_, _>>()?;
    let mut group = SentinelGroup { sentinels, name: unescape(name)?, login: Login::default() };
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sentinel_user", user)) => group.login.user = Some(unescape(user)?),
            Some(("sentinel_password", password)) => {
                group.login.password = Some(Password(unescape(password)?));
            }
            // Its value may be a password.
            _ => {
                let key = option.split('=').next().unwrap_or_default();
                return Err(format!("unknown option {key:?}: there are sentinel_user and sentinel_password"));
            }
        }
    }
    if group.login.lacks_password() {
        return Err("sentinel_user without sentinel_password: write both".to_owned());
    }
    Ok(redis(RedisServers::Sentinels(group), login, tls))
}

fn redis_tcp(rest: &str, tls: bool) -> Result<StorageConfig, String> {
    let (login, place) = credentials(rest)?;
    let host_port = without_database(place)?;
    let address = Address::Tcp(resolve(host_port, REDIS_PORT)?);
    Ok(redis(RedisServers::One { address, host: host_of(host_port).to_owned() }, login, tls))
}

fn memcached(rest: &str) -> Result<StorageConfig, String> {
    let host_port = rest.strip_suffix('/').unwrap_or(rest);
    if host_port.contains(['/', '@', '?']) {
        return Err("memcached has no users, paths or options here: write memcached://HOST:PORT".to_owned());
    }
    let address = resolve(host_port, MEMCACHED_PORT)?;
    let host = host_of(host_port).to_owned();
    Ok(StorageConfig::Memcached { address: Address::Tcp(address), host, port: address.port() })
}

/// Without port and brackets.
fn host_of(host_port: &str) -> &str {
    let host = match host_port.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => host_port,
    };
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn resolve(host_port: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = host_port.parse() {
        return Ok(address);
    }
    let port = match host_port.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => {
            port.parse().map_err(|_| format!("{port:?} is not a port: write 1 to 65535"))?
        }
        _ => default_port,
    };
    let host = host_of(host_port);
    if host.is_empty() {
        return Err(format!("the host is missing: write {FORMS}"));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| {
        format!("cannot resolve the host {host:?} ({error}); check the name or write its IP")
    })?;
    // Servers on this machine mostly listen on 127.0.0.1 alone, while `localhost` often names ::1 first.
    found
        .min_by_key(SocketAddr::is_ipv6)
        .ok_or_else(|| format!("the host {host:?} has no address; check the name or write its IP"))
}

fn redis_unix(rest: &str) -> Result<StorageConfig, String> {
    // A path may hold an `@`, so one that starts at once has no login before it.
    let (login, path) = if rest.starts_with('/') { (Login::default(), rest) } else { credentials(rest)? };
    if !path.starts_with('/') || path.len() < 2 {
        return Err("the socket's path must start with a slash: write redis+unix:///PATH".to_owned());
    }
    let address = Address::Unix(PathBuf::from(path));
    Ok(redis(RedisServers::One { address, host: String::new() }, login, false))
}

/// Splits `USER:PASSWORD@` off; the last `@` counts, so that a password may hold one unescaped.
fn credentials(rest: &str) -> Result<(Login, &str), String> {
    let Some((login, place)) = rest.rsplit_once('@') else { return Ok((Login::default(), rest)) };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let user = Some(unescape(user)?).filter(|user| !user.is_empty());
    let password = Some(unescape(password)?).filter(|password| !password.is_empty());
    Ok((Login { user, password: password.map(Password) }, place))
}

/// Undoes `%XX`.
fn unescape(text: &str) -> Result<String, String> {
    let wrong = || "a % in user or password must be followed by two hexadecimal digits (%25 is %)".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| "user and password must be UTF-8".to_owned())
}

impl<'de> Deserialize<'de> for StorageConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StorageConfig, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{Login, Password, RedisServers, RedisStorage, SentinelGroup, StorageConfig};

    fn redis(url: &str) -> RedisStorage {
        match url.parse::<StorageConfig>() {
            Ok(StorageConfig::Redis(redis)) => *redis,
            other => panic!("{url}: {other:?}"),
        }
    }

    fn login(user: Option<&str>, password: Option<&str>) -> Login {
        let password = password.map(|password| Password(password.to_owned()));
        Login { user: user.map(str::to_owned), password }
    }

    fn check(url: &str, user: Option<&str>, password: Option<&str>, place: (&str, &str)) {
        let (address, host) = (place.0.parse().unwrap(), place.1.to_owned());
        let servers = RedisServers::One { address, host };
        let tls = url.starts_with("rediss:");
        assert_eq!(redis(url), RedisStorage { servers, login: login(user, password), tls }, "{url}");
    }

    #[test]
    fn storage_urls_are_read() {
        assert_eq!("embedded:".parse(), Ok(StorageConfig::Embedded));
        assert_eq!("embedded:///var//lib/x/".parse(), Ok(StorageConfig::Durable("/var/lib/x".into())));
        check("redis://127.0.0.1:6390", None, None, ("127.0.0.1:6390", "127.0.0.1"));
        check("redis://127.0.0.1/0", None, None, ("127.0.0.1:6379", "127.0.0.1"));
        check("redis://[::1]", None, None, ("[::1]:6379", "::1"));
        check("redis://cache:p%40s%3As@w@[::1]:1", Some("cache"), Some("p@s:s@w"), ("[::1]:1", "::1"));
        check("rediss://localhost:7", None, None, ("127.0.0.1:7", "localhost"));
        check("rediss://127.0.0.1", None, None, ("127.0.0.1:6379", "127.0.0.1"));
        check("redis://:secret@127.0.0.1:1", None, Some("secret"), ("127.0.0.1:1", "127.0.0.1"));
        check("redis+unix:///run/r@1.sock", None, None, ("unix:///run/r@1.sock", ""));
        check("redis+unix:///run/r.sock", None, None, ("unix:///run/r.sock", ""));
        check("redis+unix://u:p@/run/r.sock", Some("u"), Some("p"), ("unix:///run/r.sock", ""));
    }

    #[test]
    fn a_cluster_is_known_by_some_of_its_servers() {
        let url = "redis-cluster://cache:p%40s@127.0.0.1:7001,[::1]:7002,127.0.0.1/0";
        let seeds = ["127.0.0.1:7001", "[::1]:7002", "127.0.0.1:6379"].map(|seed| seed.parse().unwrap());
        let servers = RedisServers::Cluster(seeds.to_vec());
        let expected = RedisStorage { servers, login: login(Some("cache"), Some("p@s")), tls: false };
        assert_eq!(redis(url), expected);
        assert!(redis("rediss-cluster://127.0.0.1:7001").tls);
    }

    #[test]
    fn sentinels_name_a_primary() {
        let found = redis(
            "redis+sentinel://u:p%3F@127.0.0.1:1,127.0.0.1/main?sentinel_password=s%26&sentinel_user=v",
        );
        let group = SentinelGroup {
            sentinels: ["127.0.0.1:1", "127.0.0.1:26379"].map(|at| at.parse().unwrap()).to_vec(),
            name: "main".to_owned(),
            login: login(Some("v"), Some("s&")),
        };
        let servers = RedisServers::Sentinels(group);
        assert_eq!(found, RedisStorage { servers, login: login(Some("u"), Some("p?")), tls: false });
        assert!(redis("rediss+sentinel://127.0.0.1/main").tls);
    }

    #[test]
    fn wrong_urls_say_what_is_wrong_and_keep_the_password() {
        let bad = [
            ("localhost", "no storage URL"),
            ("embedded://relative", "from the root on"),
            ("embedded:///", "from the root on"),
            ("http://127.0.0.1", "unknown storage scheme \"http\""),
            ("memcached://user@127.0.0.1", "no users, paths or options"),
            ("memcached://", "the host is missing"),
            ("redis+sentinel://u:hunter2@127.0.0.1", "name by which the sentinels"),
            ("redis+sentinel://127.0.0.1/m?password=hunter2", "unknown option \"password\""),
            ("redis+sentinel://127.0.0.1/m?sentinel_user=u", "without sentinel_password"),
            ("redis-cluster://u:hunter2@127.0.0.1,", "host is missing"),
            ("redis-cluster://u:hunter2@127.0.0.1:1,127.0.0.1:2/1", "database 0 only"),
            ("redis://u:hunter2@127.0.0.1:x", "\"x\" is not a port"),
            ("redis://u:hunter2@127.0.0.1:1/3", "database 0 only"),
            ("redis://u:hunter2%4@127.0.0.1:1", "hexadecimal"),
            ("redis://:hunter2@:1", "host is missing"),
            ("redis+unix://relative", "must start with a slash"),
        ];
        for (url, reason) in bad {
            let error = url.parse::<StorageConfig>().unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let url = "redis://u:hunter2@127.0.0.1:1".parse::<StorageConfig>().unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}
