//! Feeds the shim machine from its links and its storage, and carries its effects out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use config::Config;
use config::key_bytes;
use protocol::placement::{Placement, Secret};
use protocol::shim::{Effect, Input, PurgeTarget, Shim};
use protocol::storage::network::StorageInput;
use protocol::storage::{NoteLevel, StorageEvent};
use protocol::time::Time;
use runtime::clock;
use runtime::instance::MapCell;
use runtime::orders::{Order, Orders, PurgeScope, Purged};
use runtime::peers::{PeerEvent, Peers};
use runtime::reactor::{self, Event, Io, ListenerId};
use runtime::status::StatusCell;
use runtime::stop::Stop;
use wire::{Message, ShimId};

use crate::storage::Storage;

/// Ticks between two statuses: about 100 ms.
const TICKS_PER_STATUS: u32 = 10;
/// A stopping shim is left after this long, whatever is still under way.
const DRAIN_US_MAX: u64 = 2_000_000;
/// Nothing may have been asked for this long before a stopping shim ends: commands may be on their way.
const QUIET_US: u64 = 20_000;

/// What `spawn` waits for: storage answers or is known to be away, or a person has to do something.
pub(crate) type FirstWord = SyncSender<Result<(), String>>;

pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) id: ShimId,
    pub(crate) shim: Shim,
    pub(crate) storage: Storage,
    pub(crate) peers: Peers,
    pub(crate) placement: Arc<Placement>,
    pub(crate) listener: ListenerId,
    pub(crate) status: StatusCell,
    pub(crate) maps: MapCell,
    pub(crate) orders: Orders,
    /// Stops this shim alone.
    pub(crate) stop: Stop,
    pub(crate) first_word: FirstWord,
}

pub(crate) struct ShimDriver {
    pub(crate) parts: Parts,
    pub(crate) counts: ShimCounts,
    started: bool,
    ticks: u32,
    /// When to give up draining, once it has begun.
    drain_until_us: Option<u64>,
    /// Storage has been left. What has been answered is to be written yet.
    stopped: bool,
    asked_us: u64,
    /// Why storage does not report changes, as far as it is logged.
    feed_refusal: Option<String>,
    peer_events: Vec<PeerEvent>,
    effects: Vec<Effect>,
    storage_events: Vec<StorageEvent>,
    /// Whom to tell when a purge is done, by its number.
    purges: BTreeMap<u64, Purged>,
    purges_begun: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShimCounts {
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) linked: u64,
}

impl ShimDriver {
    pub(crate) fn new(parts: Parts) -> ShimDriver {
        ShimDriver {
            counts: ShimCounts::default(),
            started: false,
            ticks: 0,
            drain_until_us: None,
            stopped: false,
            asked_us: 0,
            feed_refusal: None,
            peer_events: Vec::new(),
            effects: Vec::new(),
            storage_events: Vec::new(),
            purges: BTreeMap::new(),
            purges_begun: 0,
            parts,
        }
    }

    fn peer_event(&mut self, io: &mut Io, event: PeerEvent) {
        match event {
            PeerEvent::Linked(peer) => {
                self.counts.linked += 1;
                self.step(io, clock::now_us(), Input::Linked(peer));
            }
            PeerEvent::Unlinked(peer) => {
                self.counts.linked -= 1;
                self.step(io, clock::now_us(), Input::Unlinked(peer));
            }
            PeerEvent::Message { from, now_us, message } => {
                self.counts.messages_in += 1;
                if matches!(message, Message::Read(_) | Message::Execute(_) | Message::Fetch(_)) {
                    self.asked_us = now_us;
                }
                self.step(io, now_us, Input::Message { from, message });
            }
        }
    }

    fn step(&mut self, io: &mut Io, now_us: u64, input: Input) {
        self.parts.shim.step(Time(now_us), input, &mut self.effects);
        self.carry_out(io);
    }

    /// Carries out what the machine wants until it wants nothing more: storage may answer at once.
    fn carry_out(&mut self, io: &mut Io) {
        while !self.effects.is_empty() || !self.storage_events.is_empty() {
            let now_us = clock::now_us();
            let Parts { storage, peers, .. } = &mut self.parts;
            let mut store = |io: &mut Io, input| match self.stopped {
                true => {}
                false => storage.step(io, now_us, input, &mut self.storage_events),
            };
            for effect in self.effects.drain(..) {
                match effect {
                    Effect::Send { to, message } => {
                        self.counts.messages_out += u64::from(peers.send(io, to, &message));
                    }
                    Effect::Store(wanted) => store(io, StorageInput::Store(wanted)),
                    Effect::Release { number, clean } => {
                        store(io, StorageInput::Release { number, clean });
                    }
                    Effect::Wish { ticket, wish } => store(io, StorageInput::Wish { ticket, wish }),
                    Effect::Purged { number, copies } => {
                        if let Some(done) = self.purges.remove(&number) {
                            done(copies);
                        }
                    }
                }
            }
            for event in self.storage_events.drain(..) {
                if let StorageEvent::Note { level, text } = &event {
                    log(*level, text);
                }
                self.parts.shim.step(Time(now_us), Input::Storage(event), &mut self.effects);
            }
        }
    }

    /// Tells whoever started this shim how the start went, once.
    fn say_first_word(&mut self, any_news: bool) {
        if self.started {
            return;
        }
        let word = match self.parts.storage.refusal() {
            Some(refusal) => Err(refusal.to_owned()),
            None if any_news => Ok(()),
            None => return,
        };
        self.started = true;
        if word.is_err() {
            self.parts.stop.stop();
        }
        // Nobody listens any more if it has taken long; then the log has told.
        let _ = self.parts.first_word.try_send(word);
    }

    fn tick(&mut self, io: &mut Io) {
        let now_us = clock::now_us();
        self.step(io, now_us, Input::Tick);
        self.ticks += 1;
        if self.ticks >= TICKS_PER_STATUS {
            self.ticks = 0;
            let status = self.make_status(Time(now_us));
            self.parts.status.set(status);
            self.log_feed(Time(now_us));
        }
    }

    fn log_feed(&mut self, now: Time) {
        let refusal = self.parts.shim.feed(now).refusal;
        if refusal != self.feed_refusal.as_deref() {
            if let Some(refusal) = refusal {
                tracing::warn!(
                    refusal,
                    "storage does not report changes, so nothing is cached; its user needs +client|tracking"
                );
            }
            self.feed_refusal = refusal.map(str::to_owned);
        }
    }

    fn take_orders(&mut self, io: &mut Io) {
        for order in self.parts.orders.take() {
            match order {
                Order::Settings(config) => self.set(io, config),
                // Routers tell them to clients.
                Order::HotKeys(_) => {}
                Order::Purge { scope, done } => {
                    self.purges_begun += 1;
                    let number = self.purges_begun;
                    self.purges.insert(number, done);
                    let scope = match scope {
                        PurgeScope::Key(key) => PurgeTarget::Key(key_bytes(&key).into()),
                        PurgeScope::Prefix(prefix) => PurgeTarget::Prefix(key_bytes(&prefix).into()),
                        PurgeScope::All => PurgeTarget::All,
                    };
                    self.step(io, clock::now_us(), Input::Purge { number, scope });
                }
            }
        }
    }

    fn set(&mut self, io: &mut Io, config: Arc<Config>) {
        self.parts.config = config;
        let config = &self.parts.config;
        let settings = Box::new(config.shim_settings(self.parts.id));
        self.step(io, clock::now_us(), Input::Settings(settings));
    }

    fn adopt_map(&mut self, io: &mut Io) {
        let parts = &mut self.parts;
        let Some(map) = parts.maps.newer_than(parts.placement.epoch()) else { return };
        match Placement::new(Secret(parts.config.secret().0), (*map).clone()) {
            Ok(placement) => {
                parts.placement = Arc::new(placement);
                let placement = Arc::clone(&parts.placement);
                self.step(io, clock::now_us(), Input::Map(placement));
            }
            Err(error) => {
                tracing::error!(%error, epoch = map.epoch, "a cluster map that cannot be used is ignored")
            }
        }
    }
}

impl reactor::Driver for ShimDriver {
    fn event(&mut self, io: &mut Io, event: Event) {
        let mut events = std::mem::take(&mut self.peer_events);
        let rest = self.parts.peers.event(io, event, &mut events);
        for event in events.drain(..) {
            self.peer_event(io, event);
        }
        self.peer_events = events;
        let Some(event) = rest else { return };
        // It would connect again, and make itself a user that nobody takes away.
        let rest = match self.stopped {
            true => Some(event),
            false => self.parts.storage.event(io, event, &mut self.storage_events),
        };
        let is_news = |event: &StorageEvent| !matches!(event, StorageEvent::Note { .. });
        let any_news = !self.started && self.storage_events.iter().any(is_news);
        self.carry_out(io);
        self.say_first_word(any_news);
        match rest {
            Some(Event::Tick) => self.tick(io),
            Some(Event::Woken) => {
                self.adopt_map(io);
                self.take_orders(io);
            }
            _ => {}
        }
    }

    /// Goes on until what was asked is answered; commands that block are left to their fate.
    fn stopping(&mut self, io: &mut Io) -> bool {
        if self.stopped {
            return true;
        }
        let now_us = clock::now_us();
        let until_us = *self.drain_until_us.get_or_insert_with(|| {
            io.close_listener(self.parts.listener);
            now_us + DRAIN_US_MAX
        });
        let quiet = now_us.saturating_sub(self.asked_us) >= QUIET_US;
        let idle = self.parts.shim.waiting() == 0 && self.parts.shim.pending() == 0;
        let ended = (quiet && idle) || now_us >= until_us;
        if ended {
            self.parts.storage.step(io, now_us, StorageInput::Leave, &mut self.storage_events);
            self.stopped = true;
            self.carry_out(io);
        }
        ended
    }
}

fn log(level: NoteLevel, text: &str) {
    match level {
        NoteLevel::Info => tracing::info!("{text}"),
        NoteLevel::Warning => tracing::warn!("{text}"),
    }
}
