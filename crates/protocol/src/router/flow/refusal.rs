//! What a client hears of a command that the flow does not send. Not why, and not how it is sent.

use bytes::Bytes;
use wire::resp::Command;
use wire::{HashTag, Peer, ShimId};

use crate::placement::Placement;
use crate::router::config::RouterConfig;
use crate::router::replies;
use crate::router::step::RouterStep;
use commands::{Classified, UnnamedKeys};

pub(crate) fn shim_name(config: &RouterConfig, shim: ShimId) -> String {
    let known = config.shim_names.get(usize::from(shim.0));
    known.cloned().unwrap_or_else(|| format!("number {}", shim.0))
}

pub(crate) fn busy(step: &mut RouterStep<'_>) -> Bytes {
    step.counters.sheds += 1;
    replies::error("BUSY DistCache: too many commands are in flight in this router; try again")
}

pub(crate) fn unavailable(step: &mut RouterStep<'_>, shim: ShimId) -> Bytes {
    step.counters.unavailable += 1;
    let name = shim_name(step.config, shim);
    replies::error(&format!("ERR DistCache: shim {name} is not reachable; the command was not executed"))
}

/// Why several keys can lie together by chance only.
const NO_TAGS: &str = "[placement] has no hash_tag, so use one command for each key";

pub(crate) fn cross_shim(step: &mut RouterStep<'_>, placement: &Placement, command: &Command) -> Bytes {
    step.counters.refusals += 1;
    let name = String::from_utf8_lossy(command.name()).to_lowercase();
    let remedy = match placement.hash_tag() {
        HashTag::Between(open, close) => {
            let tag = format!("{}user1{}", char::from(open), char::from(close));
            format!("give them one hash tag, as in {tag}.a and {tag}.b")
        }
        HashTag::Whole => NO_TAGS.to_owned(),
    };
    replies::error(&format!(
        "CROSSSLOT DistCache: the keys of '{name}' live on different storage servers; {remedy}"
    ))
}

/// Whether the command also reads keys, named by nobody, that may be at another shim.
pub(crate) fn may_read_elsewhere(placement: &Placement, classified: &Classified) -> bool {
    let apart = match classified.unnamed_keys {
        UnnamedKeys::None => false,
        UnnamedKeys::Tagged => !placement.has_redis_tags(),
        UnnamedKeys::Any => true,
    };
    apart && placement.map().shims.len() > 1
}

pub(crate) fn unnamed_keys(step: &mut RouterStep<'_>, placement: &Placement) -> Bytes {
    step.counters.refusals += 1;
    let remedy = match placement.has_redis_tags() {
        true => "put the key's hash tag before the *, as in {user1}.weight_*",
        false => "sort without patterns, which need the hash tags of Redis Cluster in [placement]",
    };
    replies::error(&format!(
        "CROSSSLOT DistCache: SORT with BY or GET patterns reads keys that may live on other storage servers; {remedy}"
    ))
}

pub(crate) fn channel_too_long(step: &mut RouterStep<'_>, bytes: usize) -> Bytes {
    step.counters.refusals += 1;
    let bytes_max = step.config.settings.key_bytes_max;
    replies::error(&format!("ERR DistCache: a channel of {bytes} bytes is over the limit of {bytes_max}"))
}

/// It waited for too long for room at this member.
pub(crate) fn too_late(config: &RouterConfig, peer: Peer) -> Bytes {
    let name = match peer {
        Peer::Shim(shim) => format!("shim {}", shim_name(config, shim)),
        Peer::Node(node) => format!("cache node {}", node.0),
        Peer::Router(_) => String::new(),
    };
    let queue_ms_max = config.settings.queue_max.as_millis();
    replies::error(&format!(
        "BUSY DistCache: the command waited for {name} for longer than queue_ms_max ({queue_ms_max} ms); it was not \
         executed, try again later"
    ))
}
