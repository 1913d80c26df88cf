//! Reads at the shim: cold reads of routers and nodes, fetches that register a copy before storage is read.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Fetch, Fill, Offer, Read, Refuse};
use wire::{Key, LayerSet, Message, NodeId, Peer, View};

use super::operation::{KeyState, OperationKind, Origin};
use super::refusal::Refusal;
use super::{Effect, FillTicket, Purpose, Shim, StorageState};
use crate::node::heat_item;
use crate::requests::RequestClass;
use crate::storage::Lane;
use crate::time::Time;
use commands::CommandKind;
use wire::resp::Command;

const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n";
const MISFIT: &str = "-ERR DistCache: the command is not the cacheable read that its view says\r\n";
const PTTL: &[u8] = b"*2\r\n$4\r\nPTTL\r\n";

impl Shim {
    pub(super) fn read(&mut self, now: Time, from: Peer, read: Read, effects: &mut Vec<Effect>) {
        let origin = Origin { from, request: read.request, streams: read.streams };
        if let Some(refusal) = self.refusal(&read.key) {
            return self.refuse(origin, &refusal, effects);
        }
        if self.observes() {
            self.observe_read(now, &read);
        } else if matches!(from, Peer::Router(_)) {
            self.count_heat(now, &read, effects);
        }
        let Read { key, view, resp3, ordered, .. } = read;
        let Some((command, _)) = self.read_command(&key, view, resp3, read.command) else {
            return self.reply_error(origin, MISFIT, effects);
        };
        if matches!(from, Peer::Node(_)) && self.larges.knows(&key, view) {
            return self.refuse(origin, &Refusal::large(), effects);
        }
        if origin.streams && self.larges.knows(&key, view) {
            self.send_waiting(now, &key, effects);
            return self.ask_for_large(now, origin, (key, view, resp3), command, effects);
        }
        let lane = Lane::Shared { resp3 };
        if self.must_queue(&key, lane, ordered) {
            self.send_waiting(now, &key, effects);
            self.statistics.storage_reads += 1;
            let keys = SmallVec::from_elem(key, 1);
            return self.enqueue(Some(origin), OperationKind::Read(Some(view)), lane, command, keys);
        }
        if self.join(now, origin, (&key, view, resp3), ordered, effects) {
            return;
        }
        if let Some(refusal) = self.storage_overloaded(RequestClass::Client) {
            return self.refuse(origin, &refusal, effects);
        }
        self.send_reading(now, SmallVec::from_elem(origin, 1), (key, view, resp3), command, effects);
    }

    /// A node asks for a copy: register first, read second. Answered in any case, granted only if nobody writes.
    pub(super) fn fetch(&mut self, now: Time, node: NodeId, fetch: Fetch, effects: &mut Vec<Effect>) {
        let Fetch { session, fill, key, view, resp3, command } = fetch;
        self.open_if_offered(now, node, session);
        let large = self.larges.knows(&key, view).then(Refusal::large);
        let refusal = self.refusal(&key).or(large).or_else(|| self.storage_overloaded(RequestClass::Fill));
        if let Some(refusal) = refusal {
            return self.send_fill(node, session, fill, key, view, refusal, effects);
        }
        let Some((command, may_cache)) = self.read_command(&key, view, resp3, command) else {
            return self.send_fill(node, session, fill, key, view, Refusal::error(MISFIT), effects);
        };
        let live = self.links[usize::from(node.0)].session.is_live(now, session);
        if !live {
            self.send(Peer::Node(node), Message::Refuse(Refuse { session }), effects);
        }
        let may_cache = may_cache
            && !self.observes()
            && !self.config.settings.policies.of(&key.bytes).is_never()
            && !self.is_moving(&key);
        let grantable = live && self.grants() && may_cache;
        let mut version = None;
        if grantable && self.keys.get(&key).is_none_or(KeyState::is_quiet) {
            let sequence = self.sequence;
            // The key outlives the read buffer that it arrived in.
            let state = self.keys.entry(own(&key)).or_insert_with(|| KeyState::new(sequence));
            state.directory.register(node, fill, view);
            version = Some(state.directory.version);
        }
        self.statistics.storage_reads += 1;
        let pttl = self.frame(PTTL, &key.bytes);
        let (lane, reach) = (Lane::Shared { resp3 }, self.reach(&key));
        let ticket = FillTicket { session, fill, key, view, version };
        let purpose = Purpose::Fill { node, fetch: ticket };
        self.store(now, purpose, lane, reach, SmallVec::from_buf([pttl, command]), effects);
    }

    /// The command for storage, and whether its reply may be cached. None if it is anything but the cacheable read of
    /// this key that its view says: what a confused peer sends must not reach the connection that all share, nor one
    /// reply another's view.
    fn read_command(&mut self, key: &Key, view: View, resp3: bool, frame: Bytes) -> Option<(Bytes, bool)> {
        if view == View::GET {
            return Some((self.frame(GET, &key.bytes), true));
        }
        let found = Command::parse(frame.clone()).ok().and_then(|command| {
            let classified = commands::classify(&command).ok()?;
            let own = matches!(classified.keys[..], [index] if command.arg(index) == &key.bytes[..]);
            let fits = own && classified.kind == CommandKind::Read;
            let named = commands::view(self.placement.view_hash(), &command, &classified, resp3);
            (fits && named == view).then_some(classified.spec.is_hash())
        });
        let Some(is_hash) = found else {
            self.statistics.unexpected += 1;
            return None;
        };
        // Fields of hashes that expire on their own change replies without a write.
        let expires = matches!(&self.storage, StorageState::Up { traits } if traits.hash_field_expiry);
        Some((frame, !is_hash || !expires || self.config.cache_expiring_hashes))
    }

    /// Cold reads show which keys deserve a copy; their nodes are told and decide.
    fn count_heat(&mut self, now: Time, read: &Read, effects: &mut Vec<Effect>) {
        let item = heat_item(&read.key, read.view);
        let always = self.config.settings.policies.is_always(&read.key.bytes);
        let floor = if always { 1 } else { self.heat_floor };
        let Some(heat) = self.heat.record(now, item, floor) else { return };
        self.hottest.report(now, &read.key, heat);
        let unfit = self.is_marked(&read.key) || self.larges.knows(&read.key, read.view);
        if self.config.settings.policies.of(&read.key.bytes).is_never() || unfit {
            return;
        }
        for node in self.placement.places(&read.key).into_iter().flatten() {
            let holds = self.keys.get(&read.key).is_some_and(|state| {
                let mut entries = state.directory.entries.iter();
                entries.any(|entry| entry.node == node && entry.views.contains(&read.view))
            });
            let link = self.links.get(usize::from(node.0));
            if holds || link.is_none_or(|link| heat < link.heat_floor && !always) {
                continue;
            }
            self.statistics.offers += 1;
            let Read { key, view, resp3, command, .. } = read.clone();
            self.send(Peer::Node(node), Message::Offer(Offer { key, view, resp3, heat, command }), effects);
        }
    }

    /// The layers whose nodes have this view, for the reader's router.
    pub(super) fn hints(&self, key: &Key, view: View) -> LayerSet {
        let Some(state) = self.keys.get(key) else { return LayerSet::EMPTY };
        let entries = state.directory.entries.iter().filter(|entry| entry.views.contains(&view));
        entries.fold(LayerSet::EMPTY, |layers, entry| layers.with(self.placement.layer_of(entry.node)))
    }

    /// A fetch that could not be asked: an error reply, never a copy.
    #[expect(clippy::too_many_arguments, reason = "the fields of the message")]
    fn send_fill(
        &mut self,
        node: NodeId,
        session: u64,
        fill: u64,
        key: Key,
        view: View,
        refusal: Refusal,
        effects: &mut Vec<Effect>,
    ) {
        let Refusal { status, value } = refusal;
        let fill = Fill {
            session,
            fill,
            key,
            view,
            version: 0,
            granted: false,
            status,
            cached: LayerSet::EMPTY,
            ttl_ms: None,
            value,
        };
        self.send(Peer::Node(node), Message::Fill(fill), effects);
    }
}

/// The same key in a buffer of its own.
pub(super) fn own(key: &Key) -> Key {
    Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key }
}
