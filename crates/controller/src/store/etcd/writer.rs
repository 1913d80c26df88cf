//! The thread that writes to etcd: keeps leases, proposes maps, and sees whether the majority answers. Never reads back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::time::Time;
use runtime::clock;

use super::api::{EtcdApi, EtcdWritten};
use super::{EtcdShared, EtcdState};
use crate::store::StoreError;

/// Between two proofs that etcd can be asked, and the longest time without a look at what is to be done.
const PERIOD: Duration = Duration::from_millis(500);

struct EtcdWriter<'a> {
    shared: &'a EtcdShared,
    endpoint: usize,
    api: EtcdApi,
    /// When each lease was kept last.
    kept: BTreeMap<String, Time>,
}

#[derive(Default)]
struct EtcdWork {
    keep: BTreeSet<String>,
    forget: BTreeSet<String>,
    proposal: Option<(u64, String)>,
}

pub(super) fn run(shared: &EtcdShared) {
    let api = EtcdApi::new(&shared.settings, 0);
    let mut writer = EtcdWriter { shared, endpoint: 0, api, kept: BTreeMap::new() };
    let mut proven = Time(0);
    loop {
        let mut work = writer.take();
        let done = writer.work(&mut work).and_then(|()| {
            let due = clock::now().since(proven) >= PERIOD;
            if due { writer.prove().map(|sent| proven = sent) } else { Ok(()) }
        });
        let goes_on = match done {
            Ok(()) => shared.pause(PERIOD),
            Err(error) => {
                writer.fail(work, error);
                shared.pause_failed()
            }
        };
        if !goes_on {
            return;
        }
    }
}

impl EtcdWriter<'_> {
    fn take(&self) -> EtcdWork {
        let mut state = self.shared.state();
        EtcdWork {
            keep: std::mem::take(&mut state.keep),
            forget: std::mem::take(&mut state.forget),
            proposal: state.proposal.take(),
        }
    }

    /// What is done is taken out of `work`. A member may have had its last heartbeat: without a lease nobody would see it end.
    fn work(&mut self, work: &mut EtcdWork) -> Result<(), StoreError> {
        while let Some(member) = work.keep.first() {
            self.keep(member)?;
            work.keep.pop_first();
        }
        if let Some((version, map)) = &work.proposal {
            // Whether another replica was faster, the watch tells.
            self.api.put_if(&self.shared.map_key(), *version, map, 0)?;
            work.proposal = None;
        }
        while let Some(member) = work.forget.first() {
            let lease = self.shared.state().leases.get(member).copied();
            if let Some(lease) = lease {
                self.api.revoke(lease)?;
            }
            self.kept.remove(member);
            work.forget.pop_first();
        }
        Ok(())
    }

    fn keep(&mut self, member: &str) -> Result<(), StoreError> {
        let now = clock::now();
        let enough = self.shared.settings.lease / 5;
        if self.kept.get(member).is_some_and(|kept| now < kept.after(enough)) {
            return Ok(());
        }
        let lease = self.shared.state().leases.get(member).copied();
        let kept = match lease {
            Some(lease) => self.api.keep_alive(lease)?,
            None => false,
        };
        if !kept {
            self.register(member)?;
        }
        self.kept.insert(member.to_owned(), now);
        Ok(())
    }

    /// A lease with the member's key. Another replica may be faster: then its lease counts.
    fn register(&mut self, member: &str) -> Result<(), StoreError> {
        let seconds = self.shared.settings.lease.as_millis().div_ceil(1000).max(2) as u64;
        let lease = self.api.grant(seconds)?;
        let lease = match self.api.put_if(&self.shared.member_key(member), 0, "", lease)? {
            EtcdWritten::Done => lease,
            EtcdWritten::Other(pair) => {
                self.api.revoke(lease)?;
                let Some(pair) = pair else { return Ok(()) };
                self.api.keep_alive(pair.lease)?;
                pair.lease
            }
        };
        self.shared.state().leases.insert(member.to_owned(), lease);
        Ok(())
    }

    fn prove(&self) -> Result<Time, StoreError> {
        let sent = clock::now();
        self.api.probe(&self.shared.map_key())?;
        let mut state = self.shared.state();
        state.proven = sent;
        if state.watching {
            state.problem.clear();
        }
        Ok(sent)
    }

    /// Goes on to the next server. What was not done is done there, unless there is something newer.
    fn fail(&mut self, work: EtcdWork, error: StoreError) {
        let endpoints = &self.shared.settings.endpoints;
        self.endpoint = (self.endpoint + 1) % endpoints.len();
        self.api = EtcdApi::new(&self.shared.settings, self.endpoint);
        let mut state = self.shared.state();
        state.problem = error.0;
        let EtcdState { keep, forget, .. } = &mut *state;
        // What was said of a member since counts.
        let (late_keep, late_forget): (Vec<_>, Vec<_>) = (
            work.keep.into_iter().filter(|member| !forget.contains(member)).collect(),
            work.forget.into_iter().filter(|member| !keep.contains(member)).collect(),
        );
        keep.extend(late_keep);
        forget.extend(late_forget);
        if state.proposal.is_none() {
            state.proposal = work.proposal;
        }
    }
}
