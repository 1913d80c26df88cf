//! How a Redis server is reached, and in whose name. Not what is asked of it.

use std::time::Duration;

use super::acl::FenceName;
use crate::coherence::lease::{EarlierIncarnations, LeaseLimits, Unrecorded};
use crate::storage::MarkedPart;
use crate::storage::login::Login;
use crate::storage::network::Endpoint;

/// What a shim leaves at its storage for its successors: how long they wait for its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    pub wait: Duration,
    /// What bounds the leases of those that have left no record, or none that can be read.
    pub limits: LeaseLimits,
    /// There was none before: where nothing is on record, nothing was granted.
    pub is_first: bool,
}

impl LeaseRecord {
    /// Why a process waits at its start, for people; `None` if it is for its own leases alone.
    pub fn why_to_wait(&self, earlier: EarlierIncarnations) -> Option<String> {
        let wait = self.limits.wait(earlier, None);
        let ms = wait.as_millis();
        Some(match earlier.unrecorded {
            Unrecorded::Unknown => format!(
                "no shim has left a record of its leases here: reads and writes wait {ms} ms, as long as any lease may run; \
                 before a first start, --adopt says that there were none"
            ),
            Unrecorded::Within(_) => format!(
                "the server has been restarted since shims served it: reads and writes wait {ms} ms for leases that they have granted"
            ),
            Unrecorded::Nobody if wait > self.wait => {
                let held = if earlier.same_data { "writes" } else { "reads and writes" };
                format!("{held} wait {ms} ms for leases that earlier shims have granted")
            }
            Unrecorded::Nobody => return None,
        })
    }
}

/// What becomes of a server that does not let an earlier incarnation, or a lost connection, be fenced off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceDemand {
    /// It is not served.
    Always,
    /// It is served where all changes are followed, whoever makes them: what cannot be fenced is one more who writes.
    WherePossible,
}

/// Settings of the connections to one server.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    pub endpoint: Endpoint,
    /// The address as people know it.
    pub address: String,
    /// Whether it is reached with TLS, for what is said of a server that does not answer.
    pub tls: bool,
    /// `None` is the `default` user.
    pub user: Option<String>,
    pub password: Option<String>,
    /// For the names of the ACL users of its incarnations.
    pub fence: FenceName,
    pub fence_demand: FenceDemand,
    /// What the server has to hold; none where keys move between servers.
    pub mark: Option<MarkedPart>,
    /// The first incarnation of this process takes the server over whatever it holds and whoever serves it.
    pub adopts: bool,
    pub lease_record: LeaseRecord,
    /// This process' place among those that may be the shim; none if there is no other.
    pub standby: Option<u8>,
    /// The server is one of a Redis Cluster.
    pub cluster_mode: bool,
    /// A server that answers nothing for this long is taken for lost.
    pub timeout: Duration,
    /// Connections for blocking commands.
    pub pinned_max: usize,
    pub seed: u64,
}

impl RedisSettings {
    /// For a server that comes after another one: what a person has said at the start was of that.
    pub(in crate::storage) fn after_another(self) -> RedisSettings {
        let lease_record = LeaseRecord { is_first: false, ..self.lease_record };
        RedisSettings { lease_record, adopts: false, ..self }
    }

    pub(in crate::storage) fn login(&self) -> Option<Login> {
        Login::new(self.user.clone(), self.password.clone())
    }
}
