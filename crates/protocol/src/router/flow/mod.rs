//! One request's way to nodes and shims, and its reply's way back in order. Not what a client may ask for.
//!
//! The front hands a command over with `begin`, or a reply of its own with `answer`: each takes its place in its client's
//! pipeline. What the flow has to tell comes back from `next`, one `FlowEvent` after the other, until there is none.

pub(crate) mod advance;
pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod begin;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod callers;
pub(crate) mod clients;
mod elastic;
pub(crate) mod event;
pub(crate) mod figures;
pub(crate) mod follow;
pub(crate) mod gather;
pub(crate) mod handover;
pub(crate) mod interest;
pub(crate) mod keyless;
mod known_places;
pub(crate) mod launch;
pub(crate) mod learned;
pub(crate) mod links;
pub(crate) mod members;
mod near;
pub(crate) mod parts;
pub(crate) mod pause;
pub(crate) mod pending;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod planned;
pub(crate) mod ran;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod route;
pub(crate) mod send;
pub(crate) mod storage_info;
pub(crate) mod stream;
pub(crate) mod streaming;
pub(crate) mod topics;
pub(crate) mod touch;
mod touched;
pub(crate) mod traffic;
pub(crate) mod turns;
pub(crate) mod unblock;
pub(crate) mod watch;
pub(crate) mod watched;
pub(crate) mod window;

use wire::Peer;

use crate::router::config::RouterConfig;
use crate::time::Time;
use callers::Callers;
use event::Todos;
use pause::ClientPause;
use traffic::RequestTraffic;

#[derive(Debug)]
pub(crate) struct Flow {
    callers: Callers,
    traffic: RequestTraffic,
    todos: Todos,
    pause: Option<ClientPause>,
    /// In this step.
    unblocked: Vec<Unblocked>,
    /// When commands that have waited for too long were looked for.
    expiry: Time,
}

/// A request that blocks and is to end, and whether with an error.
#[derive(Clone, Copy, Debug)]
struct Unblocked {
    peer: Peer,
    request: u64,
    error: bool,
}

impl Flow {
    pub(crate) fn new(config: &RouterConfig) -> Flow {
        Flow {
            callers: Callers::default(),
            traffic: RequestTraffic::new(config),
            todos: Todos::default(),
            pause: None,
            unblocked: Vec::new(),
            expiry: Time(0),
        }
    }

    /// Holds commands for storage back, for as long as this and earlier pauses say.
    pub(crate) fn pause(&mut self, pause: ClientPause) {
        self.pause = Some(self.pause.map_or(pause, |before| before.joined(pause)));
    }

    /// Clients go on with the next tick.
    pub(crate) fn unpause(&mut self, now: Time) {
        if let Some(pause) = &mut self.pause {
            pause.until = now;
        }
    }

    /// Puts another pause in the place of the present one, which it returns.
    pub(crate) fn swap_pause(&mut self, pause: Option<ClientPause>) -> Option<ClientPause> {
        std::mem::replace(&mut self.pause, pause)
    }

    /// The pause that holds commands back now.
    pub(crate) fn paused(&self) -> Option<ClientPause> {
        self.pause
    }
}
