//! What decides where a key's data are, as members compare it before they talk (design, section 6). Not what they do about a
//! difference.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use wire::Sharding;

use super::secret::Secret;

/// Members whose agreements differ would look for the same key in different places, or promise their clients different
/// things. Says nothing of addresses, credentials, nodes, layers, routers and limits, which may differ while they roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Agreement {
    pub mode: AgreedMode,
    pub sharding: AgreedSharding,
    /// How many shims there are.
    pub shims: u16,
    /// A digest of what tells them apart, in their order: names, and where clients place keys by it, hosts, ports and weights.
    /// Who does not know the secret learns nothing from it.
    pub digest: u64,
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
        Ketama = 2 "ketama",
        KetamaWeighted = 3 "ketama-weighted",
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
        "the [[shim]] entries have other names or, on memcached, other hosts, ports, weights or another order"
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
        names: impl ExactSizeIterator<Item = &'a str>,
    ) -> Agreement {
        let shims = names.len() as u16;
        let mut hasher = SipHasher24::new_with_key(&secret.derive(b"agreement"));
        let mut text = |text: &str| {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        };
        names.for_each(&mut text);
        let sharding = match sharding {
            Sharding::Ring => AgreedSharding::Ring,
            Sharding::Slots => AgreedSharding::Slots,
            Sharding::Ketama(ketama) => {
                for server in ketama.servers.iter() {
                    text(&server.host);
                    text(&format!("{} {}", server.port, server.weight));
                }
                if ketama.weighted { AgreedSharding::KetamaWeighted } else { AgreedSharding::Ketama }
            }
        };
        Agreement { mode, sharding, shims, digest: hasher.finish() }
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
        if self.shims != theirs.shims {
            return Some(Disagreement::Shims(Sides { own: self.shims, theirs: theirs.shims }));
        }
        (self.digest != theirs.digest).then_some(Disagreement::Names)
    }
}

#[cfg(test)]
mod tests {
    use wire::{Ketama, KetamaServer, Sharding};

    use super::{AgreedMode, AgreedSharding, Agreement, Disagreement};
    use crate::placement::Secret;

    const SECRET: Secret = Secret([7; 16]);

    fn agreement(mode: AgreedMode, sharding: &Sharding, names: &[&str]) -> Agreement {
        Agreement::new(&SECRET, mode, sharding, names.iter().copied())
    }

    fn pool(weighted: bool, servers: &[(&str, u16, u32)]) -> Sharding {
        let server = |(host, port, weight): &(&str, u16, u32)| KetamaServer {
            host: (*host).to_owned(),
            port: *port,
            weight: *weight,
        };
        Sharding::Ketama(Ketama { weighted, servers: servers.iter().map(server).collect() })
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
    fn where_clients_place_keys_by_hosts_these_count() {
        let servers = [("h", 1, 1), ("i", 2, 1)];
        let of = |sharding: &Sharding| agreement(AgreedMode::Strict, sharding, &["a", "b"]);
        let own = of(&pool(false, &servers));
        assert_eq!(own.difference(&of(&pool(false, &servers))), None);
        assert!(matches!(own.difference(&of(&pool(true, &servers))), Some(Disagreement::Sharding(_))));
        for other in [[("h", 1, 1), ("i", 3, 1)], [("h", 1, 1), ("j", 2, 1)], [("h", 1, 2), ("i", 2, 1)]] {
            assert_eq!(own.difference(&of(&pool(false, &other))), Some(Disagreement::Names), "{other:?}");
        }
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
        assert_eq!((AgreedMode::of_number(2), AgreedSharding::of_number(4)), (None, None));
    }
}
