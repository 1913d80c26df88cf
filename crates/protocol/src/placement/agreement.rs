//! What decides where a key's data are, as members compare it before they talk (design, section 6). Not what they do about a
//! difference.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use wire::{Distribution, Sharding};

use super::secret::Secret;

/// Members whose agreements differ would look for the same key in different places, or promise their clients different
/// things. Says nothing of addresses, credentials, nodes, layers, routers and limits, which may differ while they roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Agreement {
    pub mode: AgreedMode,
    pub sharding: AgreedSharding,
    /// How many shims there are.
    pub shims: u16,
    /// A digest of what tells them apart, in their order: names, and where other software has placed keys by it, the hash and the
    /// servers' names, weights and slots.
    /// Who does not know the secret learns nothing from it.
    pub digest: u64,
    /// Number and digest of the shims after, or before, a change of them that is under way: whoever names these is agreed with,
    /// too. Not told.
    pub also: Option<(u16, u64)>,
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $number:literal $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant = $number,)* }

        impl $name {
            /// As it stands in a greeting.
            pub fn number(self) -> u8 {
                self as u8
            }

            pub fn of_number(number: u8) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// As a configuration has it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }
        }
    };
}

words! {
    /// Who may write to storage.
    AgreedMode {
        Strict = 0 "strict",
        Bounded = 1 "bounded",
    }
}

words! {
    /// How the keys are divided among the shims.
    AgreedSharding {
        Ring = 0 "ring",
        Slots = 1 "slots of a Redis Cluster",
        Libmemcached = 2 "libmemcached",
        Ketama = 3 "ketama",
        Modula = 4 "modula",
        FixedSlots = 5 "slots",
        Jump = 6 "jump",
        Jedis = 7 "jedis",
        Jedis2 = 8 "jedis-2",
        Rendezvous = 9 "rendezvous",
    }
}

impl AgreedSharding {
    fn of(distribution: Distribution) -> AgreedSharding {
        match distribution {
            Distribution::Libmemcached => AgreedSharding::Libmemcached,
            Distribution::Ketama(_) => AgreedSharding::Ketama,
            Distribution::Modula(_) => AgreedSharding::Modula,
            Distribution::Slots => AgreedSharding::FixedSlots,
            Distribution::Jump(_) => AgreedSharding::Jump,
            Distribution::Jedis => AgreedSharding::Jedis,
            Distribution::Jedis2 => AgreedSharding::Jedis2,
            Distribution::Rendezvous => AgreedSharding::Rendezvous,
        }
    }
}

/// In what two agreements differ; each side's value with its owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    #[error("`mode` in [cluster] is {0}")]
    Mode(Sides<&'static str>),
    #[error("keys are divided by {0}")]
    Sharding(Sides<&'static str>),
    #[error("[[shim]] entries: {0}")]
    Shims(Sides<u16>),
    #[error(
        "the [[shim]] entries have other names or, with a `distribution` in [placement], another order, other names of servers, \
         weights or slots, or [placement] another hash or hash_tag"
    )]
    Names,
}

/// This side's value and the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides<T> {
    pub own: T,
    pub theirs: T,
}

impl<T: fmt::Display> fmt::Display for Sides<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} here and {} there", self.own, self.theirs)
    }
}

impl Agreement {
    /// `names` of the shims, by their numbers.
    pub fn new<'a>(
        secret: &Secret,
        mode: AgreedMode,
        sharding: &Sharding,
        names: impl Iterator<Item = &'a str>,
    ) -> Agreement {
        let mut shims = 0;
        let mut hasher = SipHasher24::new_with_key(&secret.derive(b"agreement"));
        let mut text = |text: &str| {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        };
        for name in names {
            text(name);
            shims += 1;
        }
        let sharding = match sharding {
            Sharding::Ring => AgreedSharding::Ring,
            Sharding::Slots => AgreedSharding::Slots,
            Sharding::Pool(pool) => {
                text(&format!("{:?} {:?}", pool.distribution, pool.hash_tag));
                for server in pool.servers.iter() {
                    text(server.name.as_deref().unwrap_or_default());
                    text(&format!("{} {} {:?}", server.name.is_some(), server.weight, server.slots));
                }
                AgreedSharding::of(pool.distribution)
            }
        };
        Agreement { mode, sharding, shims, digest: hasher.finish(), also: None }
    }

    /// Agrees with those who have the shims of `other` as well.
    pub fn or(self, other: &Agreement) -> Agreement {
        Agreement { also: Some((other.shims, other.digest)), ..self }
    }

    /// The first thing in which the two differ.
    pub fn difference(&self, theirs: &Agreement) -> Option<Disagreement> {
        let words = |own: &'static str, theirs: &'static str| Sides { own, theirs };
        if self.mode != theirs.mode {
            return Some(Disagreement::Mode(words(self.mode.word(), theirs.mode.word())));
        }
        if self.sharding != theirs.sharding {
            return Some(Disagreement::Sharding(words(self.sharding.word(), theirs.sharding.word())));
        }
        if self.also == Some((theirs.shims, theirs.digest)) {
            return None;
        }
        if self.shims != theirs.shims {
            return Some(Disagreement::Shims(Sides { own: self.shims, theirs: theirs.shims }));
        }
        (self.digest != theirs.digest).then_some(Disagreement::Names)
    }
}

#[cfg(test)]
mod tests {
    use wire::{Distribution, HashTag, PoolHash, PoolServer, Sharding, StoragePool};

    use super::{AgreedMode, AgreedSharding, Agreement, Disagreement};
    use crate::placement::Secret;

    const SECRET: Secret = Secret([7; 16]);

    fn agreement(mode: AgreedMode, sharding: &Sharding, names: &[&str]) -> Agreement {
        Agreement::new(&SECRET, mode, sharding, names.iter().copied())
    }

    fn pool(distribution: Distribution, hash_tag: HashTag, servers: &[(&str, u32)]) -> Sharding {
        let server = |(name, weight): &(&str, u32)| PoolServer {
            name: Some((*name).to_owned()),
            weight: *weight,
            slots: Vec::new(),
        };
        Sharding::Pool(StoragePool { distribution, hash_tag, servers: servers.iter().map(server).collect() })
    }

    #[test]
    fn what_moves_keys_is_told_by_its_name() {
        let own = agreement(AgreedMode::Strict, &Sharding::Ring, &["a", "b"]);
        let told = |theirs: &Agreement| own.difference(theirs).map(|difference| difference.to_string());
        assert_eq!(told(&own.clone()), None);
        let other = agreement(AgreedMode::Bounded, &Sharding::Ring, &["a", "b"]);
        assert_eq!(told(&other).unwrap(), "`mode` in [cluster] is strict here and bounded there");
        let other = agreement(AgreedMode::Strict, &Sharding::Slots, &["a", "b"]);
        assert_eq!(told(&other).unwrap(), "keys are divided by ring here and slots of a Redis Cluster there");
        let other = agreement(AgreedMode::Strict, &Sharding::Ring, &["a", "b", "c"]);
        assert_eq!(told(&other).unwrap(), "[[shim]] entries: 2 here and 3 there");
        for names in [["a", "c"], ["b", "a"], ["ab", ""], ["", "ab"]] {
            let other = agreement(AgreedMode::Strict, &Sharding::Ring, &names);
            assert_eq!(own.difference(&other), Some(Disagreement::Names), "{names:?}");
        }
    }

    #[test]
    fn what_other_software_has_placed_keys_by_counts() {
        let servers = [("h:1", 1), ("i:2", 1)];
        let of = |sharding: &Sharding| agreement(AgreedMode::Strict, sharding, &["a", "b"]);
        let ketama = Distribution::Ketama(PoolHash::Md5);
        let own = of(&pool(ketama, HashTag::Whole, &servers));
        assert_eq!(own.difference(&of(&pool(ketama, HashTag::Whole, &servers))), None);
        let modula = of(&pool(Distribution::Modula(PoolHash::Md5), HashTag::Whole, &servers));
        let told = own.difference(&modula).expect("another distribution").to_string();
        assert_eq!(told, "keys are divided by ketama here and modula there");
        for other in [[("h:1", 1), ("i:3", 1)], [("h:1", 2), ("i:2", 1)], [("i:2", 1), ("h:1", 1)]] {
            let other = of(&pool(ketama, HashTag::Whole, &other));
            assert_eq!(own.difference(&other), Some(Disagreement::Names), "{other:?}");
        }
        for other in [
            pool(Distribution::Ketama(PoolHash::Crc16), HashTag::Whole, &servers),
            pool(ketama, HashTag::Between(b'{', b'}'), &servers),
        ] {
            assert_eq!(own.difference(&of(&other)), Some(Disagreement::Names), "{other:?}");
        }
    }

    #[test]
    fn while_shims_change_either_list_will_do() {
        let own = |names: &[&str]| agreement(AgreedMode::Strict, &Sharding::Ring, names);
        let (before, after) = (own(&["a", "b"]), own(&["a", "b", "c"]));
        let changing = before.or(&after);
        assert_eq!((changing.difference(&before), changing.difference(&after)), (None, None));
        assert!(before.difference(&after).is_some() && changing.difference(&own(&["a", "c"])).is_some());
        let other = agreement(AgreedMode::Bounded, &Sharding::Ring, &["a", "b", "c"]);
        assert!(matches!(changing.difference(&other), Some(Disagreement::Mode(_))));
    }

    #[test]
    fn who_does_not_know_the_secret_learns_no_names() {
        let other = Agreement::new(&Secret([8; 16]), AgreedMode::Strict, &Sharding::Ring, ["a"].into_iter());
        assert_ne!(other.digest, agreement(AgreedMode::Strict, &Sharding::Ring, &["a"]).digest);
    }

    #[test]
    fn numbers_and_words_are_those_of_greetings() {
        let modes = [AgreedMode::Strict, AgreedMode::Bounded].map(|mode| (mode.number(), mode.word()));
        assert_eq!(modes, [(0, "strict"), (1, "bounded")]);
        for number in 0..=255 {
            assert!(AgreedMode::of_number(number).is_none_or(|mode| mode.number() == number));
            assert!(AgreedSharding::of_number(number).is_none_or(|sharding| sharding.number() == number));
        }
        assert_eq!((AgreedMode::of_number(2), AgreedSharding::of_number(10)), (None, None));
    }
}
