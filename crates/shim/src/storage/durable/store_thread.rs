//! The thread that carries out the commands of a durable store, and the one that commits. Not what a commit is, nor when replies
//! may leave (`protocol::storage::durable`).

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use config::Durability;
use fjall::{Keyspace as Tree, PersistMode};
use protocol::coherence::lease::EarlierIncarnations;
use protocol::storage::durable::{GroupCommit, StoreLife, StoreRecord};
use protocol::storage::{StorageEvent, Store};
use runtime::clock;
use runtime::reactor::Waker;

use super::disk::{self, Disk, DiskWriter, FREE_BYTES_MIN, OpenTrouble, in_words};
use super::keyspace::{DurableKeyspace, Freshness};
use super::overlay::Overlay;
use crate::storage::embedded::{Embedded, StoreClock};
use crate::storage::served::Served;

/// Where a store could not be opened, it is tried again after this long.
const RETRY: Duration = Duration::from_secs(1);
/// What has expired is looked for, and free space too, this often.
const CARE: Duration = Duration::from_millis(100);
/// Commands that are carried out before the next commit begins, at most.
const TURN_MAX: usize = 1024;

/// What the thread is told.
pub(super) enum StoreRequest {
    /// For the store as this incarnation has it.
    Store(u64, Store),
    /// Nothing follows.
    Leave,
    Committed(Result<Option<Tree>, String>),
}

/// What the thread tells.
pub(super) enum StoreNews {
    Opened {
        incarnation: u64,
        earlier: EarlierIncarnations,
    },
    Event(StorageEvent),
    /// It is not open, and tries to be.
    Closed(String),
    Refused(String),
    /// For people.
    Told(String),
}

/// What a store thread works on, and whom it tells.
pub(super) struct StorePlace {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) life: StoreLife,
    pub(super) seed: u64,
    pub(super) news: NewsBox,
}

/// News for the reactor, which is woken for them.
#[derive(Clone)]
pub(super) struct NewsBox {
    news: Arc<Mutex<Vec<StoreNews>>>,
    waker: Waker,
}

impl NewsBox {
    pub(super) fn new(waker: Waker) -> NewsBox {
        NewsBox { news: Arc::default(), waker }
    }

    fn tell(&self, news: impl IntoIterator<Item = StoreNews>) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).extend(news);
        self.waker.wake();
    }

    pub(super) fn take(&self) -> Vec<StoreNews> {
        mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn spawn(place: StorePlace) -> io::Result<(Sender<StoreRequest>, JoinHandle<()>)> {
    let (requests, asked) = channel();
    let own = requests.clone();
    let span = tracing::Span::current();
    let thread = thread::Builder::new().name("store".to_owned());
    let thread = thread.spawn(move || span.in_scope(|| run(&place, &own, &asked)))?;
    Ok((requests, thread))
}

/// Opens the store, again and again where it fails, until everybody has left.
fn run(place: &StorePlace, own: &Sender<StoreRequest>, asked: &Receiver<StoreRequest>) {
    let mut life = place.life.clone();
    loop {
        match Disk::open(&place.path, &life) {
            Ok(disk) => {
                let (incarnation, earlier) = (disk.record.incarnation, disk.earlier);
                place.news.tell([StoreNews::Opened { incarnation, earlier }]);
                let Some(mut store) = OpenStore::new(place, disk, own) else { return };
                match store.serve(place, asked) {
                    Ok(()) => return,
                    Err(trouble) => place.news.tell(store.close(trouble)),
                }
                // What a person has said at the start was of what was there then.
                life.adopts = false;
                life.lease_record.is_first = false;
            }
            Err(OpenTrouble::Refused(why)) => {
                place.news.tell([StoreNews::Refused(why)]);
                has_left(place, asked, None);
                return;
            }
            Err(OpenTrouble::Retry(why)) => place.news.tell([StoreNews::Closed(why)]),
        }
        if has_left(place, asked, Some(Instant::now() + RETRY)) {
            return;
        }
    }
}

fn lost(store: &Store, sent: bool) -> StoreNews {
    StoreNews::Event(StorageEvent::Lost { ticket: store.ticket, sent })
}

/// Carries nothing out until the next try, or until everybody has left; whether that is so.
fn has_left(place: &StorePlace, asked: &Receiver<StoreRequest>, until: Option<Instant>) -> bool {
    loop {
        let request = match until {
            Some(until) => asked.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match request {
            Ok(StoreRequest::Store(_, store)) => place.news.tell([lost(&store, false)]),
            Ok(StoreRequest::Committed(_)) => {}
            Ok(StoreRequest::Leave) | Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

struct OpenStore {
    served: Served<DurableKeyspace>,
    commits: GroupCommit<StorageEvent>,
    committer: Committer,
    news: Vec<StoreNews>,
    record: StoreRecord,
    /// The leases of those before are over then, and the record says more than it needs to.
    record_due: Option<Instant>,
    own_wait: Duration,
    cared: Instant,
    /// From the Unix epoch to when CLOCK_BOOTTIME was zero, sampled once: steps of the wall clock must not move deadlines.
    epoch: Duration,
    is_full: bool,
}

impl OpenStore {
    fn new(place: &StorePlace, disk: Disk, own: &Sender<StoreRequest>) -> Option<OpenStore> {
        let commits = GroupCommit::new(disk.counts.commit);
        let keys = DurableKeyspace::new(disk.reader, disk.counts);
        let committer = match Committer::spawn(disk.writer, place.durability, own.clone()) {
            Ok(committer) => committer,
            Err(error) => {
                place.news.tell([StoreNews::Refused(format!("no thread can be had: {error}"))]);
                return None;
            }
        };
        let own_wait = place.life.lease_record.wait;
        let is_longer = disk.record.wait > own_wait;
        Some(OpenStore {
            served: Served::new(Embedded::over(keys, place.seed)),
            commits,
            committer,
            news: Vec::new(),
            record_due: is_longer.then(|| Instant::now() + disk.record.wait),
            own_wait,
            record: disk.record,
            cared: Instant::now(),
            epoch: clock::epoch(),
            is_full: false,
        })
    }

    /// Until somebody leaves, or why it cannot go on.
    fn serve(&mut self, place: &StorePlace, asked: &Receiver<StoreRequest>) -> Result<(), String> {
        self.look_after_space(place);
        loop {
            let mut next = match asked.recv_timeout(CARE) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.leave(asked),
            };
            let mut turn = 0;
            while let Some(request) = next.take() {
                match request {
                    StoreRequest::Store(incarnation, store) => match self.record.incarnation == incarnation {
                        true => self.execute(store),
                        false => self.news.push(lost(&store, false)),
                    },
                    StoreRequest::Leave => return self.leave(asked),
                    StoreRequest::Committed(outcome) => self.committed(outcome)?,
                }
                turn += 1;
                if turn < TURN_MAX {
                    next = asked.try_recv().ok();
                }
            }
            self.care(place)?;
            self.begin_commit();
            if !self.news.is_empty() {
                place.news.tell(mem::take(&mut self.news));
            }
        }
    }

    fn now(&self) -> i64 {
        (clock::now().0 / 1000) as i64 + self.epoch.as_millis() as i64
    }

    fn execute(&mut self, store: Store) {
        let now = self.now();
        let mut events = Vec::new();
        self.served.store(StoreClock { now, unix: now }, store, &mut events);
        let seen = match self.served.keys().take_freshness() {
            Freshness::OnDisk => None,
            Freshness::UnderWay => self.commits.under_way(),
            Freshness::Forming => {
                self.commits.write();
                Some(self.commits.forming())
            }
        };
        for event in events {
            self.news.extend(self.commits.reply(seen, event).map(StoreNews::Event));
        }
    }

    fn begin_commit(&mut self) {
        if let Some(commit) = self.commits.begin() {
            let changes = self.served.keys().begin_commit(commit);
            self.committer.begin(CommitJob::Commit(changes));
        }
    }

    fn committed(&mut self, outcome: Result<Option<Tree>, String>) -> Result<(), String> {
        let keys = outcome.map_err(|error| format!("writing failed: {error}"))?;
        self.served.keys().end_commit(keys);
        self.news.extend(self.commits.committed().map(StoreNews::Event));
        self.begin_commit();
        Ok(())
    }

    /// Now and then: expires keys, looks at free space, and shortens the record.
    fn care(&mut self, place: &StorePlace) -> Result<(), String> {
        if self.cared.elapsed() < CARE {
            return Ok(());
        }
        self.cared = Instant::now();
        self.look_after_space(place);
        let now = self.now();
        self.served.expire(now);
        if self.served.keys().take_freshness() == Freshness::Forming {
            self.commits.write();
        }
        if self.record_due.is_some_and(|due| Instant::now() >= due) {
            self.record_due = None;
            self.record.wait = self.own_wait;
            self.committer.begin(CommitJob::Record(self.record.clone()));
        }
        Ok(())
    }

    /// A disk that is full would take a part of a commit; before that, writes are refused in words.
    fn look_after_space(&mut self, place: &StorePlace) {
        let Ok(free) = disk::free_bytes(&place.path) else { return };
        // A little more, once it was full, so that it does not change its mind all the time.
        let is_full = free < if self.is_full { FREE_BYTES_MIN / 8 * 9 } else { FREE_BYTES_MIN };
        if is_full != self.is_full {
            let text = match is_full {
                true => format!(
                    "{} MiB are free where the store is, and {} are needed: writes are refused, reads go on",
                    free >> 20,
                    FREE_BYTES_MIN >> 20
                ),
                false => "there is room where the store is: writes are taken again".to_owned(),
            };
            self.news.push(StoreNews::Told(text));
        }
        self.is_full = is_full;
        let refusal =
            is_full.then(|| format!("MISCONF the disk of the store is full ({} MiB are free)", free >> 20));
        self.served.keys().refuse_changes(refusal);
    }

    /// Writes what is left, and says that nothing is missing.
    fn leave(&mut self, asked: &Receiver<StoreRequest>) -> Result<(), String> {
        self.begin_commit();
        while self.commits.under_way().is_some() {
            match asked.recv() {
                Ok(StoreRequest::Committed(outcome)) => self.committed(outcome)?,
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
        self.record.is_clean = true;
        self.committer.begin(CommitJob::Leave(self.record.clone()));
        self.committer.join();
        Ok(())
    }

    /// Nobody knows what of the commit under way will be there; what has been asked since is lost, too.
    fn close(mut self, trouble: String) -> Vec<StoreNews> {
        self.committer.join();
        let mut news = mem::take(&mut self.news);
        news.push(StoreNews::Closed(trouble));
        news.extend(self.commits.failed().map(|event| match event {
            StorageEvent::Replies { ticket, .. } => {
                StoreNews::Event(StorageEvent::Lost { ticket, sent: true })
            }
            other => StoreNews::Event(other),
        }));
        news
    }
}

enum CommitJob {
    Commit(Arc<Overlay>),
    Record(StoreRecord),
    /// The last one.
    Leave(StoreRecord),
}

/// The thread that writes, so that reads need not wait for a disk that syncs.
struct Committer {
    jobs: Option<Sender<CommitJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    fn spawn(
        writer: DiskWriter,
        durability: Durability,
        done: Sender<StoreRequest>,
    ) -> io::Result<Committer> {
        let (jobs, taken) = channel();
        let span = tracing::Span::current();
        let thread = thread::Builder::new().name("store-commit".to_owned());
        let work = CommitWork { writer, durability, unsynced: None, done };
        let thread = thread.spawn(move || span.in_scope(|| work.run(&taken)))?;
        Ok(Committer { jobs: Some(jobs), thread: Some(thread) })
    }

    fn begin(&self, job: CommitJob) {
        // It has ended where a commit has failed, and has told that.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    fn join(&mut self) {
        self.jobs = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

struct CommitWork {
    writer: DiskWriter,
    durability: Durability,
    /// The newest commit that the disk may not have, and when it is to be asked for it.
    unsynced: Option<(u64, Instant)>,
    done: Sender<StoreRequest>,
}

impl CommitWork {
    /// Ends when there is nobody to work for, or after a failure: what has failed once is not tried again.
    fn run(mut self, jobs: &Receiver<CommitJob>) {
        loop {
            let wait = self.unsynced.map(|(_, due)| due.saturating_duration_since(Instant::now()));
            let job = match wait {
                Some(wait) => jobs.recv_timeout(wait),
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let outcome = match job {
                Ok(CommitJob::Commit(changes)) => {
                    let outcome = self.commit(&changes);
                    let failed = outcome.is_err();
                    let outcome = outcome.map_err(|error| in_words(&error));
                    if self.done.send(StoreRequest::Committed(outcome)).is_err() || failed {
                        return;
                    }
                    continue;
                }
                Ok(CommitJob::Record(record)) => {
                    self.writer.write_record(&record).map_err(fjall::Error::from)
                }
                Ok(CommitJob::Leave(record)) => self.leave(&record),
                Err(RecvTimeoutError::Timeout) => self.sync(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = outcome {
                let _ = self.done.send(StoreRequest::Committed(Err(in_words(&error))));
                return;
            }
        }
    }

    fn commit(&mut self, changes: &Overlay) -> fjall::Result<Option<Tree>> {
        let commit = changes.counts.commit;
        let interval = match self.durability {
            Durability::Always => None,
            Durability::Interval(interval) => Some(interval),
            Durability::Never => return self.writer.commit(changes, PersistMode::Buffer),
        };
        match interval {
            None => {
                let keys = self.writer.commit(changes, PersistMode::SyncData)?;
                self.writer.note_durable(commit)?;
                Ok(keys)
            }
            Some(interval) => {
                let keys = self.writer.commit(changes, PersistMode::Buffer)?;
                let due = self.unsynced.map_or_else(|| Instant::now() + interval, |(_, due)| due);
                self.unsynced = Some((commit, due));
                if Instant::now() >= due {
                    self.sync()?;
                }
                Ok(keys)
            }
        }
    }

    fn sync(&mut self) -> fjall::Result<()> {
        if let Some((commit, _)) = self.unsynced.take() {
            self.writer.sync()?;
            self.writer.note_durable(commit)?;
        }
        Ok(())
    }

    fn leave(&mut self, record: &StoreRecord) -> fjall::Result<()> {
        self.writer.sync()?;
        Ok(self.writer.write_record(record)?)
    }
}
