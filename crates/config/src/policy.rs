//! `[[policy]]`: which keys may be cached, by prefix. Not how a policy is applied.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use protocol::policy::{Eligibility, Policies, Rule};
use serde::Deserialize;

use super::load::ConfigError;
use super::{ByteSize, Config, Mode};
use crate::key_bytes;

/// Looked through at every miss that might be cached.
const POLICIES_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Bytes that are no text are written `\xNN`. The longest prefix that fits a key counts.
    pub prefix: String,
    #[serde(default)]
    pub cache: Caching,
    /// A copy is filled again after this long at the latest.
    #[serde(default)]
    pub ttl_ms_max: Option<u64>,
    /// Larger replies are not cached.
    #[serde(default)]
    pub value_bytes_max: Option<ByteSize>,
    /// While storage is gone, a copy answers for so long after changes were heard of last.
    #[serde(default)]
    pub stale_if_error_ms: Option<u64>,
}

/// What it takes to be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Caching {
    Never,
    /// The first miss is enough.
    Always,
    /// The heat that `[heat]` asks for.
    #[default]
    Heat,
}

impl PolicyConfig {
    pub fn prefix_bytes(&self) -> Vec<u8> {
        key_bytes(&self.prefix)
    }

    /// The rule that machines apply.
    fn rule(&self) -> Rule {
        Rule {
            cache: match self.cache {
                Caching::Never => Eligibility::Never,
                Caching::Always => Eligibility::Always,
                Caching::Heat => Eligibility::Heat,
            },
            ttl_ms_max: self.ttl_ms_max.unwrap_or(u64::MAX),
            value_bytes_max: self.value_bytes_max.map_or(usize::MAX, |bytes| bytes.0 as usize),
            stale_if_error: Duration::from_millis(self.stale_if_error_ms.unwrap_or(0)),
        }
    }
}

impl Config {
    pub(super) fn rules(&self) -> Policies {
        let rule = |policy: &PolicyConfig| (Bytes::from(policy.prefix_bytes()), policy.rule());
        Policies::new(self.policies.iter().map(rule).collect())
    }
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let wrong = |what: String| Err(ConfigError::new(what));
    if config.policies.len() > POLICIES_MAX {
        return wrong(format!("[[policy]]: {} of them; at most {POLICIES_MAX}", config.policies.len()));
    }
    let mut seen = BTreeSet::new();
    for policy in &config.policies {
        let at = format!("[[policy]] prefix = {:?}", policy.prefix);
        if !seen.insert(policy.prefix_bytes()) {
            return wrong(format!("{at}: there are two of it; write one [[policy]] for each prefix"));
        }
        let limited = policy.ttl_ms_max.is_some() || policy.value_bytes_max.is_some();
        if policy.cache == Caching::Never && (limited || policy.stale_if_error_ms.is_some()) {
            return wrong(format!(
                "{at}: cache = \"never\" leaves nothing for ttl_ms_max, value_bytes_max and stale_if_error_ms to limit; take \
                 them out"
            ));
        }
        if config.cluster.mode == Mode::Strict && policy.stale_if_error_ms.is_some() {
            return wrong(format!(
                "{at}: stale_if_error_ms lets copies answer that may be older than what was written, which mode = \"strict\" rules \
                 out; take it out, or write mode = \"bounded\" in [cluster]"
            ));
        }
    }
    Ok(())
}
