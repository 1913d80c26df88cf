//! What a router is told at its start. Not where that comes from.

use std::sync::Arc;
use std::time::Duration;

use commands::acl::Users;
use commands::memcached::Dialect;

use crate::coherence::lease::LeaseTerms;
use crate::router::settings::RouterSettings;
use crate::router::siblings::ThreadPlace;

/// Which reads go to nodes (design, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Routing {
    /// Keys that a reply said are cached; the others go straight to the shim.
    #[default]
    Learned,
    /// All of them, as where the network itself is the node.
    OnPath,
}

/// What a router is told at its start.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    pub routing: Routing,
    /// Seed of the choices among equals; two routers with one seed choose alike.
    pub seed: u64,
    /// Which thread of its router it is; what follows is for all of them together.
    pub place: ThreadPlace,
    /// Requests of all clients that may be in flight; above it commands are answered `-BUSY`.
    pub pending_max: usize,
    /// Keys that clients track (CLIENT TRACKING); the oldest are forgotten, and their clients told so.
    pub tracked_max: usize,
    /// Others write to storage, too: a copy may be older than what has been reported.
    pub bounded: bool,
    /// The shims' names in errors, by `ShimId`.
    pub shim_names: Vec<String>,
    /// For which shims others stand by, by `ShimId`: those that are lost are waited for.
    pub has_standby: Vec<bool>,
    /// What storage understands.
    pub dialect: Dialect,
    /// Its clients are connections that take a large reply in parts.
    pub streams: bool,
    /// Longest value of a memcached client, as `stats settings` tells it.
    pub value_bytes_max: usize,
    pub users: UserSource,
    /// Terms of its near copies' leases, until a shim says others.
    pub lease: LeaseTerms,
    pub settings: RouterSettings,
}

/// Where a router's users come from.
#[derive(Clone, Debug)]
pub enum UserSource {
    Given(Arc<Users>),
    /// Users of the storage servers. Nothing is carried out before those have told them.
    Storage,
}

impl Default for RouterConfig {
    fn default() -> RouterConfig {
        RouterConfig {
            routing: Routing::Learned,
            seed: 0,
            place: ThreadPlace::default(),
            pending_max: 1 << 18,
            tracked_max: crate::shim::TRACKED_MAX,
            bounded: false,
            shim_names: Vec::new(),
            has_standby: Vec::new(),
            dialect: Dialect::Redis,
            streams: false,
            value_bytes_max: 1 << 20,
            users: UserSource::Given(Arc::default()),
            lease: LeaseTerms::default(),
            settings: RouterSettings::default(),
        }
    }
}

/// What all clients may hold, and how long each may do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Memory of what all clients have sent and not been answered, and of replies that they have not taken; bytes.
    pub held_bytes_max: u64,
    /// How long a client may ask for nothing.
    pub idle_max: Option<Duration>,
    /// How long a client may be there without showing who it is, where it has to.
    pub unauthenticated_max: Option<Duration>,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits { held_bytes_max: u64::MAX, idle_max: None, unauthenticated_max: None }
    }
}
