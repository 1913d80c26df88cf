//! Feeds the shim machine from its links and its storage, and carries its effects out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use config::{Config, ShimPlace, key_bytes, key_text};
use protocol::migration::Departures;
use protocol::placement::Placement;
use protocol::shim::{ALL_KEYS, Effect, ForeignWritersSeen, Input, PurgeTarget, Shim};
use protocol::storage::network::StorageInput;
use protocol::storage::redis::clients::ForeignConnection;
use protocol::storage::{NoteLevel, StorageEvent};
use protocol::time::Time;
use runtime::clock;
use runtime::instance::NewPlacement;
use runtime::member::Role;
use runtime::orders::{PurgeScope, Purged};
use runtime::peers::{PeerEvent, Peers};
use runtime::reactor::{BusyMeter, Event, Io, ListenerId};
use runtime::status::MemberStatus;
use runtime::stop::Stop;

use crate::status::listed;
use crate::storage::Storage;

/// A stopping shim is left after a lease and this, whatever is still under way.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Others who write are logged this often at most.
const FOREIGN_WRITERS_INTERVAL: Duration = Duration::from_secs(10);

/// A process that stops is not waited for much longer than this.
const STOP_MAX: Duration = Duration::from_secs(9);

/// What `spawn` waits for: storage answers or is known to be away, or a person has to do something.
pub(crate) type FirstWord = SyncSender<Result<(), String>>;

pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) id: ShimPlace,
    pub(crate) shim: Shim,
    pub(crate) storage: Storage,
    pub(crate) peers: Peers,
    pub(crate) placement: Arc<Placement>,
    pub(crate) listener: ListenerId,
    /// Stops this shim alone.
    pub(crate) stop: Stop,
    pub(crate) first_word: FirstWord,
}

pub(crate) struct ShimDriver {
    pub(crate) parts: Parts,
    busy: BusyMeter,
    started: bool,
    /// When to give up draining, once it has begun.
    drain_until: Option<Time>,
    /// Storage has been left. What has been answered is to be written yet.
    stopped: bool,
    /// Why storage does not report changes, as far as it is logged.
    feed_refusal: Option<String>,
    /// Copies may be stale because storage is gone, as far as that is logged, and for how long.
    stale: Option<Duration>,
    /// Others who write, as far as they are logged, and when.
    foreign_writers: ForeignWritersSeen,
    foreign_writers_told: Time,
    tracking_refusal: Option<String>,
    peer_events: Vec<PeerEvent>,
    effects: Vec<Effect>,
    storage_events: Vec<StorageEvent>,
    /// Whom to tell when a purge is done, by its number.
    purges: BTreeMap<u64, Purged>,
    purges_begun: u64,
}

impl ShimDriver {
    pub(crate) fn new(parts: Parts) -> ShimDriver {
        ShimDriver {
            busy: BusyMeter::default(),
            started: false,
            drain_until: None,
            stopped: false,
            feed_refusal: None,
            stale: None,
            foreign_writers: ForeignWritersSeen::default(),
            foreign_writers_told: Time(0),
            tracking_refusal: None,
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
            PeerEvent::Linked(peer) => self.step(io, clock::now(), Input::Linked(peer)),
            PeerEvent::Unlinked(peer) => self.step(io, clock::now(), Input::Unlinked(peer)),
            PeerEvent::Message { from, now, message } => {
                self.step(io, now, Input::Message { from, message });
            }
        }
    }

    fn step(&mut self, io: &mut Io, now: Time, input: Input) {
        self.parts.shim.step(now, input, &mut self.effects);
        self.carry_out(io);
    }

    /// Carries out what the machine wants until it wants nothing more: storage may answer at once.
    fn carry_out(&mut self, io: &mut Io) {
        while !self.effects.is_empty() || !self.storage_events.is_empty() {
            let now = clock::now();
            let Parts { storage, peers, .. } = &mut self.parts;
            let mut store = |io: &mut Io, input| match self.stopped {
                true => {}
                false => storage.step(io, now, input, &mut self.storage_events),
            };
            for effect in self.effects.drain(..) {
                match effect {
                    Effect::Send { to, message } => {
                        // What has no link is lost, and `Unlinked` is on its way.
                        peers.send(io, to, &message);
                    }
                    Effect::Store(wanted) => store(io, StorageInput::Store(wanted)),
                    Effect::Release { number, clean } => {
                        store(io, StorageInput::Release { number, clean });
                    }
                    Effect::Control { ticket, control } => {
                        store(io, StorageInput::Control { ticket, control })
                    }
                    Effect::Vacant { gone } => store(io, StorageInput::Vacant { gone }),
                    Effect::HandOver => store(io, StorageInput::HandOver),
                    Effect::Renew => {
                        tracing::warn!(
                            "has handed over and stands by: routers reach another process of this shim, and not this one"
                        );
                        peers.renew(io, &"this process has handed over");
                    }
                    Effect::Migrate { keys, destinations, again } => {
                        let departures = Arc::new(keys);
                        store(io, StorageInput::Migrate { departures, destinations, again });
                    }
                    Effect::Prepare { keys, again } => {
                        let departures = keys.map(|keys| Arc::new(keys) as Arc<dyn Departures>);
                        store(io, StorageInput::Prepare { departures, again });
                    }
                    Effect::EndMigration => store(io, StorageInput::EndMigration),
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
                self.parts.shim.step(now, Input::Storage(event), &mut self.effects);
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

    fn log_refusals(&mut self, now: Time) {
        if let Some(refusal) = news(&mut self.feed_refusal, self.parts.shim.feed(now).refusal) {
            tracing::warn!(
                refusal,
                "storage does not report changes, so nothing is cached; its user needs +client|tracking"
            );
        }
        if let Some(refusal) = news(&mut self.tracking_refusal, self.parts.shim.tracking_refusal()) {
            tracing::warn!(
                refusal,
                "storage does not report changes of what is cached: nobody notices if others write to it"
            );
        }
    }

    fn log_stale(&mut self, now: Time) {
        let stale = self.parts.shim.stale_for(now);
        match (std::mem::replace(&mut self.stale, stale), stale) {
            (None, Some(_)) => tracing::warn!(
                "storage is gone: reads of prefixes with stale_if_error_ms are answered from copies, which may be stale, until that time \
                 is over; all others fail"
            ),
            (Some(lasted), None) => tracing::warn!(
                lasted_ms = lasted.as_millis() as u64,
                "no read is answered any more from copies that may be stale: storage is back, or stale_if_error_ms is over"
            ),
            _ => {}
        }
    }

    /// Others write to storage that only DistCache is to write to. An application that comes and goes is told once.
    fn log_foreign_writers(&mut self, now: Time) {
        let shim = &self.parts.shim;
        let seen = shim.foreign_writers();
        let told = &mut self.foreign_writers;
        let is_first = *told == ForeignWritersSeen::default();
        let is_time = is_first || now.since(self.foreign_writers_told) >= FOREIGN_WRITERS_INTERVAL;
        if seen == told || !is_time {
            return;
        }
        let caching = if seen.refused { "refused while it is so" } else { "goes on" };
        let (writers, eviction) = (listed(&seen.connections), seen.eviction.as_deref().unwrap_or("none"));
        if seen.changes > told.changes {
            let key =
                if self.parts.config.security.hide_keys { "(hidden)".into() } else { key_text(&seen.key) };
            if seen.key == ALL_KEYS {
                tracing::warn!(
                    changes = seen.changes - told.changes,
                    writers,
                    caching,
                    "others than DistCache have changed all keys of this storage server, or some that it does not name: every copy is \
                     dropped, up to a second late; stop them"
                );
            } else {
                tracing::warn!(
                    keys = seen.changes - told.changes,
                    %key,
                    writers,
                    eviction,
                    caching,
                    "others than DistCache have changed cached keys at this storage server, or it evicts: the copies are dropped, a \
                     moment late; stop them, or write mode = \"bounded\" under [cluster]"
                );
            }
        } else {
            let is_told = |new: &ForeignConnection| told.connections.iter().any(|known| new.is_like(known));
            if !seen.connections.iter().all(is_told) {
                tracing::warn!(
                    writers,
                    caching,
                    "connections that are not DistCache's write to this storage server: stop them, or write mode = \"bounded\" under \
                     [cluster]"
                );
            }
            if seen.eviction.is_some() && seen.eviction != told.eviction {
                tracing::warn!(
                    eviction,
                    caching,
                    "this storage server evicts: CONFIG SET maxmemory-policy noeviction, or write mode = \"bounded\" under [cluster]"
                );
            }
        }
        (*told, self.foreign_writers_told) = (seen.clone(), now);
    }
}

impl Role for ShimDriver {
    const NAME: &'static str = "shim";

    fn event(&mut self, io: &mut Io, event: Event) -> Option<Event> {
        let mut events = std::mem::take(&mut self.peer_events);
        let rest = self.parts.peers.event(io, event, &mut events);
        for event in events.drain(..) {
            self.peer_event(io, event);
        }
        self.peer_events = events;
        let event = rest?;
        // It would connect again, and make itself a user that nobody takes away.
        let rest = match self.stopped {
            true => Some(event),
            false => self.parts.storage.event(io, event, &mut self.storage_events),
        };
        let is_news = |event: &StorageEvent| !matches!(event, StorageEvent::Note { .. });
        let any_news = !self.started && self.storage_events.iter().any(is_news);
        self.carry_out(io);
        self.say_first_word(any_news);
        rest
    }

    fn tick(&mut self, io: &mut Io, now: Time, shows: bool) {
        if let Some(permille) = self.busy.measure(now, io) {
            self.step(io, now, Input::Busy { permille });
        }
        self.step(io, now, Input::Tick);
        if shows {
            self.log_refusals(now);
            self.log_stale(now);
            self.log_foreign_writers(now);
        }
    }

    fn rest(&mut self, now: Time) -> Duration {
        self.parts.peers.rest(now, self.parts.shim.rest(now))
    }

    fn status(&mut self, now: Time) -> MemberStatus {
        self.make_status(now)
    }

    fn epoch(&self) -> u32 {
        self.parts.placement.epoch()
    }

    fn adopt(&mut self, io: &mut Io, map: NewPlacement) {
        self.parts.placement = Arc::clone(&map.placement);
        self.step(io, clock::now(), Input::Map(map.placement));
    }

    fn set(&mut self, io: &mut Io, config: Arc<Config>) {
        self.parts.config = config;
        let settings = Box::new(self.parts.config.shim_settings(self.parts.id.shim));
        self.step(io, clock::now(), Input::Settings(settings));
    }

    fn purge(&mut self, io: &mut Io, scope: PurgeScope, done: Purged) {
        self.purges_begun += 1;
        let number = self.purges_begun;
        self.purges.insert(number, done);
        let scope = match scope {
            PurgeScope::Key(key) => PurgeTarget::Key(key_bytes(&key).into()),
            PurgeScope::Prefix(prefix) => PurgeTarget::Prefix(key_bytes(&prefix).into()),
            PurgeScope::All => PurgeTarget::All,
        };
        self.step(io, clock::now(), Input::Purge { number, scope });
    }

    /// Hands over to another process that may be this shim, or to this one's next life. What takes too long is left to its fate.
    fn stopping(&mut self, io: &mut Io) -> bool {
        if self.stopped {
            return true;
        }
        let now = clock::now();
        if self.drain_until.is_none() {
            io.close_listener(self.parts.listener);
            let lease = self.parts.config.cluster.lease_terms().restart_wait();
            self.drain_until = Some(now.after((lease + DRAIN_MAX).min(STOP_MAX)));
            self.step(io, now, Input::HandOver);
        }
        let ended = self.parts.shim.has_left() || self.drain_until.is_some_and(|until| now >= until);
        if ended {
            self.parts.storage.step(io, now, StorageInput::Leave, &mut self.storage_events);
            self.stopped = true;
            self.carry_out(io);
        }
        ended
    }
}

/// A refusal that is not `known` yet, and is from now on.
fn news<'a>(known: &mut Option<String>, refusal: Option<&'a str>) -> Option<&'a str> {
    if refusal == known.as_deref() {
        return None;
    }
    *known = refusal.map(str::to_owned);
    refusal
}

fn log(level: NoteLevel, text: &str) {
    match level {
        NoteLevel::Info => tracing::info!("{text}"),
        NoteLevel::Warning => tracing::warn!("{text}"),
    }
}
