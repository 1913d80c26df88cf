//! A running member of the cluster and the handles that its process keeps on it. Not what the member does.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use protocol::placement::Placement;
use wire::ClusterMap;

use crate::orders::Orders;
use crate::spans::SpanQueue;
use crate::status::StatusCell;
use config::{Address, Config};

/// A member that runs on threads of its own. Its listeners accept from the moment this value exists.
#[derive(Debug)]
pub struct Instance {
    pub id: String,
    /// Where clients or peers reach it, port 0 resolved.
    pub addresses: Vec<Address>,
    pub status: StatusCell,
    pub maps: MapCell,
    pub orders: Orders,
    /// Empty for ever of members that have none.
    pub spans: SpanQueue,
    pub threads: Vec<JoinHandle<()>>,
}

impl Instance {
    /// Waits for the member to end, after its stop flag was set. Whether it ended in good order.
    pub fn join(self) -> bool {
        // All of them, whatever the first says.
        self.threads.into_iter().map(JoinHandle::join).filter(Result::is_err).count() == 0
    }

    /// Whether a thread of it has ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
}

/// Why a member could not be started; one line that names the field or address and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("no {role} has the id {id:?} in this configuration")]
    UnknownId { role: &'static str, id: String },
    #[error("{id}: cannot listen on {address}: {}", listen_advice(.error, "listen"))]
    Listen { id: String, address: Address, error: io::Error },
    #[error("{id}: {what}: {error}")]
    System { id: String, what: &'static str, error: io::Error },
    #[error("{id}: {reason}")]
    Refused { id: String, reason: String },
}

impl StartError {
    pub fn unknown(role: &'static str, id: &str) -> StartError {
        StartError::UnknownId { role, id: id.to_owned() }
    }

    pub fn listen(id: &str, address: Address) -> impl FnOnce(io::Error) -> StartError {
        let id = id.to_owned();
        move |error| StartError::Listen { id, address, error }
    }

    pub fn system(id: &str, what: &'static str) -> impl FnOnce(io::Error) -> StartError {
        let id = id.to_owned();
        move |error| StartError::System { id, what, error }
    }

    pub fn refused(id: &str, reason: impl ToString) -> StartError {
        StartError::Refused { id: id.to_owned(), reason: reason.to_string() }
    }
}

/// What to do where the address that the file has as `key` cannot be listened on.
pub fn listen_advice(error: &io::Error, key: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("the address is in use; stop what listens there or change `{key}`")
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; use a port above 1023 or a directory you may write to".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; where the file has [[host]]s, start those of this one with --host NAME"
                .to_owned()
        }
        io::ErrorKind::NotFound => "the directory of the socket does not exist".to_owned(),
        _ => error.to_string(),
    }
}

/// The newest cluster map that the controller has published, handed to a member of this process.
#[derive(Clone, Default)]
pub struct MapCell(Arc<Mutex<Newest>>);

#[derive(Default)]
struct Newest {
    map: Option<Arc<ClusterMap>>,
    /// Where the map's nodes listen, in the order of their numbers.
    addresses: Arc<[Address]>,
    wakes: Vec<Box<dyn Fn() + Send>>,
}

/// What a newer map says.
#[derive(Clone, Debug)]
pub struct NewPlacement {
    pub placement: Arc<Placement>,
    /// Where the map's nodes listen, in the order of their numbers.
    pub addresses: Arc<[Address]>,
}

impl MapCell {
    /// Calls `wake` whenever there is a newer map. It must not block.
    pub fn register(&self, wake: impl Fn() + Send + 'static) {
        self.newest().wakes.push(Box::new(wake));
    }

    /// Keeps `map` if it is newer than what is there, and wakes the member.
    pub fn publish(&self, map: &Arc<ClusterMap>, addresses: &Arc<[Address]>) {
        let mut newest = self.newest();
        if newest.map.as_ref().is_some_and(|old| old.epoch >= map.epoch) {
            return;
        }
        newest.map = Some(Arc::clone(map));
        newest.addresses = Arc::clone(addresses);
        newest.wakes.iter().for_each(|wake| wake());
    }

    /// The newest map and where its nodes listen, if its epoch is above the one that the member acts on.
    pub(crate) fn newer_than(&self, epoch: u32) -> Option<(Arc<ClusterMap>, Arc<[Address]>)> {
        let newest = self.newest();
        let map = newest.map.as_ref().filter(|map| map.epoch > epoch)?;
        Some((Arc::clone(map), Arc::clone(&newest.addresses)))
    }

    /// The newest map as the members of `config` act on it, if its epoch is above the one that they act on. One that cannot be
    /// used is told of in the log.
    pub fn placement_newer_than(&self, config: &Config, epoch: u32) -> Option<NewPlacement> {
        let (map, addresses) = self.newer_than(epoch)?;
        match config.placement((*map).clone()) {
            Ok(placement) => Some(NewPlacement { placement: Arc::new(placement), addresses }),
            Err(error) => {
                tracing::error!(%error, epoch = map.epoch, "a cluster map that cannot be used is ignored");
                None
            }
        }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MapCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MapCell").field(&self.newest().map.as_ref().map(|map| map.epoch)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::MapCell;
    use config::{Config, Secret};
    use std::sync::Arc;
    use std::sync::mpsc;
    use wire::{ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding};
    use wire::{ShimId, ShimMember};

    #[test]
    fn a_map_that_cannot_be_used_is_no_newer_one() {
        let config = Config::new("shop", Secret([1; 16]));
        let cell = MapCell::default();
        cell.publish(&map(2), &Arc::default());
        assert!(cell.newer_than(1).is_some() && cell.placement_newer_than(&config, 1).is_none());
        let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
        let usable = ClusterMap {
            layers: vec![LayerMap { name: "l".to_owned(), partition: Partition::Hash, nodes: vec![node] }],
            shims: vec![ShimMember::new(ShimId(0), RackId(0))],
            ..(*map(3)).clone()
        };
        cell.publish(&Arc::new(usable), &Arc::from(["127.0.0.1:1".parse().unwrap()]));
        let newer = cell.placement_newer_than(&config, 2).expect("a map");
        assert_eq!((newer.placement.epoch(), newer.addresses.len()), (3, 1));
        assert!(cell.placement_newer_than(&config, 3).is_none());
    }

    fn map(epoch: u32) -> Arc<ClusterMap> {
        Arc::new(ClusterMap {
            epoch,
            level: 1,
            sharding: Sharding::Ring,
            layers: Vec::new(),
            shims: Vec::new(),
        })
    }

    #[test]
    fn only_newer_maps_are_kept_and_wake_the_member() {
        let cell = MapCell::default();
        let (sender, receiver) = mpsc::channel();
        cell.register(move || sender.send(()).unwrap());
        assert_eq!(cell.newer_than(0), None);
        for epoch in [2, 1, 2] {
            cell.publish(&map(epoch), &Arc::default());
        }
        assert_eq!(receiver.try_iter().count(), 1);
        assert_eq!(cell.newer_than(1).unwrap().0.epoch, 2);
        assert_eq!(cell.newer_than(2), None);
    }
}
