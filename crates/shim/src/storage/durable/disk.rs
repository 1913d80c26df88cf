//! The folder of a durable store: who may have it, what is in it, and commits. Not what commands do, and no thread.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use fjall::config::{BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{Database, Keyspace as Tree, KeyspaceCreateOptions, PersistMode};
use protocol::coherence::lease::EarlierIncarnations;
use protocol::storage::durable::{StoreLife, StoreOpening, StoreRecord};

use super::guard::CommitGuard;
use super::overlay::{COUNTS, Overlay, StoreCounts, deadline_name, write_object};
use super::record;

/// Blocks of files that are kept in memory, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// Changes in memory that are in the journal and in no table yet, in bytes.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// The library asks the file system for so many bytes for each journal.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Nothing is written where less is free: the next journal has room then, and so have tables that are merged into new ones
/// before the old ones go.
pub(super) const FREE_BYTES_MIN: u64 = JOURNAL_BYTES + 8 * MEMTABLE_BYTES;

/// Names in the tree about the store itself.
const GENERATION: &str = "generation";
const SEED: &str = "seed";

/// What `statfs` calls file systems that other machines have, too: locks and syncs may not hold there.
const SHARED_FILE_SYSTEMS: [(u32, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
];

/// Names are no longer, and a key is a part of one.
pub(super) const KEY_BYTES_MAX: usize = 65_535 - 9;

/// Why a store is not open.
#[derive(Debug)]
pub(super) enum OpenTrouble {
    /// It may be another time.
    Retry(String),
    /// Only a person can help.
    Refused(String),
}

/// An open store. The halves are for a thread each.
pub(super) struct Disk {
    pub(super) reader: DiskReader,
    pub(super) writer: DiskWriter,
    pub(super) record: StoreRecord,
    pub(super) earlier: EarlierIncarnations,
    pub(super) counts: StoreCounts,
}

/// Reads what is committed.
pub(super) struct DiskReader {
    pub(super) keys: Tree,
    pub(super) seed: u64,
}

/// Commits. It has the lock of the folder, which goes with it.
pub(super) struct DiskWriter {
    database: Database,
    about: Tree,
    keys: Tree,
    guard: CommitGuard,
    folder: PathBuf,
    incarnation: u64,
    generations: u64,
    _lock: File,
}

impl Disk {
    pub(super) fn open(path: &Path, life: &StoreLife) -> Result<Disk, OpenTrouble> {
        let lock = lock(path)?;
        let unusable = |error: io::Error| OpenTrouble::Refused(format!("cannot be used: {error}"));
        let found = record::read(path, life.adopts).map_err(OpenTrouble::Refused)?;
        if found.is_none() {
            // Before there is anything else: keys without a record are nobody's.
            let (record, _) = StoreOpening::default().succeed(life).map_err(OpenTrouble::Refused)?;
            record::write(path, &record).map_err(unusable)?;
        }
        let refused = |error: fjall::Error| match error {
            // Its last handle goes a moment after our lock.
            fjall::Error::Locked => OpenTrouble::Retry("is being closed".to_owned()),
            error => OpenTrouble::Refused(format!("cannot be opened: {}", in_words(&error))),
        };
        let (guard, durable) = CommitGuard::open(&path.join("guard")).map_err(unusable)?;
        let builder = Database::builder(path.join("data")).cache_size(CACHE_BYTES).worker_threads(1);
        let database = builder.open().map_err(refused)?;
        let about = database.keyspace("about", options).map_err(refused)?;
        let text = |name| -> Result<Option<String>, OpenTrouble> {
            let found = about.get(name).map_err(refused)?;
            Ok(found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        let generation = text(GENERATION)?.unwrap_or_else(|| "keys".to_owned());
        let seed = text(SEED)?.and_then(|seed| seed.parse().ok());
        let keys = database.keyspace(&generation, options).map_err(refused)?;
        let counts = keys.get(COUNTS).map_err(refused)?.and_then(|bytes| StoreCounts::parse(&bytes));
        let counts = counts.unwrap_or_default();
        let lost_commits = durable.saturating_sub(counts.commit);
        let was_clean = found.as_ref().is_none_or(|(record, _)| record.is_clean);
        let (record, is_copy) = found.unzip();
        let opening = StoreOpening { record, is_copy: is_copy.unwrap_or(false), lost_commits };
        let (record, earlier) = opening.succeed(life).map_err(OpenTrouble::Refused)?;
        if !was_clean {
            // Where a sync has failed, what is read again need not be on disk: it is written anew.
            keys.rotate_memtable_and_wait().map_err(refused)?;
        }
        let mut writer = DiskWriter {
            about,
            keys: keys.clone(),
            guard,
            folder: path.to_owned(),
            incarnation: record.incarnation,
            generations: 0,
            database,
            _lock: lock,
        };
        let seed = seed.unwrap_or_else(rand::random);
        writer.begin(seed, &generation).map_err(refused)?;
        writer.write_record(&record).map_err(unusable)?;
        writer.guard.begin(counts.commit).map_err(unusable)?;
        writer.delete_others(&generation).map_err(refused)?;
        Ok(Disk { reader: DiskReader { keys, seed }, writer, record, earlier, counts })
    }
}

impl DiskWriter {
    /// Makes the changes of a commit one step, and gives the tree of keys if that is another one now. `mode` says what it
    /// survives.
    pub(super) fn commit(&mut self, overlay: &Overlay, mode: PersistMode) -> fjall::Result<Option<Tree>> {
        // The old tree goes at once, so that nothing may bring its name back.
        let mode = if overlay.is_flushed { PersistMode::SyncAll } else { mode };
        let mut batch = self.database.batch().durability(Some(mode));
        let mut flushed = None;
        if overlay.is_flushed {
            self.generations += 1;
            // Never a name that was there before.
            let generation = format!("keys-{}-{}", self.incarnation, self.generations);
            let keys = self.database.keyspace(&generation, options)?;
            batch.insert(&self.about, GENERATION, generation.as_str());
            flushed = Some(std::mem::replace(&mut self.keys, keys));
        }
        for (name, object) in &overlay.objects {
            match object {
                Some(object) => batch.insert(&self.keys, name.as_slice(), write_object(object)),
                None => batch.remove(&self.keys, name.as_slice()),
            }
        }
        for ((deadline, key), is_there) in &overlay.deadlines {
            let name = deadline_name(*deadline, key);
            match is_there {
                true => batch.insert(&self.keys, name, []),
                false => batch.remove(&self.keys, name),
            }
        }
        batch.insert(&self.keys, COUNTS, overlay.counts.write());
        batch.commit()?;
        let Some(old) = flushed else { return Ok(None) };
        self.database.delete_keyspace(old)?;
        Ok(Some(self.keys.clone()))
    }

    /// Notes that everything up to this commit is on disk.
    pub(super) fn note_durable(&mut self, commit: u64) -> io::Result<()> {
        self.guard.write(commit)
    }

    /// Puts everything that is committed on disk.
    pub(super) fn sync(&mut self) -> fjall::Result<()> {
        self.database.persist(PersistMode::SyncData)
    }

    /// Writes for the next process, on disk when it returns.
    pub(super) fn write_record(&mut self, record: &StoreRecord) -> io::Result<()> {
        record::write(&self.folder, record)
    }

    fn begin(&mut self, seed: u64, generation: &str) -> fjall::Result<()> {
        self.about.insert(SEED, seed.to_string())?;
        self.about.insert(GENERATION, generation)?;
        // This tree changes too little to let go of journals otherwise.
        self.about.rotate_memtable_and_wait()
    }

    /// What FLUSHALL has emptied, if the process ended before it could be deleted.
    fn delete_others(&self, generation: &str) -> fjall::Result<()> {
        for name in self.database.list_keyspace_names() {
            if name.starts_with("keys") && &*name != generation {
                self.database.delete_keyspace(self.database.keyspace(&name, options)?)?;
            }
        }
        Ok(())
    }
}

/// Keys are asked for that are not there as often as others.
fn options() -> KeyspaceCreateOptions {
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .filter_policy(FilterPolicy::all(filter))
}

/// Makes the folder if it is not there, and locks it for as long as the file lives.
fn lock(path: &Path) -> Result<File, OpenTrouble> {
    let refused = |error: io::Error| OpenTrouble::Refused(format!("the folder cannot be used: {error}"));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refused)?;
    if let Some(kind) = shared_file_system(path).map_err(refused)? {
        return Err(OpenTrouble::Refused(format!(
            "the folder is on {kind}, where neither locks nor syncs can be relied on: give one on a disk of this machine"
        )));
    }
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path.join("lock"));
    let file = file.map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(OpenTrouble::Retry("another process has it open; this one waits until that ends".to_owned()))
        }
        Err(TryLockError::Error(error)) => Err(refused(error)),
    }
}

/// The kind of file system, if it is none of this machine alone.
pub(super) fn shared_file_system(path: &Path) -> io::Result<Option<&'static str>> {
    let found = rustix::fs::statfs(path)?.f_type as u32;
    Ok(SHARED_FILE_SYSTEMS.iter().find(|(kind, _)| *kind == found).map(|(_, name)| *name))
}

/// Bytes that this process may still write there.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The library shows its errors as they are inside it.
pub(super) fn in_words(error: &fjall::Error) -> String {
    match error {
        fjall::Error::Io(error) => error.to_string(),
        fjall::Error::JournalRecovery(_) => "its journal is damaged: restore a backup".to_owned(),
        fjall::Error::InvalidVersion(_) => "another release of the library has written it".to_owned(),
        fjall::Error::Poisoned => "writing has failed before".to_owned(),
        other => format!("{other:?}"),
    }
}
