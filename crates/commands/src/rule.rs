//! How a command has to be treated, derived from its table entry when the table is compiled. Where the table
//! cannot tell, a short list here does, and each of its entries has a reason.

use super::reason::RefusalReason;
use super::spec::{CommandGroup, CommandRule, CommandSpec, Flag, KeyFlag, KeySpec, Set, Tip};

pub(super) const fn derive(spec: &CommandSpec) -> CommandRule {
    let (name, group, keys) = (spec.name.as_bytes(), spec.group, spec.keys);
    let (flags, tips) = (spec.flags, spec.tips);
    if let Some(rule) = own(name) {
        return rule;
    }
    if let Some(reason) = refused(name, group, flags) {
        return CommandRule::Refuse(reason);
    }
    if matches!(group, CommandGroup::Pubsub) {
        return subscriptions(name);
    }
    if matches!(name, b"watch") {
        return CommandRule::Watch;
    }
    if answered_by_router(name, group) {
        return CommandRule::Connection;
    }
    let blocking = flags.has(Flag::Blocking as u32);
    if flags.has(Flag::Write as u32) || writes(keys) {
        return if blocking { CommandRule::BlockingWrite } else { CommandRule::Write };
    }
    if keys.is_empty() || all_not_keys(keys) {
        return CommandRule::Keyless;
    }
    if blocking {
        return CommandRule::BlockingQuery;
    }
    let deterministic = flags.has(Flag::Readonly as u32)
        && !tips.has(Tip::NondeterministicOutput as u32)
        && known_and_read_only(keys)
        && !never_cached(name, group);
    if deterministic { CommandRule::Read } else { CommandRule::Query }
}

/// Commands that Redis does not have, or that are about this side of storage.
const fn own(name: &[u8]) -> Option<CommandRule> {
    match name {
        b"distcache|purge" => Some(CommandRule::Purge),
        // The slow log is the router's: what clients wait for, not what single servers work for.
        [b's', b'l', b'o', b'w', b'l', b'o', b'g', b'|', ..] => Some(CommandRule::Connection),
        [b'd', b'i', b's', b't', b'c', b'a', b'c', b'h', b'e', ..] => Some(CommandRule::Connection),
        _ => None,
    }
}

/// Commands that this release cannot carry.
const fn refused(name: &[u8], group: CommandGroup, flags: Set) -> Option<RefusalReason> {
    match name {
        // Clients and frameworks send these as a matter of course. Which parameters may be set is looked at later.
        b"config|get" | b"config|set" => return None,
        // Who may do what is decided at the router, which knows the users.
        [b'a', b'c', b'l', b'|', ..] => return None,
        // Harmless, and test suites ask for them.
        b"config|resetstat" | b"module|list" | b"pfdebug" | b"pfselftest" => return None,
        [b'l', b'a', b't', b'e', b'n', b'c', b'y', b'|', ..] => return None,
        b"wait" | b"sync" | b"psync" | b"replconf" | b"replicaof" | b"slaveof" | b"failover" => {
            return Some(RefusalReason::Replication);
        }
        b"monitor" => return Some(RefusalReason::Monitor),
        // A stopped server would lose its leases, and most of the rest changes data behind the copies' back.
        b"debug" => return Some(RefusalReason::DebugCommand),
        // The key leaves for a server that DistCache does not know.
        b"migrate" => return Some(RefusalReason::OtherServer),
        // It writes a key of another database, which its arguments do not name as one.
        b"move" => return Some(RefusalReason::OtherDatabase),
        // It changes the connection, and storage connections are shared.
        b"script|debug" => return Some(RefusalReason::Debugging),
        _ => {}
    }
    match group {
        CommandGroup::Cluster => Some(RefusalReason::Cluster),
        // The router answers them itself or says why not.
        CommandGroup::Connection | CommandGroup::Transactions => None,
        _ if flags.has(Flag::Asking as u32) => Some(RefusalReason::Cluster),
        _ if flags.has(Flag::Admin as u32) => Some(RefusalReason::Administration),
        _ => None,
    }
}

/// PUBSUB asks what is subscribed to; the rest of the group subscribes or publishes.
const fn subscriptions(name: &[u8]) -> CommandRule {
    match name {
        b"publish" | b"spublish" => CommandRule::Publish,
        [b'p', b'u', b'b', b's', b'u', b'b', ..] => CommandRule::Keyless,
        _ => CommandRule::Subscription,
    }
}

/// Commands about the client's own connection, which ends at the router: what it is, and what is queued on it. INFO is
/// about a server, and the
/// server that a client sees is the router.
const fn answered_by_router(name: &[u8], group: CommandGroup) -> bool {
    // Random numbers and help are storage's.
    let users = matches!(name, [b'a', b'c', b'l', b'|', ..]) && !matches!(name, b"acl|genpass" | b"acl|help");
    matches!(group, CommandGroup::Connection | CommandGroup::Transactions) || users || matches!(name, b"info")
}

/// Read-only commands that the table's facts would let into the cache, and why they stay out.
const fn never_cached(name: &[u8], group: CommandGroup) -> bool {
    match name {
        // The point is the side effect on the storage's eviction clock.
        b"touch" => true,
        // Depends on the allocator and the encoding, which change without a write of the key.
        b"memory|usage" => true,
        // Remaining or absolute, a time to live is asked for to learn what storage will do: storage answers.
        b"expiretime" | b"pexpiretime" => true,
        // A script's reply may depend on anything: time, random numbers, keys that it did not declare.
        _ => matches!(group, CommandGroup::Scripting),
    }
}

const fn writes(keys: &[KeySpec]) -> bool {
    let mut index = 0;
    while index < keys.len() {
        let spec = &keys[index];
        if spec.has(KeyFlag::Rw) || spec.has(KeyFlag::Ow) || spec.has(KeyFlag::Rm) {
            return true;
        }
        index += 1;
    }
    false
}

const fn all_not_keys(keys: &[KeySpec]) -> bool {
    let mut index = 0;
    while index < keys.len() {
        if !keys[index].has(KeyFlag::NotKey) {
            return false;
        }
        index += 1;
    }
    true
}

const fn known_and_read_only(keys: &[KeySpec]) -> bool {
    use super::spec::{Begin, Find};
    let mut index = 0;
    while index < keys.len() {
        let spec = &keys[index];
        let vague =
            spec.has(KeyFlag::Incomplete) || spec.has(KeyFlag::VariableFlags) || spec.has(KeyFlag::NotKey);
        if vague || !spec.has(KeyFlag::Ro) {
            return false;
        }
        if matches!(spec.begin, Begin::Unknown) || matches!(spec.find, Find::Unknown) {
            return false;
        }
        index += 1;
    }
    true
}
