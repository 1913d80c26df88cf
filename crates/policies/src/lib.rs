//! Eviction policies as a trace drives them: one file each, behind one small trait. No clocks, no files, no values.
//!
//! Objects have dense numbers (see [`Objects`]), so that a policy keeps what it knows of an object in arrays and hashes
//! nothing. What all policies do alike, as the field's reference simulators: an object keeps the size that it had when it
//! came for as long as it stays, and an object larger than the cache is not inserted.

mod arc;
mod clairvoyant;
mod clock;
mod fifo;
mod gdsf;
mod infinite;
mod lfu;
mod lirs;
mod lru;
mod objects;
mod queue;
mod random;
mod ranking;
mod room;
mod s3fifo;
mod sieve;
mod sizes;
mod sketch;
mod slru;
mod spec;
mod two_q;
mod w_tinylfu;

pub use arc::Arc;
pub use clairvoyant::Clairvoyant;
pub use clock::Clock;
pub use fifo::Fifo;
pub use gdsf::Gdsf;
pub use infinite::Infinite;
pub use lfu::Lfu;
pub use lirs::Lirs;
pub use lru::Lru;
pub use objects::{Objects, TooManyObjects};
pub use queue::OBJECTS_MAX;
pub use random::Random;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;
pub use sketch::FrequencySketch;
pub use slru::{Insertion, SEGMENTS_MAX, Slru};
pub use spec::{PolicySpec, SpecError};
pub use two_q::TwoQ;
pub use w_tinylfu::WTinyLfu;

/// Next access of an object that is never requested again.
pub const NEVER: u64 = u64::MAX;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRequest {
    /// From 0 on, without gaps.
    pub object: u32,
    /// 1 where sizes are ignored.
    pub bytes: u32,
    /// The number of the request that asks for this object next, counted from 1; [`NEVER`] if none does. Only the
    /// clairvoyant looks at it.
    pub next: u64,
}

impl ObjectRequest {
    /// A request for an object of size 1, without a future.
    pub fn of(object: u32) -> ObjectRequest {
        ObjectRequest { object, bytes: 1, next: NEVER }
    }
}

pub trait Policy {
    /// Objects below this number may be requested from now on; the number never falls.
    fn reserve(&mut self, objects: usize);

    /// Serves one request, and says whether it was a hit.
    fn request(&mut self, request: &ObjectRequest) -> bool;

    /// Bytes that all of its arrays take now.
    fn memory(&self) -> usize;
}

/// What a run of requests missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    pub requests: u64,
    pub bytes: u64,
}

impl std::ops::AddAssign for Misses {
    fn add_assign(&mut self, other: Misses) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// A policy of any kind, called once for many requests.
pub trait Simulation: Send {
    fn reserve(&mut self, objects: usize);
    fn run(&mut self, requests: &[ObjectRequest]) -> Misses;
    fn memory(&self) -> usize;
}

impl<P: Policy + Send> Simulation for P {
    fn reserve(&mut self, objects: usize) {
        Policy::reserve(self, objects);
    }

    fn run(&mut self, requests: &[ObjectRequest]) -> Misses {
        let mut misses = Misses::default();
        for request in requests {
            let missed = u64::from(!self.request(request));
            misses.requests += missed;
            misses.bytes += missed * u64::from(request.bytes);
        }
        misses
    }

    fn memory(&self) -> usize {
        Policy::memory(self)
    }
}
