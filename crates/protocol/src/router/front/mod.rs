//! A client's session, as a Redis or memcached server has it. Not where its commands go.
//!
//! Each client has a `Session`; what concerns several stands beside them. A command that the front does not answer itself
//! goes to the flow with `Flow::begin`. What the flow tells comes in by `events`.

pub(crate) mod acl_command;
pub(crate) mod acl_log;
pub(crate) mod arrivals;
pub(crate) mod client_command;
pub(crate) mod client_filter;
pub(crate) mod client_line;
pub(crate) mod client_tracking;
pub(crate) mod closing;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod desk;
pub(crate) mod events;
pub(crate) mod hot_keys;
pub(crate) mod identity;
pub(crate) mod info;
pub(crate) mod long_scripts;
pub(crate) mod memcached;
pub(crate) mod own_command;
pub(crate) mod permissions;
pub(crate) mod pubsub;
pub(crate) mod queued;
pub(crate) mod rate;
pub(crate) mod reply;
pub(crate) mod session;
pub(crate) mod slow_log;
pub(crate) mod spans;
pub(crate) mod storage_users;
pub(crate) mod subscriptions;
pub(crate) mod tracking;
pub(crate) mod tracking_command;
pub(crate) mod transaction;
pub(crate) mod users;
pub(crate) mod whole;

use std::collections::BTreeSet;

use commands::memcached::Tallies;

use crate::router::config::RouterConfig;
use crate::router::statistics::Latencies;
use crate::time::Time;
use hot_keys::ClusterHotKey;
use long_scripts::LongScripts;
use permissions::Permissions;
use rate::Rate;
use session::Sessions;
use slow_log::SlowLog;
use spans::Sampler;
use storage_users::StorageUsers;
use subscriptions::Subscriptions;
use whole::Gatherings;

/// The clients that track, and how many keys they may keep together.
#[derive(Debug, Default)]
pub(crate) struct Trackers {
    clients: BTreeSet<u32>,
    /// What CONFIG SET tracking-table-max-keys said.
    keys_max: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) sessions: Sessions,
    pub(crate) permissions: Permissions,
    pub(crate) storage_users: StorageUsers,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) tracking: Trackers,
    pub(crate) tallies: Tallies,
    /// When the first client came.
    pub(crate) began: Option<Time>,
    /// Times from a command's arrival to its reply.
    pub(crate) latencies: Latencies,
    pub(crate) rate: Rate,
    /// Keys that are hot in the cluster; `None` before a controller has told any.
    pub(crate) hot: Option<Vec<ClusterHotKey>>,
    pub(crate) slow_log: SlowLog,
    pub(crate) sampler: Sampler,
    /// Clients that are closed at the end of this step.
    pub(crate) killed: Vec<u32>,
    pub(crate) scripts: LongScripts,
    /// What other threads are asked.
    pub(crate) gatherings: Gatherings,
}

impl Front {
    pub(crate) fn new(config: &RouterConfig) -> Front {
        Front {
            sessions: Sessions::new(config.place),
            permissions: Permissions::new(&config.users),
            storage_users: StorageUsers::default(),
            subscriptions: Subscriptions::default(),
            tracking: Trackers::default(),
            tallies: Tallies::default(),
            began: None,
            latencies: Latencies::default(),
            rate: Rate::default(),
            hot: None,
            slow_log: SlowLog::new(config.settings.slow_log, config.place),
            sampler: Sampler::new(config.seed, config.settings.spans_one_in),
            killed: Vec::new(),
            scripts: LongScripts::default(),
            gatherings: Gatherings::default(),
        }
    }
}
