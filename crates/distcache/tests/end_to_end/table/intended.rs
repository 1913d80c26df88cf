//! Invocations that DistCache means to answer otherwise than a redis-server, each kind with its reason.

use wire::resp::Value;

use crate::cluster::text;

/// One invocation and both replies.
pub(crate) struct Difference<'a> {
    pub(crate) name: &'a str,
    pub(crate) redis: &'a str,
    pub(crate) ours: &'a str,
    pub(crate) servers: usize,
}

pub(crate) struct Intended {
    pub(crate) reason: &'static str,
    fits: fn(&Difference<'_>) -> bool,
}

pub(crate) const INTENDED: [Intended; 7] = [
    Intended {
        reason: "of several mistakes in one command, that in its keys is told first: nothing goes on without them",
        fits: |difference| {
            let redis = difference.redis;
            redis.starts_with('-') && KEY_ERRORS.contains(&difference.ours)
        },
    },
    Intended {
        reason: "parameters on which coherence, durability, memory or access depend are set at the storage server",
        fits: |difference| {
            difference.name == "config|set" && difference.ours.contains("set it at the storage server itself")
        },
    },
    Intended {
        reason: "there is one database",
        fits: |difference| {
            let database = "it writes to a database other than the connection's";
            difference.ours == "-ERR DB index is out of range" || difference.ours.contains(database)
        },
    },
    Intended {
        reason: "with several servers SORT does not read keys that no argument names",
        fits: |difference| {
            difference.servers > 1
                && difference.name.starts_with("sort")
                && difference.ours.starts_with("-CROSSSLOT DistCache: SORT")
        },
    },
    Intended {
        reason: "the slow log is the router's own: what was slow is chance",
        fits: |difference| {
            let (redis, ours) = (difference.redis, difference.ours);
            let kind = |reply: &str| reply.split(['(', ' ']).next().map(str::to_owned);
            difference.name.starts_with("slowlog|") && !redis.starts_with('-') && kind(redis) == kind(ours)
        },
    },
    Intended {
        reason: "too many arguments of a subcommand are told in the words for too few",
        fits: |difference| {
            difference.redis.starts_with("-ERR unknown subcommand or wrong number of arguments for '")
                && difference.ours.starts_with("-ERR wrong number of arguments for '")
        },
    },
    Intended {
        reason: "keys without a common hash tag may live on several servers",
        fits: |difference| {
            difference.servers > 1 && difference.ours.starts_with("-CROSSSLOT DistCache: the keys")
        },
    },
];

/// Errors of commands whose keys cannot be found.
const KEY_ERRORS: [&str; 7] = [
    "-ERR syntax error",
    "-ERR value is not an integer or out of range",
    "-ERR Bad number of keys provided",
    "-ERR Number of keys can't be negative",
    "-ERR Number of keys can't be greater than number of args",
    "-ERR numkeys should be greater than 0",
    "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
];

/// The reason for which they differ, if there is one.
pub(crate) fn reason(difference: &Difference<'_>) -> Option<&'static str> {
    let found = INTENDED.iter().find(|intended| (intended.fits)(difference));
    found.map(|intended| intended.reason)
}

/// A reply as it is compared and shown here: errors begin with `-`.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Error(_) => format!("-{}", text(value)),
        other => format!("{other:?}"),
    }
}
