//! What is known of one peer: its two connections, when it is dialled next, what is logged. Not the sockets.

use std::time::Duration;

use protocol::time::Time;
use rand::RngExt;
use wire::Peer;

use crate::peers::frame::{Channel, Name};
use crate::peers::places::LinkKind;
use crate::reactor::{ConnectionId, TICK};
use config::Address;

/// First wait before a lost link is dialled again, doubled up to the maximum: fast after a restart, and yet
/// no storm of dials at a member that is down.
const BACKOFF: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// A link that held this long has earned a fresh backoff.
const STEADY: Duration = Duration::from_secs(1);
/// How often a linked peer is told that this end still turns.
const ALIVE: Duration = Duration::from_millis(250);
/// Silence after which a node is lost: its reads have another place, and writes wait for its lease and not for it. Also after which
/// another process with its id takes the place of any peer.
const SILENCE_NODE: Duration = Duration::from_secs(1);
/// The same for others. Commands in flight to a shim that is cut off end with an unknown outcome, so a pause of some
/// seconds should only cost time.
const SILENCE: Duration = Duration::from_secs(5);
/// Between two ticks of one that has links and nothing else to do: they have to be kept.
pub(crate) const LINKED_REST: Duration = Duration::from_millis(125);
/// The same without links.
pub(crate) const ALONE_REST: Duration = Duration::from_millis(200);
/// A tick that comes later than this says that this end did not run: it has no right to blame the other. One that rests counts less
/// of a silence, until somebody waits for something.
const TICK_MAX: Duration = Duration::from_millis(50);
/// How long a refusal counts: who is dialled is tried again about once a second.
const REFUSAL: Duration = Duration::from_secs(5);
/// Lines about one peer come at most this often.
const LOG_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) peer: Peer,
    pub(crate) kind: LinkKind,
    /// On the dialling side.
    pub(crate) dial: Option<Dial>,
    channels: [Option<ConnectionId>; 2],
    proven: [bool; 2],
    pub(crate) linked: bool,
    /// Which process of the peer, and which of its pairs of connections.
    pub(crate) instance: u64,
    pub(crate) attempt: u64,
    /// When the first connection of the pair was made.
    pub(crate) started: Time,
    /// For how long nothing has come, counted while this end was running.
    silent: Duration,
    ticked: Time,
    alive_next: Time,
    /// Why one of the two ends refused it last, and when.
    refusal: Option<(Time, String)>,
    pub(crate) log: LinkLog,
}

#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) address: Address,
    pub(crate) next: Time,
    backoff: Duration,
    /// Members of a cluster start in any order: not reaching one is no news before this.
    pub(crate) quiet_until: Time,
}

impl Dial {
    pub(crate) fn new(address: Address, now: Time) -> Dial {
        Dial { address, next: now, backoff: BACKOFF, quiet_until: now.after(STEADY) }
    }

    fn back_off(&mut self, now: Time) {
        self.next = now.after(rand::rng().random_range(self.backoff / 2..=self.backoff));
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }
}

/// Lets one line a second through and counts the others.
#[derive(Debug, Default)]
pub(crate) struct LinkLog {
    last: Option<Time>,
    suppressed: u64,
}

impl LinkLog {
    /// Whether to write a line now, and how many were left out before it.
    pub(crate) fn admit(&mut self, now: Time) -> Option<u64> {
        if self.last.is_some_and(|last| now < last.after(LOG_EVERY)) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl PeerLink {
    pub(crate) fn new(peer: Peer, kind: LinkKind) -> PeerLink {
        PeerLink {
            peer,
            kind,
            dial: None,
            channels: [None; 2],
            proven: [false; 2],
            linked: false,
            instance: 0,
            attempt: 0,
            started: Time(0),
            silent: Duration::ZERO,
            ticked: Time(0),
            alive_next: Time(0),
            refusal: None,
            log: LinkLog::default(),
        }
    }

    pub(crate) fn name(&self) -> Name {
        Name(self.peer)
    }

    pub(crate) fn connection(&self, channel: Channel) -> Option<ConnectionId> {
        self.channels[channel as usize]
    }

    /// For how long a link that is not made needs no tick; none for one that is, or is the other end's to make.
    pub(crate) fn rest(&self, now: Time) -> Option<Duration> {
        match &self.dial {
            _ if self.linked => None,
            _ if !self.is_idle() => Some(TICK),
            dial => dial.as_ref().map(|dial| dial.next.since(now).max(TICK)),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.channels == [None; 2]
    }

    pub(crate) fn attach(&mut self, channel: Channel, connection: ConnectionId) {
        self.channels[channel as usize] = Some(connection);
    }

    /// Lets go of a connection that somebody else closes.
    pub(crate) fn release(&mut self, connection: ConnectionId) {
        self.channels
            .iter_mut()
            .filter(|channel| **channel == Some(connection))
            .for_each(|channel| *channel = None);
    }

    /// One channel is proven; true when that makes the link whole.
    pub(crate) fn prove(&mut self, channel: Channel) -> bool {
        self.proven[channel as usize] = true;
        self.silent = Duration::ZERO;
        self.linked = self.proven == [true; 2];
        if self.linked {
            self.refusal = None;
        }
        self.linked
    }

    pub(crate) fn refuse(&mut self, now: Time, reason: String) {
        self.refusal = Some((now, reason));
    }

    /// Why it is refused, as long as it is tried.
    pub(crate) fn refusal(&self, now: Time) -> Option<&str> {
        let (when, reason) = self.refusal.as_ref()?;
        (now < when.after(REFUSAL)).then_some(reason)
    }

    /// Something has come.
    pub(crate) fn heard(&mut self) {
        self.silent = Duration::ZERO;
    }

    /// Whether the process at the other end is there, or is just about to be.
    pub(crate) fn is_heard(&self) -> bool {
        !self.is_idle() && self.silent < SILENCE_NODE
    }

    /// Whether the other end has been silent for too long.
    pub(crate) fn is_silent(&mut self, now: Time) -> bool {
        let passed = now.since(std::mem::replace(&mut self.ticked, now));
        self.silent += passed.min(TICK_MAX);
        let dials_a_node = self.dial.is_some() && matches!(self.peer, Peer::Node(_));
        self.linked && self.silent >= if dials_a_node { SILENCE_NODE } else { SILENCE }
    }

    /// Whether to say that this end still turns.
    pub(crate) fn is_alive_due(&mut self, now: Time) -> bool {
        let due = self.linked && now >= self.alive_next;
        if due {
            self.alive_next = now.after(ALIVE);
        }
        due
    }

    /// Gives up the connections, to be closed, and sets the time of the next dial.
    pub(crate) fn detach(&mut self, now: Time) -> [Option<ConnectionId>; 2] {
        if let Some(dial) = &mut self.dial {
            if self.linked && now > self.started.after(STEADY) {
                dial.backoff = BACKOFF;
            }
            dial.back_off(now);
        }
        (self.linked, self.proven) = (false, [false; 2]);
        std::mem::take(&mut self.channels)
    }
}

#[cfg(test)]
mod tests {
    use super::{BACKOFF, BACKOFF_MAX, Dial, LinkLog, PeerLink};
    use crate::peers::frame::Channel;
    use crate::peers::places::LinkKind;
    use protocol::time::Time;
    use wire::{NodeId, Peer};

    fn dialled() -> PeerLink {
        let mut link = PeerLink::new(Peer::Node(NodeId(0)), LinkKind::Only);
        link.dial = Some(Dial::new("127.0.0.1:1".parse().unwrap(), Time(0)));
        link
    }

    #[test]
    fn dials_back_off_with_jitter_until_a_link_has_held() {
        let mut link = dialled();
        let mut waits = Vec::new();
        for now in (0..8).map(Time) {
            link.detach(now);
            waits.push(link.dial.as_ref().unwrap().next.since(now));
        }
        for (index, &wait) in waits.iter().enumerate() {
            let full = (BACKOFF * (1 << index)).min(BACKOFF_MAX);
            assert!((full / 2..=full).contains(&wait), "{waits:?}");
        }
        assert!(!link.prove(Channel::Control));
        assert!(link.prove(Channel::Data));
        link.started = Time(10);
        link.detach(Time(2_000_000));
        assert!(link.dial.as_ref().unwrap().next <= Time(2_000_000).after(BACKOFF));
    }

    #[test]
    fn a_silent_node_is_lost_after_a_second_and_others_after_five() {
        let (mut node, mut shim) = (dialled(), PeerLink::new(Peer::Shim(wire::ShimId(0)), LinkKind::Only));
        for link in [&mut node, &mut shim] {
            assert!(!link.is_silent(Time(10_000_000)), "nothing is linked yet");
            link.prove(Channel::Control);
            link.prove(Channel::Data);
        }
        let lost = |link: &mut PeerLink| (1001..2000).find(|tick| link.is_silent(Time(tick * 10_000)));
        assert_eq!((lost(&mut node), lost(&mut shim)), (Some(1100), Some(1500)));
        node.heard();
        assert!(!node.is_silent(Time(20_000_000)));
        assert!(!node.is_silent(Time(90_000_000)), "this end was stopped meanwhile");
        assert!(
            node.is_alive_due(Time(90_000_000))
                && !node.is_alive_due(Time(90_200_000))
                && node.is_alive_due(Time(90_250_000))
        );
    }

    #[test]
    fn one_line_a_second() {
        let mut log = LinkLog::default();
        assert_eq!(log.admit(Time(0)), Some(0));
        assert_eq!(log.admit(Time(999_999)), None);
        assert_eq!(log.admit(Time(999_999)), None);
        assert_eq!(log.admit(Time(1_000_000)), Some(2));
        assert_eq!(log.admit(Time(3_000_000)), Some(0));
    }
}
