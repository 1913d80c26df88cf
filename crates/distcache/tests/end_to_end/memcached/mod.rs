//! memcached at the front door: what real servers and real clients say to it. Not Redis' protocol.

mod clients;
mod differential;
mod front;
mod ketama;
mod marks;
mod requests;
mod storage;

use crate::cluster::{Cluster, Layout};

/// A cluster whose caches are so small that all is admitted and evicted all the time.
fn cluster(storage: Vec<String>) -> Cluster {
    Cluster::up(Layout {
        protocol: "memcached",
        objects_max: 4,
        spines: 2,
        tables: "[heat]\nthreshold = 1\nhold_off_ms = 10".to_owned(),
        ..Layout::new(storage)
    })
}
