//! What scripts change while the machines serve: policies, limits, purges.

use std::time::Duration;

use bytes::Bytes;
use protocol::node::{self, NodeSettings};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::requests::{Overload, RequestLimits};
use protocol::shim::{self, PurgeTarget, ShimSettings};

use super::{World, index};

impl World {
    /// `waits MS [rate N]`: what the shim cannot begin waits for so long; of N requests per second.
    pub(super) fn waits(&mut self, words: &[&str]) {
        let number = |word: &str| word.parse().expect("a number");
        let overload = Overload::Wait { patience: Duration::from_millis(number(words[0])) };
        let rate_max = words.get(2).map_or(0, |rate| number(rate));
        let shim = self.shim.as_mut().expect("it runs");
        shim.limit(RequestLimits { rate_max, overload, ..RequestLimits::default() });
    }

    /// `policy n0|n1|s0 PREFIX never|always|heat [ttl MS] [bytes N] [stale MS]`, the only one there is from then on; `policy s0`
    /// alone leaves none, and `policy s0 observe` caches nothing at all.
    pub(super) fn policy(&mut self, member: &str, words: &[&str]) {
        let rules = match words {
            [] | ["observe"] => Vec::new(),
            [prefix, rest @ ..] => vec![(Bytes::copy_from_slice(prefix.as_bytes()), rule(rest))],
        };
        let policies = Policies::new(rules);
        if member == "s0" {
            let observes = (words == ["observe"]).then_some(100);
            let settings = ShimSettings { policies, observes, ..super::shim_settings() };
            return self.step_shim(shim::Input::Settings(Box::new(settings)));
        }
        let settings = NodeSettings { policies, observes: words == ["observe"], ..super::node_settings() };
        self.step_node(index(member), node::Input::Settings(Box::new(settings)));
    }

    /// `purge NUMBER key K|prefix P|all`, as the process asks.
    pub(super) fn purge(&mut self, number: u64, words: &[&str]) {
        let bytes = |word: &str| Bytes::copy_from_slice(word.as_bytes());
        let scope = match words {
            ["key", key] => PurgeTarget::Key(bytes(key)),
            ["prefix", prefix] => PurgeTarget::Prefix(bytes(prefix)),
            ["all"] => PurgeTarget::All,
            other => panic!("no scope: {other:?}"),
        };
        self.step_shim(shim::Input::Purge { number, scope });
    }
}

fn rule(words: &[&str]) -> Rule {
    let mut rule = Rule::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        match *word {
            "never" => rule.cache = Eligibility::Never,
            "always" => rule.cache = Eligibility::Always,
            "heat" => rule.cache = Eligibility::Heat,
            "ttl" => rule.ttl_ms_max = number(),
            "stale" => rule.stale_if_error = Duration::from_millis(number()),
            "bytes" => rule.value_bytes_max = number() as usize,
            other => panic!("no rule: {other:?}"),
        }
    }
    rule
}
