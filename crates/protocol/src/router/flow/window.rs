//! How many requests may be under way at each node and shim, and whose turn it is when there is room for one more. Not what
//! is sent then.
//!
//! A command for which there is no room waits unsent in its client's pipeline, so that a later one never overtakes it.
//! Turns are dealt to the clients one by one, each some of its oldest commands, however many it has. Who has nothing else
//! under way has every other turn: one that asks for a single thing does not wait for hundreds who ask for hundreds. One whose
//! commands go to several members waits for them one after the other, in the order of their names: it may exceed the windows
//! that it has waited for, and cannot wait for ever.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::Window as Told;
use wire::{Peer, ShimId};

use crate::router::flow::answer::Freed;
use crate::router::flow::dispatch::Job;
use crate::router::flow::pipeline::{Progress, Turn};
use crate::router::{Effect, Router, replies};
use crate::time::Time;

/// What a member takes that has not said anything yet.
const WINDOW_START: u32 = 1024;
/// How often commands that have waited for too long are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

/// Commands of a client that may wait for room, and leave in one turn. With fewer, fewer replies share a write. With more, the
/// others wait for longer, and more replies that are there already wait behind them: under overload a client lacks about as
/// many for as long as it lasts.
pub(crate) const TURN_COMMANDS: usize = 8;

/// A member's window, and the clients that wait for room in it: each once, with its number.
#[derive(Debug)]
struct Window {
    limit: u32,
    /// Those whose command is the only one of theirs that is under way.
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
    expiry: Time,
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

    fn push(&mut self, peer: Peer, client: (u32, u64), single: bool) {
        if let Some(window) = self.slot(peer) {
            if single { &mut window.single } else { &mut window.others }.push_back(client);
            self.waiting += 1;
        }
    }

    fn awaited(&mut self, peer: Peer) {
        if let Some(window) = self.slot(peer) {
            window.commands += 1;
        }
    }

    /// A command waits there no longer.
    pub(crate) fn left(&mut self, peer: Peer) {
        if let Some(window) = self.slot(peer) {
            window.commands -= 1;
        }
    }

    fn pop(&mut self, peer: Peer) -> Option<(u32, u64)> {
        let client = self.slot(peer)?.pop()?;
        self.waiting -= 1;
        Some(client)
    }

    /// Members before which clients wait.
    fn crowded(&self) -> SmallVec<[Peer; 8]> {
        let nodes = self.nodes.iter().enumerate().filter(|(_, window)| window.is_crowded());
        let nodes = nodes.map(|(index, _)| Peer::Node(wire::NodeId(index as u16)));
        let shims = self.shims.iter().enumerate().filter(|(_, window)| window.is_crowded());
        nodes.chain(shims.map(|(index, _)| Peer::Shim(ShimId(index as u16)))).collect()
    }
}

impl Router {
    pub(crate) fn window_told(&mut self, from: Peer, told: &Told) {
        self.windows.set(from, told.requests.max(1));
        if let Peer::Node(node) = from
            && let Some(breaker) = self.breakers.get_mut(usize::from(node.0))
        {
            breaker.alive(self.now);
        }
    }

    /// What waits for a member that is gone is dealt its turn, and so finds out.
    pub(crate) fn window_linked(&mut self, peer: Peer, linked: bool) {
        self.windows.set(peer, if linked { WINDOW_START } else { Told::UNLIMITED });
    }

    /// Whether one more request may be sent there at once.
    pub(crate) fn has_window(&self, peer: Peer) -> bool {
        let crowded = self.windows.get(peer).is_some_and(Window::is_crowded);
        !crowded && self.has_room(peer)
    }

    /// The same for whose turn it is.
    fn has_room(&self, peer: Peer) -> bool {
        self.windows.get(peer).is_none_or(|window| self.pending.under_way(peer) < window.limit)
    }

    /// Commands that would have their turn there before one that comes now; none before one whose turn it is.
    pub(crate) fn queue_before(&self, peer: Peer, dealt: Option<Peer>) -> usize {
        if dealt == Some(peer) {
            return 0;
        }
        let waiting = self.windows.get(peer).map_or(0, |window| window.commands);
        waiting + usize::from(!self.has_room(peer))
    }

    /// The first of the members without room that the job has not waited for yet.
    pub(crate) fn without_window(&self, job: &Job<'_>, peers: impl Iterator<Item = Peer>) -> Option<Peer> {
        let blocks = |peer: &Peer| job.dealt.is_none_or(|dealt| *peer > dealt) && !self.has_window(*peer);
        peers.filter(blocks).min()
    }

    /// The command of this number has a place in its pipeline and waits for room at `peer`.
    pub(crate) fn await_turn(
        &mut self,
        now: Time,
        client: u32,
        sequence: u64,
        peer: Peer,
        since: Option<Time>,
    ) {
        let Some(state) = self.clients.get_mut(client) else { return };
        if since.is_none() {
            self.counters.turns_awaited += 1;
        }
        let turn = Turn { sequence, peer, since: since.unwrap_or(now) };
        self.windows.awaited(peer);
        if state.pipeline.await_turn(turn) {
            let (number, single) = (state.number, state.pipeline.first() == sequence);
            self.windows.push(peer, (client, number), single);
        }
    }

    /// Sends what has room now, some commands of each client after the other.
    pub(crate) fn deal_turns(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.windows.waiting == 0 {
            return;
        }
        for peer in self.windows.crowded() {
            while self.has_room(peer)
                && let Some(client) = self.windows.pop(peer)
            {
                self.deal_turn(now, peer, client, effects);
            }
        }
    }

    fn deal_turn(&mut self, now: Time, peer: Peer, (client, number): (u32, u64), effects: &mut Vec<Effect>) {
        for _ in 0..TURN_COMMANDS {
            let room = self.has_room(peer);
            let state = self.clients.get(client).filter(|state| state.number == number);
            let Some(turn) = state.and_then(|state| state.pipeline.first_turn(peer)) else { return };
            if !room {
                break;
            }
            let touch = state.and_then(|state| state.pipeline.get(turn.sequence));
            let freed = touch.map_or(Freed::Nothing, |operation| Freed::of(&operation.touch));
            if !self.relaunch(now, client, turn.sequence, Some(turn), effects) {
                self.advance(now, client, freed, effects);
            }
        }
        let more = self.clients.get(client).filter(|state| state.number == number);
        if more.is_some_and(|state| state.pipeline.first_turn(peer).is_some()) {
            self.windows.push(peer, (client, number), false);
        }
    }

    /// Nobody waits for longer than is configured, before a command is sent.
    pub(crate) fn expire_turns(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.windows.waiting == 0 || now.since(self.windows.expiry) < EXPIRY_INTERVAL {
            return;
        }
        self.windows.expiry = now;
        let queue_max = self.config.queue_max;
        let mut expired: Vec<(u32, Turn)> = Vec::new();
        for (client, state) in self.clients.numbered() {
            let late = |turn: &&Turn| now.since(turn.since) >= queue_max;
            expired.extend(state.pipeline.turns().filter(late).map(|turn| (client, *turn)));
        }
        for (client, turn) in expired {
            let told = self.too_late(turn.peer);
            let Some(state) = self.clients.get_mut(client) else { continue };
            let Some((_, left)) = state.pipeline.take_waiting(turn.sequence) else { continue };
            left.iter().for_each(|turn| self.windows.left(turn.peer));
            state.pipeline.settle(turn.sequence, Progress::Done(told));
            let operation = state.pipeline.get(turn.sequence);
            let freed = operation.map_or(Freed::Nothing, |operation| Freed::of(&operation.touch));
            self.counters.turns_expired += 1;
            self.advance(now, client, freed, effects);
        }
        self.forget_absent();
    }

    /// Clients that have gone, or have nothing left that waits, give up their places.
    fn forget_absent(&mut self) {
        let Router { windows, clients, .. } = self;
        for peer in windows.crowded() {
            let Some(window) = windows.slot(peer) else { continue };
            window.retain(|(client, number)| {
                let state = clients.get(*client).filter(|state| state.number == *number);
                state.is_some_and(|state| state.pipeline.first_turn(peer).is_some())
            });
        }
        windows.waiting = windows.nodes.iter().chain(&windows.shims).map(Window::clients).sum();
    }

    fn too_late(&self, peer: Peer) -> Bytes {
        let name = match peer {
            Peer::Shim(shim) => format!("shim {}", self.shim_name(shim)),
            Peer::Node(node) => format!("cache node {}", node.0),
            Peer::Router(_) => String::new(),
        };
        let queue_ms_max = self.config.queue_max.as_millis();
        replies::error(&format!(
            "BUSY DistCache: the command waited for {name} for longer than queue_ms_max ({queue_ms_max} ms); it was not \
             executed, try again later"
        ))
    }

    /// Commands that wait for room at a node or shim.
    pub fn turns_waiting(&self) -> usize {
        if self.windows.waiting == 0 {
            return 0;
        }
        self.clients.all().map(|client| client.pipeline.turns().len()).sum()
    }
}
