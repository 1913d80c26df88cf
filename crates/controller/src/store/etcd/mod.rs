//! The store of controllers that are replicated: etcd, asked on threads of its own. Not how etcd is spoken to.
//!
//! Keys, under `/distcache/CLUSTER/`: `map`, and `members/ID` with the lease of that member. A thread writes, another
//! one watches. Both use one server of etcd at a time, and go on to the next when it fails them.

mod api;
mod watcher;
mod writer;

use runtime::threads;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::time::Time;
use runtime::clock;
use runtime::tls::Asker;

use super::{ControllerStore, StoreChange, StoreError};

/// For how long an answer of etcd counts as proof that it can be asked. Proofs are renewed every half second.
const PROOF: Duration = Duration::from_millis(1500);

/// After a failure, so that a server that is gone is not asked all the time.
const RETRY: Duration = Duration::from_millis(200);

/// Where etcd is and what is kept there.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// `HOST:PORT` of each server.
    pub endpoints: Vec<String>,
    /// Name and password of the user that etcd knows, where it asks for one.
    pub login: Option<(String, String)>,
    /// Where etcd speaks TLS.
    pub tls: Option<Asker>,
    /// The cluster's name: several clusters may share one etcd.
    pub cluster: String,
    /// How long a member may be silent; etcd counts in whole seconds, at least two.
    pub lease: Duration,
}

pub struct EtcdStore {
    shared: Arc<EtcdShared>,
    writer: Option<JoinHandle<()>>,
}

struct EtcdShared {
    settings: EtcdSettings,
    state: Mutex<EtcdState>,
    changed: Condvar,
}

/// What the threads and the service share.
#[derive(Default)]
struct EtcdState {
    keep: BTreeSet<String>,
    forget: BTreeSet<String>,
    /// A version and the map for it.
    proposal: Option<(u64, String)>,
    changes: Vec<StoreChange>,
    /// Lease of every member that is registered, by its id.
    leases: BTreeMap<String, i64>,
    /// Everything that etcd had was told, and what changes is seen.
    watching: bool,
    /// When the majority of etcd was last known to answer.
    proven: Time,
    problem: String,
    stop: bool,
}

impl EtcdStore {
    /// Starts the threads. Whether etcd is there shows later.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(settings: EtcdSettings) -> io::Result<EtcdStore> {
        let state = EtcdState { problem: "it was not reached yet".to_owned(), ..EtcdState::default() };
        let shared = Arc::new(EtcdShared { settings, state: Mutex::new(state), changed: Condvar::new() });
        let thread = |name: &str, run: fn(&EtcdShared)| {
            let shared = Arc::clone(&shared);
            threads::spawn(name, move || run(&shared))
        };
        let writer = Some(thread("etcd-writer", writer::run)?);
        // It ends by itself once the watch that it reads does; nobody waits for that.
        drop(thread("etcd-watcher", watcher::run)?);
        Ok(EtcdStore { shared, writer })
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            // It ends within a request's time; a panic there has been reported already.
            let _ = writer.join();
        }
    }
}

impl ControllerStore for EtcdStore {
    fn keep(&mut self, _now: Time, member: &str) {
        let mut state = self.shared.state();
        state.forget.remove(member);
        state.keep.insert(member.to_owned());
        self.shared.changed.notify_all();
    }

    fn forget(&mut self, _now: Time, member: &str) {
        let mut state = self.shared.state();
        state.keep.remove(member);
        state.forget.insert(member.to_owned());
        self.shared.changed.notify_all();
    }

    fn propose(&mut self, _now: Time, version: u64, map: &str) {
        self.shared.state().proposal = Some((version, map.to_owned()));
        self.shared.changed.notify_all();
    }

    fn changes(&mut self, _now: Time) -> Result<Vec<StoreChange>, StoreError> {
        let mut state = self.shared.state();
        let proven = clock::now().since(state.proven) <= PROOF;
        if !proven || !state.watching {
            return Err(StoreError(state.problem.clone()));
        }
        Ok(std::mem::take(&mut state.changes))
    }
}

impl EtcdShared {
    fn state(&self) -> MutexGuard<'_, EtcdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is work or `timeout` has passed; whether to go on.
    fn pause(&self, timeout: Duration) -> bool {
        let idle = |state: &mut EtcdState| {
            state.keep.is_empty() && state.forget.is_empty() && state.proposal.is_none() && !state.stop
        };
        let waited = self.changed.wait_timeout_while(self.state(), timeout, idle);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }

    /// Waits after a failure; whether to go on.
    fn pause_failed(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), RETRY, |state| !state.stop);
        !waited.unwrap_or_else(PoisonError::into_inner).0.stop
    }

    fn prefix(&self) -> String {
        format!("/distcache/{}/", self.settings.cluster)
    }

    fn map_key(&self) -> String {
        format!("{}map", self.prefix())
    }

    fn member_key(&self, member: &str) -> String {
        format!("{}members/{member}", self.prefix())
    }
}
