//! The users of storage: asked of its servers every second and after every change, and put together. Not what each of
//! them may do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::{Command, Value};
use wire::{Peer, ShimId, Status};

use crate::router::flow::answer::Freed;
use crate::router::flow::dispatch::Origin;
use crate::router::flow::gather::{self, Merge};
use crate::router::flow::pipeline::{Part, PartReply, Progress};
use crate::router::flow::plan;
use crate::router::{Effect, Router, UserSource};
use crate::time::Time;
use commands::CommandKind;
use commands::acl::{FENCE_PREFIX, Users};

const ACL_LIST: &[u8] = b"*2\r\n$3\r\nACL\r\n$4\r\nLIST\r\n";
/// Whose requests the router's own are: no client has this place.
pub(crate) const NOBODY: u32 = u32::MAX;
/// How long a change that was made at a server itself, or through another router, may go unnoticed.
const EVERY: Duration = Duration::from_secs(1);
/// As long as nobody is let in, servers are asked more often.
const EVERY_FIRST: Duration = Duration::from_millis(50);

/// What the servers said last.
#[derive(Debug, Default)]
pub(crate) struct StorageUsers {
    servers: Vec<Server>,
    next: Time,
    /// Users that are not the same everywhere.
    pub(crate) differing: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Server {
    asked: bool,
    reply: Bytes,
    /// Of each server there, when it has told them.
    lists: Vec<Vec<Bytes>>,
}

impl StorageUsers {
    fn server(&mut self, index: usize) -> &mut Server {
        if self.servers.len() <= index {
            self.servers.resize_with(index + 1, Server::default);
        }
        &mut self.servers[index]
    }

    /// Whether this is news.
    fn take(&mut self, index: usize, reply: &PartReply) -> bool {
        let server = self.server(index);
        if reply.status != Status::Ok || server.reply == reply.value {
            return false;
        }
        let Ok(value) = Value::parse(&reply.value) else { return false };
        let Some(elements) = value.elements() else { return false };
        // The shim of a Redis Cluster speaks for several servers, or for none.
        server.lists = match elements.iter().map(Value::elements).collect::<Option<Vec<_>>>() {
            Some(servers) => servers.into_iter().map(lines).collect(),
            None => vec![lines(elements)],
        };
        server.reply = Bytes::copy_from_slice(&reply.value);
        true
    }
}

fn lines(list: &[Value]) -> Vec<Bytes> {
    // Copies: slices would keep the buffer of a whole read alive.
    list.iter().filter_map(Value::bytes).map(|line| Bytes::copy_from_slice(line)).collect()
}

/// Whether the command changes users at storage. Those that fence the connections of shims are not for clients.
pub(crate) fn changes_users(command: &Command) -> bool {
    let is_change = ["SETUSER", "DELUSER", "LOAD", "SAVE"].iter().any(|sub| plan::is(command, 1, sub));
    plan::is(command, 0, "ACL") && is_change && !names_fences(command)
}

pub(crate) fn names_fences(command: &Command) -> bool {
    let fence = |name: Option<&[u8]>| name.is_some_and(|name| name.starts_with(FENCE_PREFIX));
    match plan::is(command, 1, "DELUSER") {
        true => (2..command.len()).any(|index| fence(command.get(index))),
        false => plan::is(command, 1, "SETUSER") && fence(command.get(2)),
    }
}

impl Router {
    /// Users that are not defined alike at all servers: the strictest counts.
    pub fn users_differing(&self) -> &[String] {
        &self.storage_users.differing
    }

    pub(crate) fn asks_for_users(&self) -> bool {
        matches!(self.config.users, UserSource::Storage)
    }

    /// When it is time.
    pub(crate) fn ask_for_users(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if !self.asks_for_users() || now < self.storage_users.next {
            return;
        }
        let Some(placement) = self.placement.clone() else { return };
        let every = if self.permissions.known() { EVERY } else { EVERY_FIRST };
        self.storage_users.next = now.after(every);
        for shim in placement.map().shims.iter().map(|shim| shim.id) {
            let index = usize::from(shim.0);
            if self.shim_linked(shim) && !self.storage_users.server(index).asked {
                self.storage_users.server(index).asked = true;
                let origin =
                    Origin { client: NOBODY, part: index as u32, sequence: 0, resp3: false, waited_ms: 0 };
                self.send_keyless(origin, CommandKind::Keyless, shim, &Bytes::from_static(ACL_LIST), effects);
            }
        }
    }

    /// What a server answers to that, or that it is gone.
    pub(crate) fn told_users(&mut self, origin: Origin, reply: &PartReply, effects: &mut Vec<Effect>) {
        let index = origin.part as usize;
        self.storage_users.server(index).asked = false;
        if self.storage_users.take(index, reply) {
            self.adopt_users_of_storage(None, effects);
        }
    }

    fn adopt_users_of_storage(&mut self, asking: Option<u32>, effects: &mut Vec<Effect>) {
        let lists: Vec<Vec<Bytes>> =
            self.storage_users.servers.iter().flat_map(|server| server.lists.clone()).collect();
        if lists.is_empty() {
            return;
        }
        let (users, differing) = Users::of_storage(&lists);
        self.storage_users.differing = differing;
        self.adopt_users(Arc::new(users), asking, effects);
    }

    /// All servers have answered a change, or told their users after it: the client hears of it when its router acts on
    /// it.
    pub(crate) fn users_changed(&mut self, now: Time, origin: Origin, effects: &mut Vec<Effect>) {
        let operation = self.clients.get_mut(origin.client);
        let operation = operation.and_then(|state| state.pipeline.get_mut(origin.sequence));
        let Some(Progress::Fan(fan)) = operation.map(|operation| &mut operation.progress) else { return };
        let parts: Vec<Part> = fan.parts.drain(..).collect();
        let told = match &mut fan.merge {
            Merge::Users { told } => told.take(),
            _ => None,
        };
        let shims: Vec<ShimId> = parts
            .iter()
            .filter_map(|part| match part.sent.peer {
                Peer::Shim(shim) => Some(shim),
                Peer::Node(_) | Peer::Router(_) => None,
            })
            .collect();
        let replies: Vec<PartReply> = parts.into_iter().filter_map(|part| part.reply).collect();
        let reply = match told {
            Some(reply) => {
                for (shim, list) in shims.iter().zip(&replies) {
                    self.storage_users.take(usize::from(shim.0), list);
                }
                self.adopt_users_of_storage(Some(origin.client), effects);
                reply
            }
            None => {
                let merged = gather::merge(&Merge::Largest, &replies, origin.resp3);
                if !merged.starts_with(b"-") {
                    return self.list_again(origin, &shims, merged, effects);
                }
                merged
            }
        };
        let state = self.clients.get_mut(origin.client);
        if let Some(operation) = state.and_then(|state| state.pipeline.get_mut(origin.sequence)) {
            operation.progress = Progress::Done(reply);
        }
        self.advance(now, origin.client, Freed::All, effects);
    }

    /// On the connection of the regular question, so that no older answer to that can come after the one to this.
    fn list_again(&mut self, origin: Origin, shims: &[ShimId], told: Bytes, effects: &mut Vec<Effect>) {
        let mut parts = Vec::with_capacity(shims.len());
        for (part, shim) in shims.iter().enumerate() {
            let origin = Origin { part: part as u32, resp3: false, ..origin };
            let frame = Bytes::from_static(ACL_LIST);
            let sent = self.send_keyless(origin, CommandKind::Keyless, *shim, &frame, effects);
            parts.push(Part { sent, touch: SmallVec::new(), reply: None });
        }
        let client = self.clients.get_mut(origin.client);
        let operation = client.and_then(|client| client.pipeline.get_mut(origin.sequence));
        if let Some(Progress::Fan(fan)) = operation.map(|operation| &mut operation.progress) {
            fan.outstanding = parts.len();
            fan.parts = parts;
            fan.merge = Merge::Users { told: Some(told) };
        }
    }
}
