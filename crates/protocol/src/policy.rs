//! Which keys may be cached and for how long, by prefix, as operators say it. Not how hot a key is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

/// What it takes to be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eligibility {
    /// No copy is made or kept.
    Never,
    /// The first miss is enough; it still leaves for hotter keys.
    Always,
    /// The heat that the agents ask for.
    #[default]
    Heat,
}

/// What holds for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub cache: Eligibility,
    /// A copy is filled again after this long at the latest.
    pub ttl_ms_max: u64,
    /// Larger replies pass by uncached.
    pub value_bytes_max: usize,
    /// For so long after changes have been heard of last, a copy may answer because storage is gone.
    pub stale_if_error: Duration,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule {
            cache: Eligibility::Heat,
            ttl_ms_max: u64::MAX,
            value_bytes_max: usize::MAX,
            stale_if_error: Duration::ZERO,
        }
    }
}

impl Rule {
    pub fn is_never(&self) -> bool {
        self.cache == Eligibility::Never
    }

    /// The time to live of a copy whose key lives for `ttl_ms`.
    pub fn ttl_ms(&self, ttl_ms: Option<u64>) -> Option<u64> {
        match self.ttl_ms_max {
            u64::MAX => ttl_ms,
            max => Some(ttl_ms.map_or(max, |ttl| ttl.min(max))),
        }
    }

    /// Whether copies made under `earlier` may break it.
    fn is_stricter_than(&self, earlier: &Rule) -> bool {
        self.is_never() && !earlier.is_never()
            || self.ttl_ms_max < earlier.ttl_ms_max
            || self.value_bytes_max < earlier.value_bytes_max
    }
}

/// The rules of all prefixes; the longest one that fits a key counts. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// The longest first.
    rules: Arc<[(Bytes, Rule)]>,
    promotes: bool,
    stale_if_error_longest: Duration,
}

impl Default for Policies {
    fn default() -> Policies {
        Policies::new(Vec::new())
    }
}

impl Policies {
    pub fn new(mut rules: Vec<(Bytes, Rule)>) -> Policies {
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let promotes = rules.iter().any(|(_, rule)| rule.cache == Eligibility::Always);
        let longest = rules.iter().map(|(_, rule)| rule.stale_if_error).max();
        Policies { rules: rules.into(), promotes, stale_if_error_longest: longest.unwrap_or_default() }
    }

    /// The longest that any rule lets a copy answer because storage is gone.
    pub fn stale_if_error_longest(&self) -> Duration {
        self.stale_if_error_longest
    }

    pub fn of(&self, key: &[u8]) -> Rule {
        let found = self.rules.iter().find(|(prefix, _)| key.starts_with(prefix));
        found.map(|(_, rule)| *rule).unwrap_or_default()
    }

    /// Whether this key is cached at its first miss. Costs nothing where no rule says so of any key.
    pub fn is_always(&self, key: &[u8]) -> bool {
        self.promotes && self.of(key).cache == Eligibility::Always
    }

    /// Whether copies of this key that were made under `earlier` rules may be more than these allow.
    pub fn outlaws(&self, earlier: &Policies, key: &[u8]) -> bool {
        self.of(key).is_stricter_than(&earlier.of(key))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Eligibility, Policies, Rule};

    fn policies(rules: &[(&'static str, Rule)]) -> Policies {
        Policies::new(rules.iter().map(|(prefix, rule)| (Bytes::from(*prefix), *rule)).collect())
    }

    fn rule(cache: Eligibility) -> Rule {
        Rule { cache, ..Rule::default() }
    }

    #[test]
    fn the_longest_prefix_counts() {
        let policies = policies(&[
            ("a", rule(Eligibility::Never)),
            ("a:b:", rule(Eligibility::Heat)),
            ("a:", rule(Eligibility::Always)),
        ]);
        let check = |key: &str, expected| assert_eq!(policies.of(key.as_bytes()).cache, expected, "{key}");
        check("a", Eligibility::Never);
        check("a:x", Eligibility::Always);
        check("a:b:x", Eligibility::Heat);
        check("b", Eligibility::Heat);
        check("", Eligibility::Heat);
        assert!(policies.is_always(b"a:x") && !policies.is_always(b"a"));
        assert!(!Policies::default().is_always(b"a:x"));
    }

    #[test]
    fn the_empty_prefix_is_every_key() {
        let policies = policies(&[("", rule(Eligibility::Never)), ("x", rule(Eligibility::Heat))]);
        assert!(policies.of(b"").is_never() && policies.of(b"y").is_never());
        assert!(!policies.of(b"xy").is_never());
    }

    #[test]
    fn times_to_live_are_cut() {
        let short = Rule { ttl_ms_max: 50, ..Rule::default() };
        assert_eq!([None, Some(70), Some(20)].map(|ttl| short.ttl_ms(ttl)), [Some(50), Some(50), Some(20)]);
        assert_eq!([None, Some(70)].map(|ttl| Rule::default().ttl_ms(ttl)), [None, Some(70)]);
    }

    #[test]
    fn only_stricter_rules_outlaw_copies() {
        let none = Policies::default();
        for (strict, expected) in [
            (rule(Eligibility::Never), true),
            (Rule { ttl_ms_max: 1, ..Rule::default() }, true),
            (Rule { value_bytes_max: 1, ..Rule::default() }, true),
            (rule(Eligibility::Always), false),
        ] {
            let newer = policies(&[("a", strict)]);
            assert_eq!(newer.outlaws(&none, b"ab"), expected, "{strict:?}");
            assert!(!none.outlaws(&newer, b"ab"), "{strict:?}");
            assert!(!newer.outlaws(&newer, b"ab") && !newer.outlaws(&none, b"b"));
        }
    }
}
