//! The hottest keys of the cluster, as a controller told them last, and how DISTCACHE HOTKEYS shows them. Not who finds them.

use bytes::Bytes;
use wire::resp::{Command, reply};

use crate::router::{replies, words};
use commands::integer;

const COUNT: usize = 10;

/// A key that is hot in the whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterHotKey {
    pub key: Bytes,
    /// Requests per second.
    pub rate: u64,
    /// The key's share of all requests.
    pub share: f64,
    /// Names of the layers that cache it.
    pub layers: Vec<Bytes>,
}

/// DISTCACHE HOTKEYS. `hot`: none before a controller has told any.
pub(crate) fn answer(hot: Option<&[ClusterHotKey]>, resp3: bool, command: &Command) -> Bytes {
    let count = match command.len() {
        2 => Some(COUNT),
        4 if words::is(command, 2, "COUNT") => {
            integer(command.arg(3)).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0)
        }
        _ => return replies::error("ERR syntax error"),
    };
    let Some(count) = count else {
        return replies::error("ERR COUNT must be a positive integer");
    };
    let Some(hot) = hot else {
        return replies::error("ERR DistCache: this router has not heard from a controller yet, which knows");
    };
    let count = count.min(hot.len());
    let mut out = Vec::new();
    replies::array_header(count, &mut out);
    for ClusterHotKey { key, rate, share, layers } in &hot[..count] {
        reply::map_header(4, resp3, &mut out);
        reply::bulk(b"key", &mut out);
        reply::bulk(key, &mut out);
        reply::bulk(b"rate", &mut out);
        reply::integer(i64::try_from(*rate).unwrap_or(i64::MAX), &mut out);
        reply::bulk(b"share", &mut out);
        reply::double(*share, resp3, &mut out);
        reply::bulk(b"cached", &mut out);
        replies::array_header(layers.len(), &mut out);
        layers.iter().for_each(|layer| reply::bulk(layer, &mut out));
    }
    out.into()
}
