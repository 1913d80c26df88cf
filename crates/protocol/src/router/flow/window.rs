//! How many requests may be under way at each node and shim, and who waits for room there. Not what is sent then.
//!
//! A command for which there is no room waits unsent in its client's pipeline, so that a later one never overtakes it.
//! Turns are dealt to the clients one by one, each some of its oldest commands, however many it has. Who has nothing else
//! under way has every other turn: one that asks for a single thing does not wait for hundreds who ask for hundreds. One whose
//! commands go to several members waits for them one after the other, in the order of their names: it may exceed the windows
//! that it has waited for, and cannot wait for ever.

use std::collections::VecDeque;

use smallvec::SmallVec;
use wire::message::Window as Told;
use wire::{NodeId, Peer, ShimId};

use crate::router::flow::callers::{Caller, Callers};
use crate::router::flow::pending::PendingTable;
use crate::router::flow::pipeline::RoomTurn;

/// What a member takes that has not said anything yet.
const WINDOW_START: u32 = 1024;

/// A member's window, and the clients that wait for room in it: each once, with its number.
#[derive(Debug)]
struct Window {
    limit: u32,
    /// Clients whose command is the only one of theirs that is under way.
    single: VecDeque<(u32, u64)>,
    others: VecDeque<(u32, u64)>,
    /// Commands of all of them.
    commands: usize,
    /// Whose turn was last.
    last_single: bool,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            limit: Told::UNLIMITED,
            single: VecDeque::new(),
            others: VecDeque::new(),
            commands: 0,
            last_single: false,
        }
    }
}

impl Window {
    fn is_crowded(&self) -> bool {
        !self.single.is_empty() || !self.others.is_empty()
    }

    fn clients(&self) -> usize {
        self.single.len() + self.others.len()
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        self.last_single = !self.single.is_empty() && (!self.last_single || self.others.is_empty());
        if self.last_single { self.single.pop_front() } else { self.others.pop_front() }
    }

    fn retain(&mut self, mut stays: impl FnMut(&(u32, u64)) -> bool) {
        self.single.retain(&mut stays);
        self.others.retain(stays);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Windows {
    nodes: Vec<Window>,
    shims: Vec<Window>,
    /// Clients in all of them.
    waiting: usize,
}

impl Windows {
    fn get(&self, peer: Peer) -> Option<&Window> {
        match peer {
            Peer::Node(node) => self.nodes.get(usize::from(node.0)),
            Peer::Shim(shim) => self.shims.get(usize::from(shim.0)),
            Peer::Router(_) => None,
        }
    }

    fn slot(&mut self, peer: Peer) -> Option<&mut Window> {
        let (windows, index) = match peer {
            Peer::Node(node) => (&mut self.nodes, usize::from(node.0)),
            Peer::Shim(shim) => (&mut self.shims, usize::from(shim.0)),
            Peer::Router(_) => return None,
        };
        if windows.len() <= index {
            windows.resize_with(index + 1, Window::default);
        }
        windows.get_mut(index)
    }

    fn set(&mut self, peer: Peer, limit: u32) {
        if let Some(window) = self.slot(peer) {
            window.limit = limit;
        }
    }

    pub(crate) fn told(&mut self, from: Peer, told: &Told) {
        self.set(from, told.requests.max(1));
    }

    /// What waits for a member that is gone is dealt its turn, and so finds out.
    pub(crate) fn linked(&mut self, peer: Peer, linked: bool) {
        self.set(peer, if linked { WINDOW_START } else { Told::UNLIMITED });
    }

    /// Whether one more request may be sent there at once.
    pub(crate) fn has_window(&self, pending: &PendingTable, peer: Peer) -> bool {
        let crowded = self.get(peer).is_some_and(Window::is_crowded);
        !crowded && self.has_room(pending, peer)
    }

    /// The same for whose turn it is.
    pub(crate) fn has_room(&self, pending: &PendingTable, peer: Peer) -> bool {
        self.get(peer).is_none_or(|window| pending.under_way(peer) < window.limit)
    }

    /// Commands that would have their turn there before one that comes now.
    pub(crate) fn queue(&self, pending: &PendingTable, peer: Peer) -> usize {
        let waiting = self.get(peer).map_or(0, |window| window.commands);
        waiting + usize::from(!self.has_room(pending, peer))
    }

    /// A command of the client's pipeline waits for room from now on.
    pub(crate) fn wait(&mut self, client: u32, caller: &mut Caller, turn: RoomTurn) {
        if let Some(window) = self.slot(turn.peer) {
            window.commands += 1;
        }
        if caller.pipeline.await_turn(turn) {
            let single = caller.pipeline.first() == turn.sequence;
            self.push(turn.peer, (client, caller.number), single);
        }
    }

    pub(crate) fn push(&mut self, peer: Peer, client: (u32, u64), single: bool) {
        if let Some(window) = self.slot(peer) {
            if single { &mut window.single } else { &mut window.others }.push_back(client);
            self.waiting += 1;
        }
    }

    /// A command waits there no longer.
    pub(crate) fn left(&mut self, peer: Peer) {
        if let Some(window) = self.slot(peer) {
            window.commands -= 1;
        }
    }

    pub(crate) fn pop(&mut self, peer: Peer) -> Option<(u32, u64)> {
        let client = self.slot(peer)?.pop()?;
        self.waiting -= 1;
        Some(client)
    }

    /// Members before which clients wait.
    pub(crate) fn crowded(&self) -> SmallVec<[Peer; 8]> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, window)| window.is_crowded());
        let nodes = nodes.map(|(index, _)| Peer::Node(NodeId(index as u16)));
        let shims = self.shims.iter().enumerate().filter(|(_, window)| window.is_crowded());
        nodes.chain(shims.map(|(index, _)| Peer::Shim(ShimId(index as u16)))).collect()
    }

    pub(crate) fn anybody_waits(&self) -> bool {
        self.waiting > 0
    }

    /// Clients that have gone, or have nothing left that waits, give up their places.
    pub(crate) fn forget_absent(&mut self, callers: &Callers) {
        for peer in self.crowded() {
            let Some(window) = self.slot(peer) else { continue };
            window.retain(|(client, number)| {
                let caller = callers.get(*client).filter(|caller| caller.number == *number);
                caller.is_some_and(|caller| caller.pipeline.first_turn(peer).is_some())
            });
        }
        self.waiting = self.nodes.iter().chain(&self.shims).map(Window::clients).sum();
    }
}
