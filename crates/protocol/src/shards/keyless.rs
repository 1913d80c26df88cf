//! Commands without keys: which servers a shim asks for its part of them, so that each is asked by one shim. Not how the
//! shims' replies become one.
//!
//! The shim with the lowest slot of a primary is its steward and speaks for it. A shim that is nobody's steward has nothing
//! to add: it answers as an empty server would.

use core::net::SocketAddr;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::transaction::MULTI;
use wire::resp::{Command, reply};

use super::Shards;
use super::fan::{Fan, Finish, PartPlace};
use super::flight::{Asked, Flight};
use super::step::ShardsStep;
use crate::placement::slot;
use crate::router::flow::gather::Merge;
use crate::router::flow::plan::{self, CommandPlan};
use crate::router::words;
use crate::storage::{Lane, Reach, StorageEvent, Store};
use commands::CommandKind;

const SHARED: &str = "-ERR DistCache: '%' concerns all keys of a primary, and at the moment some of its slots are \
                      another shim's; redis-cli --cluster rebalance gives each shim primaries of its own again\r\n";
const WIDE: &str = "-ERR DistCache: '%' is about all of several primaries, and a transaction runs on one of them; send \
                    it outside of MULTI\r\n";
const SEVERAL: &str =
    "-ERR DistCache: a transaction without keys needs a shim whose slots are all on one primary\r\n";

impl Shards {
    pub(super) fn keyless(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        let resp3 = is_resp3(store.lane);
        let parsed = Command::parse(store.commands[0].clone()).ok();
        let classified = parsed.and_then(|command| Some((commands::classify(&command).ok()?, command)));
        if store.commands.len() > 1 {
            return self.keyless_transaction(step, store);
        }
        let Some((classified, command)) = classified else {
            return self.pass(step, self.anchor, store);
        };
        if classified.kind == CommandKind::Barrier && self.shared {
            let name = String::from_utf8_lossy(command.name()).to_lowercase();
            return refuse(step, &store, &SHARED.replace('%', &name));
        }
        let plan = plan::plan(&command, &classified);
        let servers = self.stewarded.clone();
        if servers.is_empty()
            && let Some(empty) = empty(&plan, &command, resp3)
        {
            let replies = SmallVec::from_elem(empty, 1);
            return step.report(StorageEvent::Replies { ticket: store.ticket, replies });
        }
        if matches!(plan, CommandPlan::Scan) && servers.len() > 1 {
            return self.scan(step, store, &command, &servers);
        }
        let finish = match plan {
            CommandPlan::Everywhere(merge) => Finish::Merge(merge),
            CommandPlan::RandomKey => Finish::FirstKey,
            CommandPlan::Info => Finish::Merge(Merge::Info { own: String::new() }),
            CommandPlan::Users => Finish::Merge(Merge::Largest),
            _ if lists_users(&command) => Finish::Each,
            _ => {
                let server = self.stewarded.first().copied().or(self.anchor);
                return self.pass(step, server, store);
            }
        };
        self.fan_out(step, store, &servers, finish);
    }

    fn keyless_transaction(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        if self.members.len() > 1 {
            return refuse(step, &store, SEVERAL);
        }
        if !self.refuse_wide(step, &store) {
            self.pass(step, self.anchor, store);
        }
    }

    /// A transaction runs on one server, so nothing in it may be about all of this shim's, or about other shims' keys.
    pub(super) fn refuse_wide(&self, step: &mut ShardsStep<'_>, store: &Store) -> bool {
        let several = self.members.len() > 1;
        if !several && !self.shared || store.commands[0] != MULTI {
            return false;
        }
        let is_wide = |command: &Command| {
            let Ok(classified) = commands::classify(command) else { return false };
            let everywhere = matches!(
                plan::plan(command, &classified),
                CommandPlan::Everywhere(_) | CommandPlan::Scan | CommandPlan::RandomKey | CommandPlan::Info
            );
            classified.kind == CommandKind::Barrier || several && everywhere
        };
        let commands = store.commands.iter().filter_map(|frame| Command::parse(frame.clone()).ok());
        let Some(wide) = commands.into_iter().find(is_wide) else { return false };
        let name = String::from_utf8_lossy(wide.name()).to_lowercase();
        refuse(step, store, &if several { WIDE } else { SHARED }.replace('%', &name));
        true
    }

    /// The servers one after the other, as the router does it with the shims.
    fn scan(&mut self, step: &mut ShardsStep<'_>, store: Store, command: &Command, servers: &[SocketAddr]) {
        let cursor = command.get(1).and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        let Some(cursor) = cursor else { return refuse(step, &store, "-ERR invalid cursor\r\n") };
        let count = servers.len() as u64;
        let (index, own) = (cursor % count, (cursor / count).to_string());
        let mut arguments: Vec<&[u8]> = command.args().collect();
        arguments[1] = own.as_bytes();
        let commands = SmallVec::from_elem(Command::from_args(&arguments).frame().clone(), 1);
        let finish = Finish::Merge(Merge::Scan { index, shims: count });
        let one = &servers[index as usize..=index as usize];
        self.fan_out(step, Store { commands, ..store }, one, finish);
    }

    pub(super) fn fan_out(
        &mut self,
        step: &mut ShardsStep<'_>,
        store: Store,
        servers: &[SocketAddr],
        finish: Finish,
    ) {
        let resp3 = is_resp3(store.lane);
        let parts = vec![None; servers.len()];
        let fan = Fan { ticket: store.ticket, resp3, outstanding: parts.len(), parts, lost: None, finish };
        let fan = self.fans.insert(fan);
        for (index, server) in servers.iter().enumerate() {
            let flight = Flight::Part(PartPlace { fan, index });
            self.launch(step, Asked { server: *server, flight }, store.clone());
        }
    }

    /// Every server in use is asked for a key of a slot that it should have.
    pub(super) fn prove(&mut self, step: &mut ShardsStep<'_>, ticket: u64) {
        let members: Vec<SocketAddr> = self.members.keys().copied().collect();
        let parts = vec![None; members.len()];
        let (outstanding, finish) = (parts.len(), Finish::Proof);
        let fan = self.fans.insert(Fan { ticket, resp3: false, parts, outstanding, lost: None, finish });
        for (index, server) in members.into_iter().enumerate() {
            let slot = self.in_use.get(&server).copied().unwrap_or(self.range.0);
            let place = self.servers.entry(server).or_default();
            if place.probe.as_ref().is_none_or(|(of, _)| *of != slot) {
                place.probe = Some((slot, probe(slot)));
            }
            let command = place.probe.as_ref().map(|(_, command)| command.clone()).unwrap_or_default();
            let (lane, commands) = (Lane::Shared { resp3: false }, SmallVec::from_elem(command, 1));
            let store = Store { ticket, lane, reach: Reach::Slot(slot), commands };
            self.ask(step, Asked { server, flight: Flight::Part(PartPlace { fan, index }) }, store);
        }
    }

    /// Channels are the whole cluster's, so one server will do; shard channels are their slot's server's, and what servers
    /// say of their keys comes from each.
    pub(super) fn subscriber(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        if let Reach::Slot(_) = store.reach {
            return self.pass(step, self.serving(store.reach), store);
        }
        let command = Command::parse(store.commands[0].clone()).ok();
        let name = command.as_ref().and_then(|command| command.get(1)).unwrap_or_default();
        let word = command.as_ref().map(|command| words::upper(command.name())).unwrap_or_default();
        let first = Finish::Merge(Merge::First);
        if word.as_slice() == b"PING" {
            let listening = self.servers.iter().filter(|(_, server)| server.listens && server.up.is_some());
            let listening: Vec<SocketAddr> = listening.map(|(server, _)| *server).collect();
            if listening.len() > 1 {
                return self.fan_out(step, store, &listening, first);
            }
        } else if word.ends_with(b"SUBSCRIBE") && is_of_keys(name) {
            let servers = self.stewarded.clone();
            if servers.is_empty() {
                let confirmed = SmallVec::from_elem(Bytes::from_static(b">0\r\n"), 1);
                let replies = StorageEvent::Replies { ticket: store.ticket, replies: confirmed };
                return step.report(replies);
            }
            return self.fan_out(step, store, &servers, first);
        }
        self.pass(step, self.anchor, store);
    }

    /// Whether a message is one that no other server's connection brings, too.
    pub(super) fn is_for_us(&self, server: SocketAddr, push: &[u8]) -> bool {
        let shard = push.get(4..).is_some_and(|word| word.starts_with(b"$8\r\nsmessage"));
        self.anchor == Some(server) || shard || push.windows(5).any(|part| part == b"__key")
    }
}

fn is_resp3(lane: Lane) -> bool {
    match lane {
        Lane::Shared { resp3 } | Lane::Pinned { resp3 } | Lane::Scripts { resp3 } => resp3,
        Lane::Watching { resp3, .. } => resp3,
        Lane::Subscriber | Lane::Feed | Lane::ReadFeed => true,
    }
}

/// A router's question, who puts the servers' lists together.
fn lists_users(command: &Command) -> bool {
    words::is(command, 0, "ACL") && words::is(command, 1, "LIST")
}

fn is_of_keys(name: &[u8]) -> bool {
    name.starts_with(b"__key")
}

/// Asks for a key of this slot that nobody has.
fn probe(of: u16) -> Bytes {
    let names = (0u32..).map(|number| format!("distcache:proof:{{{number}}}"));
    let name = names.into_iter().find(|name| slot::slot(name.as_bytes()) == of);
    Command::from_args(&["EXISTS", &name.unwrap_or_default()]).frame().clone()
}

fn refuse(step: &mut ShardsStep<'_>, store: &Store, text: &str) {
    let error = Bytes::copy_from_slice(text.as_bytes());
    let mut replies = SmallVec::from_elem(error, store.commands.len());
    let last = replies.len() - 1;
    replies[..last].fill(Bytes::from_static(b"+QUEUED\r\n"));
    step.report(StorageEvent::Replies { ticket: store.ticket, replies });
}

/// What a server without keys, clients, users and scripts would say, where it is one of several that are asked.
fn empty(plan: &CommandPlan, command: &Command, resp3: bool) -> Option<Bytes> {
    let mut out = Vec::new();
    match plan {
        CommandPlan::Scan => out.extend_from_slice(b"*2\r\n$1\r\n0\r\n*0\r\n"),
        CommandPlan::RandomKey => reply::null(resp3, &mut out),
        CommandPlan::Info => reply::bulk(b"", &mut out),
        CommandPlan::Everywhere(Merge::Sum) => reply::integer(0, &mut out),
        CommandPlan::Users if words::is(command, 1, "DELUSER") => reply::integer(0, &mut out),
        CommandPlan::Everywhere(Merge::Any) => {
            out.extend_from_slice(b"-NOTBUSY No scripts in execution right now.\r\n");
        }
        CommandPlan::Everywhere(Merge::Everywhere) => {
            let count = command.len().saturating_sub(2);
            reply::array_header(count, &mut out);
            (0..count).for_each(|_| reply::integer(1, &mut out));
        }
        CommandPlan::Everywhere(Merge::Concatenation | Merge::Union | Merge::Counts) => {
            reply::array_header(0, &mut out);
        }
        CommandPlan::Everywhere(_) | CommandPlan::Users => out.extend_from_slice(reply::OK),
        _ if lists_users(command) => reply::array_header(0, &mut out),
        _ => return None,
    }
    Some(out.into())
}
