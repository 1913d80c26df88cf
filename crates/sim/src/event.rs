//! What happens in a simulated cluster at a time. Not what it does.

use protocol::controller::Heartbeat;
use protocol::node;
use protocol::router;
use protocol::shim;
use wire::resp::Command;
use wire::{Message, NodeId};

use crate::following::Told;
use crate::network::{HostId, Place};
use crate::storage::site::WireEvent;

/// What happens at a time.
#[derive(Debug)]
pub(crate) enum SimEvent {
    Deliver {
        place: Place,
        life: u32,
    },
    /// A message that left its order: `life` is the link's, if it must not outlive it.
    Late {
        link: usize,
        from: usize,
        life: Option<u32>,
        message: Message,
    },
    Tell {
        link: usize,
        side: usize,
        life: u32,
        up: bool,
    },
    Dial {
        link: usize,
    },
    Tick {
        host: HostId,
        life: u32,
    },
    Wake {
        host: HostId,
        life: u32,
    },
    /// What a process wanted when it was paused.
    Effects {
        host: HostId,
        life: u32,
        effects: Effects,
    },
    /// At a storage server, or at a connection to it.
    Wire {
        server: usize,
        event: WireEvent,
    },
    /// A storage server goes on after a pause.
    Awake {
        server: usize,
    },
    /// A storage server ends, and comes back as it was a while ago.
    Rollback {
        server: usize,
    },
    /// Whether a shim that hands over has done so; at `until` it is ended in any case.
    HandsOver {
        server: usize,
        life: u32,
        until: u64,
    },
    /// A process is told what may be cached now.
    Reload {
        host: HostId,
        life: u32,
    },
    /// Somebody writes to storage directly.
    Outsider,
    /// A client reads again what it has just heard to have changed.
    Refresh {
        client: usize,
        key: usize,
    },
    Client {
        client: usize,
    },
    Command {
        host: HostId,
        client: usize,
        connection: u32,
        command: Command,
    },
    Cancel {
        client: usize,
        connection: u32,
    },
    /// To the controller that this agent is for.
    Heartbeat {
        host: HostId,
        life: u32,
        agent: usize,
    },
    Map {
        host: HostId,
        life: u32,
        told: Told,
    },
    /// The operator adds members.
    Grow,
    /// The operator takes what does not belong there out of the controllers' store.
    Mend,
    /// A heartbeat that a controller has taken, in that life, reaches it again.
    Repeat {
        host: HostId,
        life: u32,
        heartbeat: Heartbeat,
    },
    /// What a controller proposed reaches its store.
    Propose {
        host: HostId,
        life: u32,
    },
    Start {
        host: HostId,
    },
    Kill {
        host: HostId,
        life: u32,
    },
    /// The operator takes a node's partition away, or lets it have it again.
    Operator {
        node: NodeId,
        drained: bool,
    },
    Fault,
    Inspect,
}

/// What a machine wants, by role.
#[derive(Debug)]
pub(crate) enum Effects {
    Node(Vec<node::Effect>),
    Shim(Vec<shim::Effect>),
    Router(Vec<router::Effect>),
}
