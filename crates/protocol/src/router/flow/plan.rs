//! How a command spreads over the shims: whole, in parts, or everywhere. Not which peers are reachable.

use smallvec::SmallVec;
use wire::Key;
use wire::resp::Command;

use crate::placement::Home;
use crate::router::flow::gather::Merge;
use crate::router::flow::launch::LaunchJob;
use crate::router::words;
use commands::acl::FENCE_PREFIX;
use commands::{Classified, CommandKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandPlan {
    /// One cacheable read.
    Read,
    /// One command to the shim that owns all of its keys.
    Whole,
    /// MGET: a cacheable GET per key, unless all of them share a hash tag.
    Each,
    /// The command once per shim, with that shim's keys.
    Grouped(Merge),
    /// The same command to every shim.
    Everywhere(Merge),
    /// To any one shim.
    Anywhere,
    /// Always to the same shim: scripts without keys, whose effects must at least meet each other.
    FirstShim,
    Scan,
    RandomKey,
    /// WATCH, and what ends it.
    Watch,
    /// The router's own sections, then those of all storage servers together.
    Info,
    /// Changes users, at every server.
    Users,
    /// Begins or ends subscriptions.
    Subscription,
    /// To the shim of the channel.
    Publish,
}

pub(crate) fn plan(command: &Command, classified: &Classified) -> CommandPlan {
    match (classified.kind, classified.keys.len()) {
        (CommandKind::Read | CommandKind::Query, 1..) if classified.spec.name == "mget" => CommandPlan::Each,
        (CommandKind::Read, 1) => CommandPlan::Read,
        (CommandKind::Watch, _) => CommandPlan::Watch,
        (kind, 0) => without_keys(command, kind),
        (_, 1) => CommandPlan::Whole,
        (CommandKind::BlockingQuery | CommandKind::BlockingWrite, _) => CommandPlan::Whole,
        _ if words::is(command, 0, "MSET") => CommandPlan::Grouped(Merge::First),
        _ if ["DEL", "UNLINK", "EXISTS", "TOUCH"].iter().any(|name| words::is(command, 0, name)) => {
            CommandPlan::Grouped(Merge::Sum)
        }
        _ => CommandPlan::Whole,
    }
}

fn without_keys(command: &Command, kind: CommandKind) -> CommandPlan {
    match kind {
        CommandKind::Subscription => return CommandPlan::Subscription,
        CommandKind::Publish => return CommandPlan::Publish,
        CommandKind::Purge => return CommandPlan::Everywhere(Merge::Sum),
        _ => {}
    }
    match words::upper(command.name()).as_slice() {
        b"DBSIZE" => CommandPlan::Everywhere(Merge::Sum),
        b"FLUSHALL" | b"FLUSHDB" | b"SWAPDB" => CommandPlan::Everywhere(Merge::First),
        b"KEYS" => CommandPlan::Everywhere(Merge::Concatenation),
        b"PUBSUB" => pubsub(command),
        b"SCAN" => CommandPlan::Scan,
        b"RANDOMKEY" => CommandPlan::RandomKey,
        b"INFO" => CommandPlan::Info,
        b"ACL" if changes_users(command) => CommandPlan::Users,
        b"SCRIPT" | b"FUNCTION" if words::is(command, 1, "KILL") => CommandPlan::Everywhere(Merge::Any),
        b"SCRIPT" if words::is(command, 1, "EXISTS") => CommandPlan::Everywhere(Merge::Everywhere),
        b"SCRIPT" | b"FUNCTION" if !words::is(command, 1, "HELP") => CommandPlan::Everywhere(Merge::First),
        b"LATENCY" if words::is(command, 1, "RESET") => CommandPlan::Everywhere(Merge::Sum),
        b"LATENCY" | b"MODULE" | b"MEMORY" => CommandPlan::FirstShim,
        b"CONFIG" if !words::is(command, 1, "GET") && !words::is(command, 1, "HELP") => {
            CommandPlan::Everywhere(Merge::First)
        }
        _ if kind == CommandKind::Barrier => CommandPlan::FirstShim,
        _ => CommandPlan::Anywhere,
    }
}

/// Patterns are subscribed to at every server, so that any one knows how many there are.
fn pubsub(command: &Command) -> CommandPlan {
    match words::upper(command.get(1).unwrap_or_default()).as_slice() {
        b"CHANNELS" | b"SHARDCHANNELS" => CommandPlan::Everywhere(Merge::Union),
        b"NUMSUB" | b"SHARDNUMSUB" => CommandPlan::Everywhere(Merge::Counts),
        b"NUMPAT" => CommandPlan::FirstShim,
        _ => CommandPlan::Anywhere,
    }
}

/// Whether the command changes users at storage. Those that fence the connections of shims are not for clients.
pub(crate) fn changes_users(command: &Command) -> bool {
    let is_change = ["SETUSER", "DELUSER", "LOAD", "SAVE"].iter().any(|sub| words::is(command, 1, sub));
    words::is(command, 0, "ACL") && is_change && !names_fences(command)
}

pub(crate) fn names_fences(command: &Command) -> bool {
    let fence = |name: Option<&[u8]>| name.is_some_and(|name| name.starts_with(FENCE_PREFIX));
    match words::is(command, 1, "DELUSER") {
        true => (2..command.len()).any(|index| fence(command.get(index))),
        false => words::is(command, 1, "SETUSER") && fence(command.get(2)),
    }
}

/// Whether several keys carry one hash tag: the user said that they belong together.
pub(crate) fn share_tag(job: &LaunchJob<'_>) -> bool {
    let mut tags = job.keys.iter().map(|key| job.placement.tag(&key.bytes));
    job.keys.len() > 1 && tags.next().flatten().is_some_and(|first| tags.all(|other| other == Some(first)))
}

/// What goes to a shim as one command: which of the keys, by their place among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) home: Home,
    pub(crate) members: SmallVec<[usize; 4]>,
}

pub(crate) fn groups(keys: &[Key], home_of: impl Fn(&Key) -> Home) -> SmallVec<[Group; 1]> {
    let mut groups: SmallVec<[Group; 1]> = SmallVec::new();
    for (member, key) in keys.iter().enumerate() {
        let home = home_of(key);
        match groups.iter_mut().find(|group| group.home == home) {
            Some(group) => group.members.push(member),
            None => groups.push(Group { home, members: SmallVec::from_slice(&[member]) }),
        }
    }
    groups
}

/// The command with only the group's keys, each with the arguments between it and the next key (MSET's value).
pub(crate) fn narrowed(command: &Command, classified: &Classified, group: &Group) -> Command {
    let stride = classified.keys[1] - classified.keys[0];
    let mut arguments: Vec<&[u8]> = vec![command.name()];
    for &member in &group.members {
        let start = classified.keys[member];
        arguments.extend((start..(start + stride).min(command.len())).map(|index| command.arg(index)));
    }
    Command::from_args(&arguments)
}
