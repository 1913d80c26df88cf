//! Peers that say what makes no sense: wrong roles, wrong numbers, garbage. Never what only the right one could say.

use bytes::Bytes;
use protocol::{node, shim};
use wire::message::{
    Ack, Cancel, Commit, EarlyValue, Evict, Execute, Fetch, Fill, Grant, Heat, Hello, Invalidate, Leave,
    LoadStamp, Offer, Read, Refuse, Reject, Renew, Reply, Revoke, Revoked, SetDegree, Welcome, Window,
};
use wire::{Degree, Key, LayerSet, Message, NodeId, Peer, RouterId, ShimId, Status, View};

use crate::cluster::Cluster;
use crate::host::Machine;

const MESSAGES_MAX: u64 = 20;
/// Ids far from those of real processes, so that answers to nonsense go nowhere.
const STRANGER: u16 = 900;

impl Cluster {
    /// A few messages that no peer in its right mind would send reach a process.
    pub(crate) fn confuse(&mut self) -> bool {
        let host = self.world.random.index(self.routers_first);
        if !self.hosts[host].is_awake(self.world.now()) {
            return false;
        }
        for _ in 0..self.world.random.between(1, MESSAGES_MAX) {
            let message = self.nonsense();
            let from = self.confused_peer(&message, host);
            self.world.event(10, host);
            self.world.trace.message(&message);
            self.world.note(|| format!("nonsense from {from:?} > {host}: {message:?}"));
            match &self.hosts[host].machine {
                Some(Machine::Node(_)) => self.step_node(host, node::Input::Message { from, message }),
                Some(Machine::Shim(_)) => self.step_shim(host, shim::Input::Message { from, message }),
                _ => return false,
            }
        }
        true
    }

    /// Somebody who is not known here, or of another role; or the right peer, whose numbers are then wrong.
    fn confused_peer(&mut self, message: &Message, host: usize) -> Peer {
        let stranger = STRANGER + self.world.random.below(8) as u16;
        let at_shim = self.is_slot(host);
        // What only the right peer could say, it must not say here: a HELLO opens a session.
        let speaks_for_itself = matches!(message, Message::Hello(_));
        match self.world.random.below(4) {
            0 => Peer::Router(RouterId(stranger)),
            1 if at_shim => Peer::Shim(ShimId(stranger)),
            1 => Peer::Node(NodeId(stranger)),
            2 if at_shim => Peer::Node(NodeId(stranger)),
            2 => Peer::Shim(ShimId(stranger)),
            _ if speaks_for_itself => Peer::Router(RouterId(stranger)),
            _ if at_shim => Peer::Node(NodeId(self.world.random.below(self.slots_first as u64) as u16)),
            _ => Peer::Shim(ShimId(self.world.random.below(self.servers.len() as u64) as u16)),
        }
    }

    fn nonsense(&mut self) -> Message {
        let random = &mut self.world.random;
        let (session, other, request) = (random.number(), random.number(), random.number());
        let mut key = self.keys[random.index(self.keys.len())].key.clone();
        if random.percent(20) {
            key.digest.0 ^= 1;
        }
        if random.percent(10) {
            key = Key { bytes: Bytes::from_static(b"nobody's"), ..key };
        }
        let texts: [&[u8]; 6] =
            [b"", b"$1\r\nx\r\n", b"*1\r\n$8\r\nFLUSHALL\r\n$", b"*3\r\n$3\r\nSET", b"$-1\r\n", b"-ERR\r\n"];
        let value = Bytes::from_static(random.pick(&texts));
        let (flag, resp3, command) = (random.percent(50), random.percent(30), value.clone());
        let view = if flag { View::GET } else { View(other) };
        let ttl_ms = flag.then_some(other % 5000);
        let (fill, version, number) = (other % 50, other % 1000, other % 20);
        let status = random.pick(&[
            Status::Ok,
            Status::Nil,
            Status::Error,
            Status::Busy,
            Status::Large,
            Status::Unlinked,
            Status::Refused,
        ]);
        let (cached, degree) = (LayerSet(other as u8), Degree(other as u8 % 6));
        match random.below(22) {
            0 => {
                let (ordered, streams, waited_ms) = (flag, resp3, number as u16);
                let read = Read { request, key, view, resp3, ordered, streams, waited_ms, degree, command };
                Message::Read(read)
            }
            1 => {
                let loads = [LoadStamp { node_plus_one: other as u32, load: request as u32 }; 4];
                let (hit, more) = (flag, resp3);
                Message::Reply(Reply { request, status, hit, cached, degree, loads, more, value })
            }
            2 => {
                let (ordered, watch, waited_ms) = (flag, None, number as u16);
                Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms, command })
            }
            3 => Message::Cancel(Cancel { request }),
            4 => Message::Fetch(Fetch { session, fill, key, view, resp3, command }),
            5 => {
                let (granted, view) = (flag, View::GET);
                Message::Fill(Fill {
                    session,
                    fill,
                    key,
                    view,
                    version,
                    granted,
                    status,
                    cached,
                    degree,
                    ttl_ms,
                    stale_ms: other % 5000,
                    value,
                })
            }
            6 => Message::Offer(Offer { key, view, resp3, heat: other as u32, command }),
            which => Parts { session, request, other, key, flag, value }.control(which),
        }
    }
}

/// What a message of the control channel is put together from.
struct Parts {
    session: u64,
    request: u64,
    other: u64,
    key: Key,
    flag: bool,
    value: Bytes,
}

impl Parts {
    fn control(self, which: u64) -> Message {
        let Parts { session, request, other, key, flag, value } = self;
        let (fill, version, number) = (other % 50, other % 1000, other % 20);
        let ttl_ms = flag.then_some(other % 5000);
        let degree = Degree(other as u8 % 6);
        match which {
            7 => Message::Hello(Hello { number, nonce: request, process: other }),
            8 => Message::Welcome(Welcome { session, nonce: request, lease: other, guard: 0 }),
            9 => Message::Reject(Reject { last: number, nonce: request }),
            10 => Message::Renew(Renew { session, sent: other, heat_floor: other as u32 }),
            11 => {
                let leave = flag.then_some(Leave { duration: request, unheard: number });
                Message::Grant(Grant { session, sent: other, duration: request, guard: 0, leave })
            }
            12 => Message::Refuse(Refuse { session }),
            13 => {
                let value = flag.then_some(EarlyValue { ttl_ms, value });
                Message::Invalidate(Invalidate { session, key, version, value })
            }
            14 => Message::Ack(Ack { session, key, version, nothing_held: ttl_ms }),
            15 => Message::Commit(Commit { session, key, version }),
            16 => Message::Evict(Evict { session, key, fill }),
            17 => Message::Revoke(Revoke { session, number, spares: flag }),
            18 => Message::Revoked(Revoked { session, number }),
            19 => {
                let (permille, hits, invalidations) = (other as u32 % 2000, request as u32, number as u32);
                Message::Heat(Heat { session, key, degree, permille, hits, invalidations })
            }
            20 => Message::SetDegree(SetDegree { key, degree }),
            _ => Message::Window(Window { requests: other as u32 }),
        }
    }
}
