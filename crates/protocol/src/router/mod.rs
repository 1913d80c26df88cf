//! The router's machine: clients' commands in, messages to nodes and shims out, replies back in order. No sockets.
//!
//! It is two rooms with a seam:
//!
//! ```text
//!  Input of a client                                                    Input of a member
//!        │                                                                     │
//!  ┌─────▼───────────────────────────┐  begin, answer, subscribe, …  ┌─────────▼──────────────────────┐
//!  │ front: sessions                 │ ────────────────────────────▶ │ flow: requests                 │
//!  │  who a client is, what it may,  │                               │  order, plan, route, windows,  │
//!  │  what it has set up; ACL, INFO, │                               │  retries, parts, replies in    │
//!  │  MULTI, subscriptions, tracking │ ◀──────────────────────────── │  their order                   │
//!  └─────────────────────────────────┘  Event, one after the other   └────────────────────────────────┘
//! ```
//!
//! The front calls the flow and reads from it; the flow knows nothing of the front. What it has to tell is an `FlowEvent`, which
//! `step` hands to the front before the flow goes on, until there is none. So effects keep the order of their causes, and
//! nothing calls itself.

use std::sync::Arc;

use bytes::Bytes;
use wire::memcached::MemcachedRequest;
use wire::resp::{Command, ProtocolError};
use wire::{Message, Peer};

mod config;
mod effect;
mod figures;
pub(crate) mod flow;
mod front;
mod replies;
mod settings;
mod siblings;
mod statistics;
mod step;
mod surface;
pub(crate) mod words;

pub use config::{ClientLimits, RouterConfig, Routing, UserSource};
pub use effect::{ClientId, CloseReason, Effect};
pub use flow::ran::RequestSpan;
pub use front::closing::Holdings;
pub use front::hot_keys::ClusterHotKey;
pub use front::spans::CommandSpan;
pub use settings::{NearSettings, RouterSettings, SlowLogSettings};
pub use siblings::{Notification, SiblingMessage, ThreadClient, ThreadPlace};
pub use statistics::{Latencies, RouterStatistics};
pub use surface::{CommandClass, CommandSpread, Treatment, shortest, surface};

/// The version of Redis whose behaviour clients get, as HELLO and INFO tell them.
pub use commands::REDIS_VERSION;

use crate::placement::Placement;
use crate::time::Time;
use commands::acl::Users;
use flow::Flow;
use front::Front;
use front::desk::Desk;
use step::RouterStep;

/// Everything a router can see.
#[derive(Clone, Debug)]
pub enum Input {
    Opened {
        client: ClientId,
    },
    /// Where an open client comes from and where it came to, as CLIENT LIST shows them.
    Known {
        client: ClientId,
        address: String,
        local_address: String,
    },
    /// Only while `ready(client)`.
    Command {
        client: ClientId,
        command: Command,
    },
    /// The same of a client that speaks memcached.
    Memcached {
        client: ClientId,
        request: MemcachedRequest,
    },
    /// What the client sent is no memcached text; after this answer, if any, and its earlier replies it is closed.
    Garbled {
        client: ClientId,
        told: Bytes,
    },
    /// What the client sent is no command; it is told, after its earlier replies, and closed.
    Malformed {
        client: ClientId,
        error: ProtocolError,
    },
    /// The client sends no more, but reads: it is closed once it has its replies, up to a command that blocks.
    Ended {
        client: ClientId,
    },
    Closed {
        client: ClientId,
    },
    /// The client has been given every `Effect::Part` so far and has taken them.
    Drained {
        client: ClientId,
    },
    Message {
        from: Peer,
        message: Message,
    },
    Linked(Peer),
    Unlinked(Peer),
    Map(Arc<Placement>),
    /// What has changed in the configuration while serving.
    Settings(RouterSettings),
    /// The hottest keys of the cluster, as a controller told them last.
    HotKeys(Vec<ClusterHotKey>),
    /// Other users from now on, unless they are storage's.
    Users(Arc<Users>),
    /// Stop: give up every near copy, so that no write waits for this router's leases.
    Drain,
    /// What another thread of the same router says.
    Sibling {
        thread: u16,
        message: Box<SiblingMessage>,
    },
    /// What the connections of all clients hold, some times a second and when it is too much.
    Held {
        clients: Vec<Holdings>,
        /// The same of the router's other threads together.
        elsewhere_bytes: u64,
    },
    Tick,
}

/// One router. Deterministic: the same inputs at the same times give the same effects.
#[derive(Debug)]
pub struct Router {
    config: RouterConfig,
    counters: RouterStatistics,
    front: Front,
    flow: Flow,
}

impl Router {
    pub fn new(config: RouterConfig) -> Router {
        let (front, flow) = (Front::new(&config), Flow::new(&config));
        Router { config, counters: RouterStatistics::default(), front, flow }
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        if let Input::Settings(settings) = &input {
            self.set(settings);
        }
        let before = effects.len();
        let Router { config, counters, front, flow } = self;
        let desk = &mut Desk { flow, step: RouterStep { now, config, counters, effects } };
        match input {
            Input::Message { from, message } => take_message(front, desk, from, message),
            Input::Linked(_) | Input::Unlinked(_) | Input::Map(_) => take_member(front, desk, input),
            Input::Tick => {
                front.rate.tick(now, desk.step.counters.requests);
                front.ask_for_users(desk);
                front.tell_of_scripts(desk);
                desk.flow.tick(&mut desk.step);
            }
            Input::HotKeys(hot) => front.hot = Some(hot),
            Input::Users(users) => {
                if matches!(desk.step.config.users, UserSource::Given(_)) {
                    front.adopt_users(desk, users, None);
                }
            }
            Input::Sibling { thread, message } => front.sibling(desk, thread, *message),
            Input::Held { clients, elsewhere_bytes } => {
                front.close_clients(desk, &clients, elsewhere_bytes);
            }
            Input::Settings(_) => desk.flow.set_near(&mut desk.step),
            Input::Drain => desk.flow.drain(&mut desk.step),
            of_client => take_client(front, desk, of_client),
        }
        settle(front, desk);
        desk.flow.deal_turns();
        settle(front, desk);
        front.forget_tracked(desk);
        desk.flow.tell_unblocked(&mut desk.step);
        settle(front, desk);
        front.killed.drain(..).for_each(|client| desk.step.close(client));
        desk.flow.hold_back(&mut desk.step, before);
    }

    fn set(&mut self, settings: &RouterSettings) {
        if settings.learned_max != self.config.settings.learned_max {
            self.flow.set_learned_max(settings.learned_max);
        }
        self.front.slow_log.set(settings.slow_log);
        self.front.sampler.set(settings.spans_one_in);
        self.config.settings = settings.clone();
    }
}

/// Hands the front what the flow has to tell, until there is nothing. Each event has taken a command, a request or a turn
/// off, so there is an end.
fn settle(front: &mut Front, desk: &mut Desk<'_>) {
    while let Some(event) = desk.flow.next(&mut desk.step) {
        front.take(desk, event);
    }
}

fn take_client(front: &mut Front, desk: &mut Desk<'_>, input: Input) {
    match input {
        Input::Opened { client } => front.opened(desk, client),
        Input::Known { client, address, local_address } => {
            if let Some(session) = front.sessions.get_mut(client.0) {
                session.known = Some(Box::new((address, local_address)));
            }
        }
        Input::Command { client, command } => front.redis_command(desk, client.0, command),
        Input::Memcached { client, request } => {
            for step in front.memcached_steps(desk, client.0, request) {
                front.memcached_step(desk, client.0, step);
                settle(front, desk);
            }
        }
        Input::Garbled { client, told } => front.hang_up(desk, client.0, told),
        Input::Malformed { client, error } => front.malformed(desk, client.0, &error),
        Input::Ended { client } => front.ended(desk, client.0),
        Input::Closed { client } => front.closed(desk, client.0),
        Input::Drained { client } => desk.flow.drained(&mut desk.step, client.0),
        _ => {}
    }
}

fn take_member(front: &mut Front, desk: &mut Desk<'_>, input: Input) {
    match input {
        Input::Linked(peer) => {
            desk.flow.linked(&mut desk.step, peer);
            if let Peer::Shim(shim) = peer {
                front.subscribe_again(desk, shim);
            }
        }
        Input::Unlinked(peer) => {
            desk.flow.unlinked(&mut desk.step, peer);
            if let Peer::Shim(shim) = peer {
                front.all_changed(desk, shim);
            }
        }
        Input::Map(placement) => {
            let before = desk.flow.placement().cloned();
            desk.flow.take_map(&mut desk.step, placement);
            if let Some(before) = before {
                front.subscribe_elsewhere(desk, &before);
            }
        }
        _ => {}
    }
}

fn take_message(front: &mut Front, desk: &mut Desk<'_>, from: Peer, message: Message) {
    match message {
        Message::Reply(reply) => desk.flow.reply(&mut desk.step, from, reply),
        Message::Part(part) => desk.flow.part(&mut desk.step, from, part),
        Message::Deliver(deliver) => front.delivered(desk, deliver),
        Message::Changed(changed) => front.changed(desk, from, &changed),
        Message::Handover(handover) => desk.flow.told_handover(&mut desk.step, from, &handover),
        Message::Window(window) => desk.flow.told_window(&desk.step, from, &window),
        // Peers send a router nothing else; what comes anyway is as late as can be.
        message => {
            if !desk.flow.told_of_copies(&mut desk.step, from, message) {
                desk.step.counters.late_replies += 1;
            }
        }
    }
}
