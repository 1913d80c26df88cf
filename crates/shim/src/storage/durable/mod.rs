//! The embedded store on disk as a shim's storage: one process has it, and nothing of it blocks the reactor. Not what commands do.

mod disk;
mod examine;
mod guard;
mod keyspace;
mod overlay;
mod record;
mod store_thread;

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use config::Durability;
use protocol::storage::durable::StoreLife;
use protocol::storage::network::{Backend, Network, StorageInput};
use protocol::storage::redis::LeaseRecord;
use protocol::storage::{NoteLevel, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use runtime::reactor::Waker;

pub use examine::{StoreFolderSeen, examine};
use store_thread::{NewsBox, StoreNews, StorePlace, StoreRequest};

/// Which store, and how its process has it.
pub struct DurableSettings {
    pub path: PathBuf,
    pub durability: Durability,
    pub life: StoreLife,
    pub seed: u64,
}

pub struct Durable {
    name: String,
    lease_record: LeaseRecord,
    requests: Option<Sender<StoreRequest>>,
    thread: Option<JoinHandle<()>>,
    news: NewsBox,
    /// The incarnation that has the open store.
    incarnation: Option<u64>,
    ups: u64,
    refusal: Option<String>,
    /// Why it is not up, as far as it was told.
    reason: String,
    pending: usize,
}

impl Durable {
    /// Opens the store on a thread of its own; `waker` wakes the reactor for what it tells.
    pub fn new(settings: DurableSettings, waker: Waker) -> Durable {
        let name = format!("embedded://{}", settings.path.display());
        let DurableSettings { path, durability, life, seed } = settings;
        let (news, lease_record) = (NewsBox::new(waker), life.lease_record);
        let place = StorePlace { path, durability, life, seed, news: news.clone() };
        let (spawned, refusal) = match store_thread::spawn(place) {
            Ok(spawned) => (Some(spawned), None),
            Err(error) => (None, Some(format!("{name}: no thread can be had: {error}"))),
        };
        let (requests, thread) = spawned.unzip();
        Durable {
            name,
            lease_record,
            requests,
            thread,
            news,
            incarnation: None,
            ups: 0,
            refusal,
            reason: String::new(),
            pending: 0,
        }
    }

    fn store(&mut self, store: Store, events: &mut Vec<StorageEvent>) {
        let ticket = store.ticket;
        let asked = self.requests.as_ref().zip(self.incarnation);
        match asked.map(|(requests, incarnation)| requests.send(StoreRequest::Store(incarnation, store))) {
            Some(Ok(())) => self.pending += 1,
            _ => events.push(StorageEvent::Lost { ticket, sent: false }),
        }
    }

    fn hear(&mut self, news: StoreNews, events: &mut Vec<StorageEvent>) {
        match news {
            StoreNews::Opened { incarnation, earlier } => {
                (self.incarnation, self.ups) = (Some(incarnation), self.ups + 1);
                self.reason.clear();
                self.note(NoteLevel::Info, "the store is open", events);
                if let Some(why) = self.lease_record.why_to_wait(earlier) {
                    self.note(NoteLevel::Warning, &why, events);
                }
                let traits = StorageTraits { reports_no_changes: true, ..StorageTraits::default() };
                events.push(StorageEvent::Up { incarnation, traits, earlier });
            }
            StoreNews::Event(event) => {
                if matches!(event, StorageEvent::Replies { .. } | StorageEvent::Lost { .. }) {
                    self.pending = self.pending.saturating_sub(1);
                }
                events.push(event);
            }
            StoreNews::Closed(reason) => self.down(&reason, events),
            StoreNews::Refused(reason) => {
                self.refusal = Some(format!("{}: {reason}", self.name));
                self.down(&reason, events);
            }
            StoreNews::Told(text) => self.note(NoteLevel::Warning, &text, events),
        }
    }

    fn down(&mut self, reason: &str, events: &mut Vec<StorageEvent>) {
        self.incarnation = None;
        if reason != self.reason {
            reason.clone_into(&mut self.reason);
            self.note(NoteLevel::Warning, &format!("the store is not open: {reason}"), events);
            events.push(StorageEvent::Down { reason: format!("{}: {reason}", self.name), gone: true });
        }
    }

    fn note(&self, level: NoteLevel, text: &str, events: &mut Vec<StorageEvent>) {
        events.push(StorageEvent::Note { level, text: format!("{}: {text}", self.name) });
    }

    fn leave(&mut self) {
        if let Some(requests) = self.requests.take() {
            // The thread has ended where the store is refused.
            let _ = requests.send(StoreRequest::Leave);
        }
    }
}

impl Backend for Durable {
    /// As in memory, nothing blocks there; it refuses WATCH and tells of no large reply.
    fn step(
        &mut self,
        _now: Time,
        input: StorageInput,
        _network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        match input {
            StorageInput::Store(store) => self.store(store, events),
            StorageInput::Tick => {
                for news in self.news.take() {
                    self.hear(news, events);
                }
            }
            StorageInput::HandOver => events.push(StorageEvent::Left),
            StorageInput::Leave => self.leave(),
            _ => {}
        }
    }

    fn is_up(&self) -> bool {
        self.incarnation.is_some()
    }

    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn reconnects(&self) -> u64 {
        self.ups.saturating_sub(1)
    }

    fn pending_count(&self) -> usize {
        self.pending
    }
}

impl Drop for Durable {
    /// Waits until everything is on disk and nobody has the folder any more.
    fn drop(&mut self) {
        self.leave();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
