//! Reads at the shim: cold reads of routers and nodes, fetches that register a copy before storage is read.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Fetch, Fill, Offer, Read, Refuse, Reply};
use wire::{Degree, Key, LayerSet, Message, NodeId, Peer, Status, View};

use super::operation::{KeyState, OperationKind, Origin};
use super::operations::operation;
use super::read_feed::TRACKED;
use super::refusal::Refusal;
use super::step::ShimStep;
use super::{FillTicket, Purpose, Shim, StorageState};
use crate::key_view::KeyView;
use crate::node::heat_item;
use crate::requests::RequestClass;
use crate::storage::Lane;
use commands::CommandKind;
use wire::resp::Command;

pub(super) const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n";
const MISFIT: &str = "-ERR DistCache: the command is not the cacheable read that its view says\r\n";
const PTTL: &[u8] = b"*2\r\n$4\r\nPTTL\r\n";

impl Shim {
    pub(super) fn read(&mut self, step: &mut ShimStep<'_>, from: Peer, read: Read) {
        let origin = Origin { from, request: read.request, streams: read.streams };
        if let Some(refusal) = self.refusal(&read.key) {
            let cached = self.stale_layers(step.now, &read.key, read.view);
            // Its router may ask one of them.
            let status = if cached == LayerSet::EMPTY { refusal.status } else { Status::Refused };
            return step.answer(origin, Reply { status, cached, value: refusal.value, ..Reply::default() });
        }
        if self.observes() {
            self.observe_read(step.now, &read);
        } else if matches!(from, Peer::Router(_)) {
            self.count_heat(step, &read);
        }
        let Read { key, view, resp3, ordered, command, .. } = read;
        let asked = KeyView { key, view, resp3 };
        let Some((command, _)) = self.read_command(&asked, command) else {
            return step.reply_error(origin, MISFIT);
        };
        if matches!(from, Peer::Node(_)) && self.larges.knows(&asked.key, view) {
            return step.refuse(origin, &Refusal::large());
        }
        if origin.streams && self.larges.knows(&asked.key, view) {
            self.send_waiting(step, &asked.key);
            return self.ask_for_large(step, origin, asked, command);
        }
        let lane = Lane::Shared { resp3 };
        if self.must_queue(&asked.key, lane, ordered) {
            self.send_waiting(step, &asked.key);
            self.statistics.storage_reads += 1;
            let (kind, keys) = (OperationKind::Read(Some(view)), SmallVec::from_elem(asked.key, 1));
            return self.admit_operation(operation(origin, kind, lane, command, keys));
        }
        if self.join(step, origin, &asked, ordered) {
            return;
        }
        if let Some(refusal) = self.storage_overloaded(RequestClass::Client) {
            return step.refuse(origin, &refusal);
        }
        self.send_reading(step, SmallVec::from_elem(origin, 1), asked, command);
    }

    /// A node asks for a copy: register first, read second. Answered in any case, granted only if nobody writes.
    pub(super) fn fetch(&mut self, step: &mut ShimStep<'_>, holder: Peer, fetch: Fetch) {
        let Fetch { session, fill, key, view, resp3, command } = fetch;
        let large = self.larges.knows(&key, view).then(Refusal::large);
        let refusal = self.refusal(&key).or(large).or_else(|| self.storage_overloaded(RequestClass::Fill));
        let asked = KeyView { key, view, resp3 };
        let found = match refusal {
            Some(refusal) => Err(refusal),
            None => self.read_command(&asked, command).ok_or_else(|| Refusal::error(MISFIT)),
        };
        let mut fetch =
            FillTicket { holder, session, fill, key: asked.key, view, version: None, tracked: None };
        let (command, may_cache) = match found {
            Ok(found) => found,
            Err(refusal) => return refuse_fill(step, fetch, refusal),
        };
        let live = self.holders[holder].session.is_live(step.now, session);
        if !live {
            step.send(holder, Message::Refuse(Refuse { session }));
        }
        let may_cache = may_cache
            && !self.observes()
            && !self.config.settings.policies.of(&fetch.key.bytes).is_never()
            && !self.is_moving(&fetch.key);
        let grantable = live && self.grants() && self.grants_to(step.now, holder) && may_cache;
        if grantable && self.keys.get(&fetch.key).is_none_or(KeyState::is_quiet) {
            let sequence = self.sequence;
            // The key outlives the read buffer that it arrived in.
            let state = self.keys.entry(own(&fetch.key)).or_insert_with(|| KeyState::new(sequence));
            self.statistics.copies += u64::from(state.directory.register(holder, fill, view));
            fetch.version = Some(state.directory.version);
            fetch.tracked = self.track_read(&fetch.key, resp3);
        }
        self.statistics.storage_reads += 1;
        let pttl = self.frame(PTTL, &fetch.key.bytes);
        let (lane, reach) = (Lane::Shared { resp3 }, self.reach(&fetch.key));
        let commands = match fetch.tracked {
            Some(_) => [TRACKED, pttl, command].into_iter().collect(),
            None => SmallVec::from_buf([pttl, command]),
        };
        self.store(step, Purpose::Fill(fetch), lane, reach, commands);
    }

    /// The command for storage, and whether its reply may be cached. None if it is anything but the cacheable read of
    /// this key that its view says: what a confused peer sends must not reach the connection that all share, nor one
    /// reply another's view.
    fn read_command(&mut self, asked: &KeyView, frame: Bytes) -> Option<(Bytes, bool)> {
        let KeyView { key, view, resp3 } = asked;
        if *view == View::GET {
            return Some((self.frame(GET, &key.bytes), true));
        }
        let found = Command::parse(frame.clone()).ok().and_then(|command| {
            let classified = commands::classify(&command).ok()?;
            let own = matches!(classified.keys[..], [index] if command.arg(index) == &key.bytes[..]);
            let fits = own && classified.kind == CommandKind::Read;
            let named = commands::view(self.placement.view_hash(), &command, &classified, *resp3);
            (fits && named == *view).then_some(classified.spec.is_hash())
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
    fn count_heat(&mut self, step: &mut ShimStep<'_>, read: &Read) {
        let item = heat_item(&read.key, read.view);
        let always = self.config.settings.policies.is_always(&read.key.bytes);
        let floor = if always { 1 } else { self.heat_floor };
        let Some(heat) = self.heat.record(step.now, item, floor) else { return };
        self.hottest.report(step.now, &read.key, heat);
        let unfit = self.is_marked(&read.key) || self.larges.knows(&read.key, read.view);
        if self.config.settings.policies.of(&read.key.bytes).is_never() || unfit {
            return;
        }
        for node in self.placement.places(&read.key).into_iter().flatten() {
            let holds = self.keys.get(&read.key).is_some_and(|state| {
                let mut entries = state.directory.entries.iter();
                entries.any(|entry| entry.holder == Peer::Node(node) && entry.views.contains(&read.view))
            });
            let link = self.holders.get(Peer::Node(node));
            if holds || link.is_none_or(|link| heat < link.heat_floor && !always) {
                continue;
            }
            self.statistics.offers += 1;
            let Read { key, view, resp3, command, .. } = read.clone();
            step.send(Peer::Node(node), Message::Offer(Offer { key, view, resp3, heat, command }));
        }
    }

    /// The layers whose nodes have this view, for the reader's router.
    pub(super) fn hints(&self, key: &Key, view: View) -> LayerSet {
        let Some(state) = self.keys.get(key) else { return LayerSet::EMPTY };
        let entries = state.directory.entries.iter().filter(|entry| entry.views.contains(&view));
        let nodes = entries.filter_map(|entry| match entry.holder {
            Peer::Node(node) => Some(node),
            _ => None,
        });
        let layers = |nodes: &mut dyn Iterator<Item = NodeId>| {
            nodes.fold(LayerSet::EMPTY, |layers, node| layers.with(self.placement.layer_of(node)))
        };
        if self.elastic.is_empty() {
            return layers(&mut { nodes });
        }
        // A copy in a further place says nothing of the key's place in that layer.
        let places = self.placement.places(key);
        layers(&mut nodes.filter(|node| places.contains(&Some(*node))))
    }
}

/// A fetch that could not be asked: an error reply, never a copy. Only one that is too large is so next time, too.
fn refuse_fill(step: &mut ShimStep<'_>, fetch: FillTicket, refusal: Refusal) {
    let FillTicket { holder, session, fill, key, view, .. } = fetch;
    let Refusal { status, value } = refusal;
    let status = if status == Status::Large { status } else { Status::Refused };
    let fill = Fill {
        session,
        fill,
        key,
        view,
        version: 0,
        granted: false,
        status,
        cached: LayerSet::EMPTY,
        degree: Degree::BASE,
        ttl_ms: None,
        stale_ms: 0,
        value,
    };
    step.send(holder, Message::Fill(fill));
}

/// The same key in a buffer of its own.
pub(super) fn own(key: &Key) -> Key {
    Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key }
}
