//! Authenticated links between roles over a reactor's connections. Not what the messages mean.
//!
//! A link is two connections, data and control, each opened by a handshake that proves the cluster's secret.
//! The driver offers every event to `Peers::event` first and gets back those that are not a peer's.

mod admission;
mod connections;
pub mod frame;
pub mod handshake;
mod link;
mod places;
mod unread;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, Bytes};
use protocol::placement::agreement::Agreement;
use protocol::time::Time;
use wire::{Message, NodeId, Peer, RouterId, ShimId};

use crate::peers::connections::{LinkRole, Slots};
use crate::peers::frame::{Channel, Name, PeerFrame, PeerRefusal};
use crate::peers::handshake::LinkKey;
use crate::peers::link::{ALONE_REST, Dial, LINKED_REST, LinkLog, PeerLink};
use crate::peers::places::{LinkKind, ShimCandidates};
use crate::reactor::{ConnectionId, Event, Io, ListenerId, TICK};
use crate::status::LinksStatus;
use crate::tls::Dialer;
use config::Address;
use config::Secret;

/// Output that a link may pile up before it is closed: a peer this far behind is better off with a fresh one. A message of
/// the largest size is not far behind.
const DATA_OUT_BYTES_MAX: usize = wire::codec::VALUE_BYTES_MAX + (64 << 20);
const CONTROL_OUT_BYTES_MAX: usize = 16 << 20;
/// The answering side reads no further requests of a peer that leaves this much of its replies unread. Only
/// that side: were both to wait, neither would read.
const REPLIES_BYTES_MAX: usize = 4 << 20;
/// Accepted connections that may be unproven at one time; beyond it they are closed.
const UNPROVEN_MAX: usize = 256;

/// Who this instance is, and what proves it.
#[derive(Clone, Copy, Debug)]
pub struct MemberIdentity {
    pub peer: Peer,
    pub secret: Secret,
    /// Only members that have the same are linked.
    pub agreement: Agreement,
}

/// What the links tell a driver.
#[derive(Debug)]
pub enum PeerEvent {
    /// Both connections are up and proven.
    Linked(Peer),
    /// The link is gone with whatever was on its way. The dialling side dials again.
    Unlinked(Peer),
    Message {
        from: Peer,
        /// Sampled after the read system call that delivered it.
        now: Time,
        message: Message,
    },
}

pub struct Peers {
    identity: MemberIdentity,
    /// This process' place among those that may be this member.
    place: u8,
    handshake_max: Duration,
    /// For links over TCP; without it they are plain.
    dialer: Option<Dialer>,
    /// Replies that a peer may leave unread until large ones are dropped: a thousand readers of one large object, answered at
    /// once, must not cost everybody the link.
    unread_bytes_max: usize,
    key: LinkKey,
    /// Tells this process from another that has the same identity.
    instance: u64,
    listeners: Vec<ListenerId>,
    slots: Slots,
    links: Vec<PeerLink>,
    /// Position in `links` by role and id.
    positions: [Vec<Option<u32>>; 3],
    /// Shims that several processes may be.
    candidates: BTreeMap<ShimId, ShimCandidates>,
    queued: Vec<PeerEvent>,
    strangers: LinkLog,
    /// Messages that found no link are not among those that went out.
    counts: LinksStatus,
    /// Large replies that found too much unread before them.
    replies_dropped: u64,
    /// Somebody has refused this process because another has its id.
    taken: bool,
}

impl Peers {
    /// Links of `identity`. A connection must be proven, and a link whole, within `handshake_max` (`[limits]
    /// handshake_ms_max`).
    pub fn new(identity: MemberIdentity, handshake_max: Duration) -> Peers {
        Peers {
            handshake_max,
            key: LinkKey::derive(&identity.secret),
            identity,
            place: 0,
            dialer: None,
            unread_bytes_max: 64 << 20,
            instance: rand::random(),
            listeners: Vec::new(),
            slots: Slots::default(),
            links: Vec::new(),
            positions: Default::default(),
            candidates: BTreeMap::new(),
            queued: Vec::new(),
            strangers: LinkLog::default(),
            counts: LinksStatus::default(),
            replies_dropped: 0,
            taken: false,
        }
    }

    /// Links over TCP are dialled with TLS from now on, if there is a `dialer`.
    pub fn secure(&mut self, dialer: Option<&Dialer>) {
        self.dialer = dialer.cloned();
    }

    /// Large replies are dropped from now on while a peer leaves more than `bytes_max` of replies unread, and writes among them
    /// said to be done (`[limits] unread_replies_bytes_max`).
    pub fn limit_unread(&mut self, bytes_max: usize) {
        self.unread_bytes_max = bytes_max;
    }

    /// Takes the connections of `listener` as peers'.
    pub fn accept_on(&mut self, listener: ListenerId) {
        self.listeners.push(listener);
    }

    /// Keeps a link to `peer` from now on: dialled at once, and again whenever it is lost.
    pub fn dial(&mut self, io: &mut Io, peer: Peer, address: Address) {
        let position = self.position(peer);
        self.links[position].dial = Some(Dial::new(address, io.now()));
        self.dial_link(io, position);
    }

    pub fn is_linked(&self, peer: Peer) -> bool {
        self.find(peer).is_some_and(|position| self.links[position].linked)
    }

    /// Bytes of the data channel that the kernel has not taken yet.
    pub fn out_bytes(&self, io: &Io, peer: Peer) -> usize {
        let link = self.find(peer).map(|position| &self.links[position]);
        link.and_then(|link| link.connection(Channel::Data)).map_or(0, |connection| io.out_bytes(connection))
    }

    /// The most that any link's data channel has.
    pub fn out_bytes_max(&self, io: &Io) -> usize {
        let channels = self.links.iter().filter_map(|link| link.connection(Channel::Data));
        channels.map(|connection| io.out_bytes(connection)).max().unwrap_or(0)
    }

    /// Appends a message to the output of the link. False, and the message is dropped, if there is no link.
    /// True does not mean that it arrives; `Unlinked` tells of what may have been lost.
    pub fn send(&mut self, io: &mut Io, to: Peer, message: &Message) -> bool {
        if to == self.identity.peer {
            return self.send_to_siblings(io, message);
        }
        match self.find(to).filter(|&position| self.links[position].linked) {
            Some(position) => self.send_over(io, position, message),
            None => false,
        }
    }

    fn send_over(&mut self, io: &mut Io, position: usize, message: &Message) -> bool {
        let (channel, bytes_max) = match message.is_control() {
            true => (Channel::Control, CONTROL_OUT_BYTES_MAX),
            false => (Channel::Data, DATA_OUT_BYTES_MAX),
        };
        let Some(connection) = self.links[position].connection(channel) else { return false };
        // The buffer may hold bytes that are written already; only then is it worth asking.
        let out = io.out(connection);
        if out.len() <= self.unread_bytes_max.min(bytes_max) {
            wire::encode(message, out);
        } else if io.out_bytes(connection) > bytes_max {
            self.unlink(io, position, &"it does not take its messages: the output limit is reached");
            return false;
        } else if io.out_bytes(connection) > self.unread_bytes_max
            && let Some(busy) = unread::instead_of(message)
        {
            self.replies_dropped += 1;
            wire::encode(&busy, io.out(connection));
        } else {
            wire::encode(message, io.out(connection));
        }
        self.counts.messages_out_total += 1;
        true
    }

    /// For how long from `now` a member needs no tick of which nothing else is due for `rest`: a moment while any link is being made,
    /// and until the next time that one is tried.
    pub fn rest(&self, now: Time, rest: Duration) -> Duration {
        if rest <= TICK {
            return TICK;
        }
        let kept = if self.links.iter().any(|link| link.linked) { LINKED_REST } else { ALONE_REST };
        let needs = |link: &PeerLink| link.rest(now).unwrap_or(kept);
        rest.min(self.links.iter().map(needs).fold(kept, Duration::min))
    }

    /// Whether another process has this one's id.
    pub fn is_taken(&self) -> bool {
        self.taken
    }

    /// Closes all connections, before another identity takes the place of this one.
    pub fn leave(&mut self, io: &mut Io) {
        for position in 0..self.links.len() {
            self.links[position].dial = None;
            self.end_link(io, position, &"this end takes another id", true);
        }
    }

    /// Ends all links; those that are dialled from here are dialled again.
    pub fn renew(&mut self, io: &mut Io, reason: &dyn std::fmt::Display) {
        (0..self.links.len()).for_each(|position| self.end_link(io, position, reason, true));
    }

    pub fn replies_dropped(&self) -> u64 {
        self.replies_dropped
    }

    pub fn status(&self, now: Time) -> LinksStatus {
        let refused =
            self.links.iter().filter_map(|link| Some(format!("{}: {}", link.name(), link.refusal(now)?)));
        LinksStatus { links_refused: refused.collect(), ..self.counts.clone() }
    }

    /// Takes an event if it is a peer's, and appends what follows from it to `events`; gives back the others.
    /// `Tick` is taken and given back.
    pub fn event(&mut self, io: &mut Io, event: Event, events: &mut Vec<PeerEvent>) -> Option<Event> {
        let foreign = self.dispatch(io, event);
        if events.is_empty() {
            std::mem::swap(events, &mut self.queued);
        } else {
            events.append(&mut self.queued);
        }
        foreign
    }

    fn dispatch(&mut self, io: &mut Io, event: Event) -> Option<Event> {
        match event {
            Event::Data { connection, bytes, now } => match self.slots.role(connection) {
                Some(&LinkRole::Proven { link, channel }) => {
                    self.receive(io, connection, (link as usize, channel), bytes, now);
                    None
                }
                Some(LinkRole::Unproven { .. }) => {
                    self.shake(io, connection, bytes, now);
                    None
                }
                None => Some(Event::Data { connection, bytes, now }),
            },
            Event::Accepted { listener, connection } if self.listeners.contains(&listener) => {
                self.accept(io, connection);
                None
            }
            Event::Connected(connection) if self.slots.has(connection) => {
                self.greet(io, connection);
                None
            }
            Event::Writable(connection) if self.slots.has(connection) => {
                io.resume(connection);
                None
            }
            Event::Closed { connection, error } if self.slots.has(connection) => {
                self.closed(io, connection, error);
                None
            }
            Event::Tick => {
                self.tick(io);
                Some(Event::Tick)
            }
            event => Some(event),
        }
    }

    fn receive(
        &mut self,
        io: &mut Io,
        connection: ConnectionId,
        (position, channel): (usize, Channel),
        mut bytes: Bytes,
        now: Time,
    ) {
        if frame::is_refusal(&bytes) {
            return self.refused(io, connection, position, bytes);
        }
        let link = &self.links[position];
        if !link.linked {
            // The other end is ahead: it knows both connections proven and has begun to talk.
            io.pause(connection);
            io.unread(connection, bytes);
            return;
        }
        self.links[position].heard();
        loop {
            if channel == Channel::Control && bytes.starts_with(&frame::ALIVE) {
                bytes.advance(frame::ALIVE.len());
                continue;
            }
            match wire::decode(&mut bytes) {
                Ok(Some(message)) if message.is_control() == (channel == Channel::Control) => {
                    self.counts.messages_in_total += 1;
                    self.heard(io, position, now, message);
                    if !self.links[position].linked {
                        return;
                    }
                }
                Ok(Some(_)) => return self.unlink(io, position, &"a message on the wrong channel"),
                Ok(None) => break,
                Err(error) => return self.unlink(io, position, &error),
            }
        }
        let is_answering = self.links[position].dial.is_none();
        if is_answering && channel == Channel::Data && io.out_bytes(connection) > REPLIES_BYTES_MAX {
            io.pause(connection);
        }
        io.unread(connection, bytes);
    }

    /// The other end had proven itself, and then found that it cannot link this one.
    fn refused(&mut self, io: &mut Io, connection: ConnectionId, position: usize, mut bytes: Bytes) {
        let refusal = match frame::take(&mut bytes) {
            Ok(None) => return io.unread(connection, bytes),
            Ok(Some(PeerFrame::Refusal(text))) => PeerRefusal::ByOther(text),
            Ok(Some(PeerFrame::Taken(text))) => PeerRefusal::Taken(text),
            Ok(Some(_)) => PeerRefusal::Malformed,
            Err(refusal) => refusal,
        };
        let link = &mut self.links[position];
        link.refuse(io.now(), refusal.to_string());
        if let Some(dial) = &mut link.dial {
            // This is no member that has yet to start.
            dial.quiet_until = Time(0);
        }
        self.unlink(io, position, &refusal);
    }

    fn dial_link(&mut self, io: &mut Io, position: usize) {
        let link = &mut self.links[position];
        let Some(dial) = link.dial.as_ref().filter(|_| link.is_idle()) else { return };
        let address = dial.address.clone();
        link.attempt = rand::random();
        link.started = io.now();
        for channel in Channel::BOTH {
            let connection = io.dial_tls(&address, self.dialer.as_ref());
            self.links[position].attach(channel, connection);
            let deadline = self.links[position].started.after(self.handshake_max);
            self.slots.add_unproven(connection, None, Some((position as u32, channel)), deadline);
        }
    }

    fn closed(&mut self, io: &mut Io, connection: ConnectionId, error: Option<std::io::Error>) {
        let position = match self.slots.role(connection) {
            Some(&LinkRole::Proven { link, .. }) => Some(link),
            Some(&LinkRole::Unproven { link, .. }) => link.map(|(position, _)| position),
            None => None,
        };
        self.slots.remove(connection);
        let Some(position) = position else { return };
        match error {
            Some(error) => self.unlink(io, position as usize, &error),
            None => self.end_link(io, position as usize, &"the other end has closed the connection", true),
        }
    }

    fn unlink(&mut self, io: &mut Io, position: usize, reason: &dyn std::fmt::Display) {
        self.end_link(io, position, reason, false);
    }

    /// Closes what is left of a link, tells the driver if it was whole, and has it dialled again. An orderly end is
    /// no news for a person, as members that stop have one; if the other end stays away, dialling it again is.
    fn end_link(&mut self, io: &mut Io, position: usize, reason: &dyn std::fmt::Display, orderly: bool) {
        let now = io.now();
        let link = &mut self.links[position];
        let was_linked = link.linked;
        let is_news = was_linked || link.dial.as_ref().is_none_or(|dial| now >= dial.quiet_until);
        if is_news && let Some(suppressed) = link.log.admit(now) {
            let address = link.dial.as_ref().map(|dial| tracing::field::display(dial.address.clone()));
            let state = if was_linked { "lost" } else { "not made" };
            let own = Name(self.identity.peer);
            let peer = link.name();
            if orderly && was_linked {
                tracing::info!(%own, %peer, address, %reason, suppressed, "link {state}");
            } else {
                tracing::warn!(%own, %peer, address, %reason, suppressed, "link {state}");
            }
        }
        for connection in link.detach(now).into_iter().flatten() {
            self.slots.remove(connection);
            io.close(connection);
        }
        if was_linked {
            self.counts.peers -= 1;
            self.link_lost(io, position);
        }
    }

    fn complain(&mut self, now: Time, reason: &dyn std::fmt::Display) {
        if let Some(suppressed) = self.strangers.admit(now) {
            tracing::warn!(own = %Name(self.identity.peer), %reason, suppressed, "a peer's connection is refused");
        }
    }

    fn tick(&mut self, io: &mut Io) {
        let now = io.now();
        for connection in self.slots.overdue(now) {
            let position = match self.slots.role(connection) {
                Some(&LinkRole::Unproven { link, .. }) => link.map(|(position, _)| position),
                _ => continue,
            };
            self.slots.remove(connection);
            io.close(connection);
            match position {
                Some(position) => self.unlink(io, position as usize, &"the handshake takes too long"),
                None => self.complain(now, &"the handshake takes too long"),
            }
        }
        for position in 0..self.links.len() {
            self.keep(io, position, now);
        }
    }

    /// Tells the other end of a link that this one turns; gives up and dials again what does not hold.
    fn keep(&mut self, io: &mut Io, position: usize, now: Time) {
        let link = &mut self.links[position];
        let waits = !link.linked && !link.is_idle();
        if link.is_silent(now) {
            self.unlink(io, position, &"it says nothing any more");
        } else if waits && now > link.started.after(self.handshake_max) {
            self.unlink(io, position, &"its second connection takes too long");
        } else if link.dial.as_ref().is_some_and(|dial| now >= dial.next) {
            self.dial_link(io, position);
        }
        let link = &mut self.links[position];
        if link.is_alive_due(now)
            && let Some(connection) = link.connection(Channel::Control)
        {
            io.out(connection).extend_from_slice(&frame::ALIVE);
        }
    }

    fn find(&self, peer: Peer) -> Option<usize> {
        if let Peer::Shim(shim) = peer
            && let Some(followed) = self.followed(shim)
        {
            return followed;
        }
        let (role, id) = key_of(peer);
        self.positions[role].get(id).copied().flatten().map(|position| position as usize)
    }

    fn position(&mut self, peer: Peer) -> usize {
        let (role, id) = key_of(peer);
        let positions = &mut self.positions[role];
        if positions.len() <= id {
            positions.resize(id + 1, None);
        }
        *positions[id].get_or_insert_with(|| {
            self.links.push(PeerLink::new(peer, LinkKind::Only));
            self.links.len() as u32 - 1
        }) as usize
    }
}

fn key_of(peer: Peer) -> (usize, usize) {
    match peer {
        Peer::Node(NodeId(id)) => (0, id.into()),
        Peer::Shim(ShimId(id)) => (1, id.into()),
        Peer::Router(RouterId(id)) => (2, id.into()),
    }
}
