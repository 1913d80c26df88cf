//! A place in the cluster and the process that runs there, if one does. Not what it says.

use std::collections::VecDeque;

use protocol::controller::Controller;
use protocol::node::Node;
use protocol::router::Router;
use protocol::shim::Shim;
use wire::{NodeId, Peer, RouterId, ShimId};

use crate::cast::Cast;
use crate::clock::HostClock;
use crate::event::SimEvent;
use crate::following::SimFollower;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRole {
    Node(NodeId),
    Shim(ShimId),
    Router(RouterId),
    Controller,
}

impl HostRole {
    /// How links name it; nobody has a link with a controller.
    pub(crate) fn peer(self) -> Option<Peer> {
        match self {
            HostRole::Node(id) => Some(Peer::Node(id)),
            HostRole::Shim(id) => Some(Peer::Shim(id)),
            HostRole::Router(id) => Some(Peer::Router(id)),
            HostRole::Controller => None,
        }
    }
}

pub(crate) enum Machine {
    Node(Box<Node>),
    Shim(Box<Shim>),
    Router(Box<Router>),
    Controller(Box<Controller<Cast>>),
}

pub(crate) struct Host {
    pub(crate) role: HostRole,
    pub(crate) machine: Option<Machine>,
    pub(crate) clock: HostClock,
    pub(crate) paused_until: u64,
    /// The pause begins between the next step and its effects.
    pub(crate) pause_in_hand: Option<u64>,
    /// When it was told which rules last.
    pub(crate) reloaded: (u64, u32),
    /// When its machine had a tick last.
    pub(crate) ticked: u64,
    /// Tells what is meant for this process from what was meant for those that were here before.
    pub(crate) life: u32,
    pub(crate) follower: SimFollower,
    /// What has reached a paused process.
    pub(crate) parked: VecDeque<SimEvent>,
}

impl Host {
    pub(crate) fn new(role: HostRole, clock: HostClock, follower: SimFollower) -> Host {
        let (machine, pause_in_hand) = (None, None);
        Host {
            role,
            machine,
            clock,
            paused_until: 0,
            pause_in_hand,
            reloaded: (0, 0),
            ticked: 0,
            life: 0,
            follower,
            parked: VecDeque::new(),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(crate) fn is_paused(&self, now: u64) -> bool {
        self.paused_until > now
    }

    /// Whether what happens now waits for the end of a pause: nothing overtakes what waits for it already.
    pub(crate) fn parks(&self, now: u64) -> bool {
        self.is_paused(now) || !self.parked.is_empty()
    }

    pub(crate) fn is_awake(&self, now: u64) -> bool {
        self.is_alive() && !self.is_paused(now)
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        match &self.machine {
            Some(Machine::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// The node that may hold copies here: a router has one of its own.
    pub(crate) fn holder(&self) -> Option<&Node> {
        match &self.machine {
            Some(Machine::Node(node)) => Some(node),
            Some(Machine::Router(router)) => router.near(),
            _ => None,
        }
    }

    pub(crate) fn shim(&self) -> Option<&Shim> {
        match &self.machine {
            Some(Machine::Shim(shim)) => Some(shim),
            _ => None,
        }
    }

    pub(crate) fn router(&self) -> Option<&Router> {
        match &self.machine {
            Some(Machine::Router(router)) => Some(router),
            _ => None,
        }
    }

    pub(crate) fn controller(&self) -> Option<&Controller<Cast>> {
        match &self.machine {
            Some(Machine::Controller(controller)) => Some(controller),
            _ => None,
        }
    }
}
