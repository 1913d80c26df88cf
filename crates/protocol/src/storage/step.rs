//! One step of a storage machine: when it is taken, over which connections, and what became known. Not what it decides.

use super::StorageEvent;
use super::network::Network;
use crate::time::Time;

pub(super) struct StorageStep<'a> {
    pub(super) now: Time,
    pub(super) network: &'a mut dyn Network,
    pub(super) events: &'a mut Vec<StorageEvent>,
}
