//! `[placement]`: who has laid out the keys on the storage servers, and by which rule. Not where a key goes.

use std::fmt;

use protocol::placement::slot;
use serde::{Deserialize, Deserializer, de};
use wire::{Distribution, HashTag, PoolHash, PoolServer, StoragePool, WideHash};

use super::load::ConfigError;
use super::{Config, RedisServers, ShimConfig, StorageConfig};
use crate::Address;

/// A server on this port has no port in its name.
const DEFAULT_PORT: u16 = 11211;
/// twemproxy cuts what it hashes, name and number, at 85.
const NAME_BYTES_MAX: usize = 75;

/// An enumeration whose values are words of the file.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$what])* $variant,)* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// As the file has it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                match String::deserialize(deserializer)?.as_str() {
                    $($word => Ok($name::$variant),)*
                    "random" => Err(de::Error::custom(RANDOM)),
                    other => Err(de::Error::unknown_variant(other, &[$($word),*])),
                }
            }
        }
    };
}

const RANDOM: &str = "\"random\": who places keys at random finds none of them again, and neither would DistCache: load the data into \
                      empty servers through a router, with another distribution or none";

words! {
    /// Who has laid out the keys.
    DistributionName {
        /// DistCache itself.
        Ring "ring",
        Ketama "ketama",
        Modula "modula",
        Slots "slots",
        Jump "jump",
        Jedis "jedis",
        Jedis2 "jedis-2",
        Rendezvous "rendezvous",
        Libmemcached "libmemcached",
    }
}

words! {
    HashName {
        OneAtATime "one_at_a_time",
        Md5 "md5",
        Crc16 "crc16",
        Crc32 "crc32",
        Crc32a "crc32a",
        Fnv1_64 "fnv1_64",
        Fnv1a64 "fnv1a_64",
        Fnv1_32 "fnv1_32",
        Fnv1a32 "fnv1a_32",
        Hsieh "hsieh",
        Murmur "murmur",
        Jenkins "jenkins",
        Xxh64 "xxh64",
        Murmur64a "murmur64a",
    }
}

impl HashName {
    /// One of twemproxy's.
    pub fn pool_hash(self) -> Option<PoolHash> {
        Some(match self {
            HashName::OneAtATime => PoolHash::OneAtATime,
            HashName::Md5 => PoolHash::Md5,
            HashName::Crc16 => PoolHash::Crc16,
            HashName::Crc32 => PoolHash::Crc32,
            HashName::Crc32a => PoolHash::Crc32a,
            HashName::Fnv1_64 => PoolHash::Fnv1_64,
            HashName::Fnv1a64 => PoolHash::Fnv1a64,
            HashName::Fnv1_32 => PoolHash::Fnv1_32,
            HashName::Fnv1a32 => PoolHash::Fnv1a32,
            HashName::Hsieh => PoolHash::Hsieh,
            HashName::Murmur => PoolHash::Murmur,
            HashName::Jenkins => PoolHash::Jenkins,
            HashName::Xxh64 | HashName::Murmur64a => return None,
        })
    }

    /// One of 64 bits.
    pub fn wide_hash(self) -> Option<WideHash> {
        match self {
            HashName::Xxh64 => Some(WideHash::Xxh64),
            HashName::Murmur64a => Some(WideHash::Murmur64a),
            _ => None,
        }
    }
}

impl DistributionName {
    /// With the hash that it has unless the file says another: twemproxy's own default, and Go's usual one.
    fn default_hash(self) -> Option<HashName> {
        match self {
            DistributionName::Ketama | DistributionName::Modula => Some(HashName::Fnv1a64),
            DistributionName::Jump => Some(HashName::Xxh64),
            _ => None,
        }
    }

    pub fn takes_hash(self) -> bool {
        self.default_hash().is_some()
    }

    /// Whether keys may be hashed so.
    pub fn takes(self, hash: HashName) -> bool {
        match self.default_hash() {
            None => false,
            Some(HashName::Xxh64) => hash.wide_hash().is_some(),
            Some(_) => hash.pool_hash().is_some(),
        }
    }

    /// Whether servers of more weight have more keys.
    fn has_weights(self) -> bool {
        use DistributionName::{Jedis, Jedis2, Ketama, Modula};
        matches!(self, Ketama | Modula | Jedis | Jedis2)
    }

    /// Whether names of servers place keys.
    fn has_names(self) -> bool {
        !matches!(self, DistributionName::Ring | DistributionName::Slots | DistributionName::Jump)
    }

    /// Whether a server that has no name has its address for one.
    fn names_by_address(self) -> bool {
        use DistributionName::{Ketama, Libmemcached, Modula};
        matches!(self, Ketama | Libmemcached | Modula)
    }

    fn default_tag(self) -> HashTag {
        match self {
            DistributionName::Ring | DistributionName::Slots | DistributionName::Rendezvous => {
                HashTag::Between(b'{', b'}')
            }
            _ => HashTag::Whole,
        }
    }
}

/// Slots of a server: first and last of each range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRanges(pub Vec<(u16, u16)>);

impl<'de> Deserialize<'de> for SlotRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SlotRanges, D::Error> {
        let text = String::deserialize(deserializer)?;
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse().ok().filter(|slot| *slot < slot::SLOTS);
            number(first).zip(number(last)).filter(|(first, last)| first <= last)
        };
        let ranges: Option<Vec<(u16, u16)>> = text.split(',').map(range).collect();
        let wrong =
            || de::Error::custom(format!("{text:?}: write ranges of 0 to 16383, as in \"0-5460,12000\""));
        ranges.map(SlotRanges).ok_or_else(wrong)
    }
}

impl fmt::Display for SlotRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges: Vec<String> = self.0.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        f.write_str(&ranges.join(","))
    }
}

/// `[placement]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementConfig {
    /// If it is not given: `libmemcached` before memcached, else `ring`.
    pub distribution: Option<DistributionName>,
    pub hash: Option<HashName>,
    /// Two characters, or none.
    pub hash_tag: Option<String>,
}

impl PlacementConfig {
    fn tag(&self, name: DistributionName) -> HashTag {
        match self.hash_tag.as_deref().map(str::as_bytes) {
            Some([open, close]) => HashTag::Between(*open, *close),
            Some(_) => HashTag::Whole,
            None => name.default_tag(),
        }
    }

    /// The table that says it.
    pub fn toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let distribution = self.distribution.map(|name| format!("distribution = {}", quoted(name.word())));
        let hash = self.hash.map(|name| format!("hash = {}", quoted(name.word())));
        let hash_tag = self.hash_tag.as_deref().map(|tag| format!("hash_tag = {}", quoted(tag)));
        let lines: Vec<String> = distribution.into_iter().chain(hash).chain(hash_tag).collect();
        lines.join(", ")
    }
}

impl Config {
    pub(super) fn distribution(&self) -> DistributionName {
        match self.placement.distribution {
            Some(name) => name,
            None if self.has_memcached_storage() => DistributionName::Libmemcached,
            None => DistributionName::Ring,
        }
    }

    /// The servers as other software has laid keys out on them; none where DistCache or Redis Cluster has done it.
    pub(super) fn pool(&self) -> Option<StoragePool> {
        let name = self.distribution();
        let hash = self.placement.hash.or(name.default_hash());
        let (narrow, wide) = (hash.and_then(HashName::pool_hash), hash.and_then(HashName::wide_hash));
        let distribution = match name {
            DistributionName::Ring => return None,
            DistributionName::Ketama => Distribution::Ketama(narrow?),
            DistributionName::Modula => Distribution::Modula(narrow?),
            DistributionName::Slots => Distribution::Slots,
            DistributionName::Jump => Distribution::Jump(wide?),
            DistributionName::Jedis => Distribution::Jedis,
            DistributionName::Jedis2 => Distribution::Jedis2,
            DistributionName::Rendezvous => Distribution::Rendezvous,
            DistributionName::Libmemcached => Distribution::Libmemcached,
        };
        let server = |shim: &ShimConfig| PoolServer {
            name: name_of(shim, name),
            weight: shim.weight,
            slots: shim.slots.clone().unwrap_or_default().0,
        };
        let servers = self.shims.iter().map(server).collect();
        Some(StoragePool { distribution, hash_tag: self.placement.tag(name), servers })
    }

    /// How keys are divided among the storage servers, in words without blanks.
    pub fn placement_word(&self) -> String {
        let Some(pool) = self.pool() else {
            let is_cluster = self.shims.iter().any(|shim| shim.storage.is_redis_cluster());
            return if is_cluster { "redis-cluster" } else { "ring" }.to_owned();
        };
        let name = self.distribution();
        let hash = self.placement.hash.or(name.default_hash()).map(HashName::word);
        let tag = match pool.hash_tag {
            HashTag::Between(open, close) => Some(format!("{}{}", char::from(open), char::from(close))),
            HashTag::Whole => None,
        };
        let parts = [Some(name.word().to_owned()), hash.map(str::to_owned), tag];
        parts.into_iter().flatten().collect::<Vec<_>>().join(":")
    }

    /// What tells a pool's servers apart, by `ShimId`, and whether their order makes no difference.
    pub(super) fn pool_names(&self, pool: &StoragePool) -> (Vec<String>, bool) {
        let has_weights = self.distribution().has_weights();
        let name = |(server, shim): (&PoolServer, &ShimConfig)| {
            let mut name = server.name.as_ref().unwrap_or(&shim.id).clone();
            if has_weights {
                name.push_str(&format!("*{}", server.weight));
            }
            if !server.slots.is_empty() {
                name.push_str(&format!(":{}", SlotRanges(server.slots.clone())));
            }
            name
        };
        let named = pool.servers.iter().all(|server| server.name.is_some());
        (pool.servers.iter().zip(&self.shims).map(name).collect(), named)
    }

    /// The same cluster, if its keys had been laid out so; the shims stand in the order of the file. None where the settings do not go
    /// together.
    pub fn laid_out(&self, placement: PlacementConfig) -> Option<Config> {
        let mut config = Config { placement, ..self.clone() };
        let listed = self.table.get("shim").and_then(toml::Value::as_array);
        let ids: Vec<&str> =
            listed.into_iter().flatten().filter_map(|shim| shim.get("id")?.as_str()).collect();
        config.shims.sort_by_key(|shim| ids.iter().position(|id| *id == shim.id));
        config.number_shims();
        check(&config).ok().map(|()| config)
    }

    /// Whether other software decides where keys lie on the storage servers.
    pub fn is_laid_out_by_others(&self) -> bool {
        self.pool().is_some()
    }

    /// Whether hash tags are what they are if the file says nothing of them.
    pub fn has_default_tag(&self) -> bool {
        let name = self.distribution();
        self.placement.tag(name) == name.default_tag()
    }
}

/// What the distribution hashes for a server.
fn name_of(shim: &ShimConfig, distribution: DistributionName) -> Option<String> {
    match (&shim.server_name, &shim.storage) {
        (Some(name), _) => Some(name.clone()),
        _ if !distribution.names_by_address() => None,
        (_, StorageConfig::Memcached { host, port, .. }) => Some(host_and_port(host, *port)),
        (_, StorageConfig::Redis(redis)) => match &redis.servers {
            RedisServers::One { address: Address::Tcp(address), host } => {
                Some(host_and_port(host, address.port()))
            }
            RedisServers::One { address: Address::Unix(path), .. } => Some(path.display().to_string()),
            RedisServers::Sentinels(_) | RedisServers::Cluster(_) => None,
        },
        _ => None,
    }
}

fn host_and_port(host: &str, port: u16) -> String {
    match port {
        DEFAULT_PORT => host.to_owned(),
        port => format!("{host}:{port}"),
    }
}

/// Whether the settings go together.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let name = config.distribution();
    check_table(config, name)?;
    check_members(config, name)?;
    let Some(pool) = config.pool() else { return Ok(()) };
    if !slot::are_dealt(pool.servers.iter().map(|server| &server.slots)) {
        return wrong(
            "[[shim]] slots: they are not 0 to 16383, each once; write them for every shim, or for none and each has an equal \
             range"
                .to_owned(),
        );
    }
    let mut names: Vec<&String> = pool.servers.iter().filter_map(|server| server.name.as_ref()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => wrong(format!(
            "[[shim]] server_name: two servers are called {:?}, and each name has its own keys; give them the names that the other \
             software has",
            pair[0]
        )),
        None => Ok(()),
    }
}

fn check_table(config: &Config, name: DistributionName) -> Result<(), ConfigError> {
    let PlacementConfig { distribution, hash, hash_tag } = &config.placement;
    let given = distribution.is_some() || hash.is_some() || hash_tag.is_some();
    if given && config.shims.iter().any(|shim| shim.storage.is_redis_cluster()) {
        return wrong(
            "[placement]: a Redis Cluster divides its keys by itself; remove the table, or name its servers one by one as redis:// \
             if they are no cluster any more"
                .to_owned(),
        );
    }
    let word = name.word();
    if let Some(hash) = hash.filter(|hash| !name.takes(*hash)) {
        let words: Vec<&str> =
            HashName::ALL.iter().filter(|hash| name.takes(**hash)).map(|hash| hash.word()).collect();
        let remedy = match words.is_empty() {
            true => "takes none; remove it".to_owned(),
            false => format!("takes one of {}", words.join(", ")),
        };
        let hash = hash.word();
        return wrong(format!("[placement] hash = {hash:?}: distribution = {word:?} {remedy}"));
    }
    match hash_tag.as_deref().map(str::as_bytes) {
        Some(_) if name == DistributionName::Ring => wrong(
            "[placement] hash_tag: distribution = \"ring\" has that of Redis Cluster, \"{}\"; remove it".to_owned(),
        ),
        None | Some([]) => Ok(()),
        Some([open, close]) if open.is_ascii_graphic() && close.is_ascii_graphic() => Ok(()),
        Some(_) => wrong(
            "[placement] hash_tag: write the two characters between which hash tags stand, as in \"{}\", or \"\" for none"
                .to_owned(),
        ),
    }
}

fn check_members(config: &Config, name: DistributionName) -> Result<(), ConfigError> {
    let word = name.word();
    for shim in &config.shims {
        let at = format!("[[shim]] {:?}:", shim.id);
        if shim.weight != 1 && !name.has_weights() {
            return wrong(format!(
                "{at} weight = {}: does not count with [placement] distribution = {word:?}, but with \"ketama\", \"modula\", \
                 \"jedis\" and \"jedis-2\"; write one of these, or remove the weight",
                shim.weight
            ));
        }
        if shim.slots.is_some() && name != DistributionName::Slots {
            return wrong(format!(
                "{at} slots: there are some with [placement] distribution = \"slots\" only; write that, or remove them"
            ));
        }
        if shim.server_name.is_some() && !name.has_names() {
            return wrong(format!(
                "{at} server_name: no names place keys with [placement] distribution = {word:?}; remove it"
            ));
        }
        let needs_name = name.names_by_address() || name == DistributionName::Rendezvous;
        match name_of(shim, name) {
            None if needs_name => {
                return wrong(format!(
                    "{at} server_name is missing: [placement] distribution = {word:?} hashes what the other software calls the \
                     server"
                ));
            }
            Some(text) if text.is_empty() || text.len() > NAME_BYTES_MAX => {
                return wrong(format!("{at} server_name = {text:?}: write 1 to {NAME_BYTES_MAX} bytes"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn wrong<T>(what: String) -> Result<T, ConfigError> {
    Err(ConfigError::new(what))
}

#[cfg(test)]
mod tests {
    use wire::{Distribution, HashTag, PoolHash, Sharding, ShimId};

    use super::*;

    /// Three servers, each with what `shim` says of its number, behind a `[placement]`.
    fn read(placement: &str, shim: impl Fn(u16) -> String) -> Result<Config, String> {
        let mut text = format!("[cluster]\nsecret = \"{}\"\n[placement]\n{placement}\n", "01".repeat(16));
        for number in [10, 9, 0] {
            text += &format!("[[shim]]\nid = \"s{number}\"\n{}\n", shim(number));
        }
        Config::parse(&text).map_err(|error| error.to_string())
    }

    fn redis(number: u16) -> String {
        format!("storage = \"redis://127.0.0.1:{}\"", 11_202 + number)
    }

    fn pool(config: &Config) -> StoragePool {
        let Sharding::Pool(pool) = config.map().sharding else { panic!("{:?}", config.placement) };
        pool
    }

    #[test]
    fn servers_stand_as_the_other_software_lists_them() {
        let config = read("distribution = \"ketama\"\nhash_tag = \"[]\"", redis).unwrap();
        let pool = pool(&config);
        assert_eq!(pool.distribution, Distribution::Ketama(PoolHash::Fnv1a64), "twemproxy's default");
        assert_eq!(pool.hash_tag, HashTag::Between(b'[', b']'));
        let names: Vec<Option<&str>> = pool.servers.iter().map(|server| server.name.as_deref()).collect();
        assert_eq!(names, [Some("127.0.0.1:11212"), Some("127.0.0.1"), Some("127.0.0.1:11202")]);
        assert_eq!(config.shims[0].id, "s10");
        assert_eq!(config.placement_word(), "ketama:fnv1a_64:[]");
        let part = config.part(ShimId(0));
        assert_eq!((part.id.as_str(), part.shim.as_str()), ("ketama:fnv1a_64:[]", "127.0.0.1:11212*1"));
        assert_eq!(part.shims, ["127.0.0.1*1", "127.0.0.1:11202*1", "127.0.0.1:11212*1"], "in no order");

        let slots = |number| {
            let slots = if number == 9 {
                "100-16383"
            } else if number == 0 {
                "0-49"
            } else {
                "50-98,99"
            };
            format!("{}\nslots = {slots:?}", redis(number))
        };
        let config = read("distribution = \"slots\"", slots).unwrap();
        assert_eq!(config.part(ShimId(0)).shims, ["s10:50-98,99-99", "s9:100-16383", "s0:0-49"], "in order");
        let named = |number| format!("{}\nserver_name = \"n{number}\"\nweight = 2", redis(number));
        let config = read("distribution = \"jedis\"", named).unwrap();
        assert_eq!(self::pool(&config).servers[1].name.as_deref(), Some("n9"));
        assert!(
            read("distribution = \"jedis\"", redis).unwrap().part(ShimId(0)).shims[0].starts_with("s10*")
        );
        let memcached = |number| redis(number).replace("redis", "memcached");
        let config = read("", memcached).unwrap();
        assert_eq!(self::pool(&config).distribution, Distribution::Libmemcached);
        let config = read("distribution = \"ring\"", redis).unwrap();
        assert_eq!((config.map().sharding, config.shims[0].id.as_str()), (Sharding::Ring, "s0"));
    }

    #[test]
    fn every_difference_is_one_to_other_members() {
        let named = |number| format!("{}\nserver_name = \"n{number}\"", redis(number));
        let agreements = [
            read("", redis),
            read("distribution = \"ketama\"", redis),
            read("distribution = \"ketama\"", named),
            read("distribution = \"ketama\"\nhash = \"md5\"", redis),
            read("distribution = \"ketama\"\nhash_tag = \"{}\"", redis),
            read("distribution = \"modula\"", redis),
            read("distribution = \"slots\"", redis),
            read("distribution = \"slots\"\nhash_tag = \"\"", redis),
            read("distribution = \"jump\"", redis),
            read("distribution = \"jump\"\nhash = \"murmur64a\"", redis),
        ]
        .map(|config| config.unwrap().agreement());
        for (index, one) in agreements.iter().enumerate() {
            for (other, two) in agreements.iter().enumerate() {
                assert_eq!(one.difference(two).is_some(), index != other, "{index} {other}");
            }
        }
    }

    #[test]
    fn a_reload_moves_no_key() {
        let before = read("distribution = \"ketama\"", redis).unwrap();
        let after = read("distribution = \"modula\"\nhash = \"md5\"\nhash_tag = \"{}\"", |number| {
            format!("{}\nweight = 3", redis(number))
        });
        let (acted, reloaded) = before.changed_to(&after.unwrap()).unwrap();
        assert_eq!((acted.map(), reloaded.changed.len()), (before.map(), 0));
        let told = reloaded.restart_needed.join(" ");
        for name in ["[placement] distribution", "[placement] hash", "[placement] hash_tag", "weight"] {
            assert!(told.contains(name), "{name}: {told}");
        }
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        let check = |placement: &str, shim: &str, expected: &str| {
            let error = read(placement, |number| format!("{}\n{shim}", redis(number))).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(
            "distribution = \"random\"",
            "",
            "\"random\": who places keys at random finds none of them again",
        );
        check("distribution = \"ketma\"", "", "unknown value `ketma`");
        check("hash = \"md5\"", "", "hash = \"md5\": distribution = \"ring\" takes none; remove it");
        let fitting = "hash = \"md5\": distribution = \"jump\" takes one of xxh64, murmur64a";
        check("distribution = \"jump\"\nhash = \"md5\"", "", fitting);
        check("hash_tag = \"{}\"", "", "hash_tag: distribution = \"ring\" has that of Redis Cluster");
        for tag in ["{", "{ ", "{}}", "é"] {
            check(
                &format!("distribution = \"ketama\"\nhash_tag = \"{tag}\""),
                "",
                "write the two characters",
            );
        }
        check("", "weight = 2", "weight = 2: does not count with [placement] distribution = \"ring\"");
        check(
            "distribution = \"ketama\"",
            "slots = \"1\"",
            "slots: there are some with [placement] distribution",
        );
        check("distribution = \"slots\"", "slots = \"1\"", "they are not 0 to 16383, each once");
        check("distribution = \"slots\"", "slots = \"9-8\"", "write ranges of 0 to 16383");
        check("distribution = \"slots\"", "server_name = \"a\"", "no names place keys");
        check("distribution = \"ketama\"", "server_name = \"a\"", "two servers are called \"a\"");
        let long = format!("server_name = {:?}", "a".repeat(76));
        check("distribution = \"ketama\"", &long, "write 1 to 75 bytes");
        check("distribution = \"rendezvous\"", "", "server_name is missing");
        let error =
            read("distribution = \"slots\"", |_| "storage = \"redis-cluster://127.0.0.1:1\"".to_owned());
        assert!(error.unwrap_err().contains("a Redis Cluster divides its keys by itself"));
    }
}
