//! A trace as requests to a server: which key each is for and whether it writes, over and over. Not when, and not how
//! large: values have the size of `--value-bytes`.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Result, ensure};
use trace::{AccessOperation, WorkloadRequest};

use super::requests::LoadedKeys;

/// In memory, 16 bytes for each request, so that reading the file never holds up the load.
pub(crate) struct Replay {
    requests: Vec<WorkloadRequest>,
    next: usize,
}

impl Replay {
    /// Deletes are left out.
    pub(super) fn read(path: &Path) -> Result<Replay> {
        let mut requests = Vec::new();
        for access in trace::open(path, None)? {
            let access = access?;
            if access.operation != AccessOperation::Delete {
                requests.push(WorkloadRequest {
                    key: access.object,
                    write: access.operation == AccessOperation::Write,
                });
            }
        }
        ensure!(!requests.is_empty(), "{}: this trace has no reads and no writes", path.display());
        Ok(Replay { requests, next: 0 })
    }

    /// Each key once, in the order in which they are asked for first.
    pub(super) fn keys(&self) -> LoadedKeys {
        let mut seen = HashSet::new();
        let keys = self.requests.iter().map(|request| request.key).filter(|key| seen.insert(*key));
        let keys: Vec<u64> = keys.collect();
        LoadedKeys { count: keys.len() as u64, each: Box::new(keys.into_iter()) }
    }

    /// After the last request comes the first again.
    pub(super) fn next_request(&mut self) -> WorkloadRequest {
        let request = self.requests[self.next];
        self.next = (self.next + 1) % self.requests.len();
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_replayed_over_and_over_without_its_deletes() {
        let path = std::env::temp_dir().join(format!("distcache-replay-{}.csv", std::process::id()));
        std::fs::write(&path, "id,op\n7,get\n1000000000000000,set\n7,delete\n7,set\n").unwrap();
        let mut replay = Replay::read(&path).unwrap();
        let keys = replay.keys();
        assert_eq!((keys.count, keys.each.collect::<Vec<_>>()), (2, vec![7, 1_000_000_000_000_000]));
        let sent: Vec<(u64, bool)> =
            (0..5).map(|_| replay.next_request()).map(|request| (request.key, request.write)).collect();
        let once = [(7, false), (1_000_000_000_000_000, true), (7, true)];
        assert_eq!(sent, [&once[..], &once[..2]].concat());
        std::fs::write(&path, "id,op\n7,delete\n").unwrap();
        let none = Replay::read(&path).err().map(|error| error.to_string()).unwrap_or_default();
        std::fs::remove_file(path).unwrap();
        assert!(none.contains("this trace has no reads and no writes"), "{none}");
    }
}
