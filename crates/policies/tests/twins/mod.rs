//! Naive twins of all policies: obvious lists that are searched from end to end. Slow, and never used by the product.

mod adaptive;
mod fifo_like;
mod ranked;
mod recency;
mod segmented;
mod tiny;

use policies::{Insertion, ObjectRequest, PolicySpec};

pub(crate) trait Twin {
    /// Serves one request, and says whether it was a hit.
    fn request(&mut self, request: &ObjectRequest) -> bool;
}

/// A policy's twin; `None` for those that have no more obvious form than their own: infinite and random.
pub(crate) fn twin(spec: PolicySpec, capacity: u64) -> Option<Box<dyn Twin>> {
    let slru = |segments, insertion| -> Box<dyn Twin> {
        Box::new(segmented::Slru::new(capacity, segments, insertion))
    };
    Some(match spec {
        PolicySpec::Fifo => ranked::fifo(capacity),
        PolicySpec::Lru => ranked::lru(capacity),
        PolicySpec::Lfu => ranked::lfu(capacity),
        PolicySpec::Gdsf { frequency_max } => ranked::gdsf(capacity, frequency_max),
        PolicySpec::Clairvoyant => ranked::clairvoyant(capacity),
        PolicySpec::S4Lru => slru(4, Insertion::Lowest),
        PolicySpec::S4LruFill => slru(4, Insertion::LowestWithRoom),
        PolicySpec::Slru { segments } => slru(segments, Insertion::Lowest),
        PolicySpec::SlruBorrow { segments } => slru(segments, Insertion::LowestBorrowing),
        PolicySpec::Sieve => Box::new(fifo_like::Sieve::new(capacity)),
        PolicySpec::Clock => Box::new(fifo_like::Clock::new(capacity)),
        PolicySpec::S3Fifo => Box::new(fifo_like::S3Fifo::new(capacity)),
        PolicySpec::TwoQ => Box::new(recency::TwoQ::new(capacity)),
        PolicySpec::Lirs => Box::new(recency::Lirs::new(capacity)),
        PolicySpec::Arc => Box::new(adaptive::Arc::new(capacity)),
        PolicySpec::WTinyLfu => Box::new(tiny::WTinyLfu::new(capacity)),
        PolicySpec::Infinite | PolicySpec::Random => return None,
    })
}

/// Objects and their sizes, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct List(pub(crate) Vec<(u32, u64)>);

impl List {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(crate) fn has(&self, object: u32) -> bool {
        self.0.iter().any(|(other, _)| *other == object)
    }

    pub(crate) fn push(&mut self, object: (u32, u64)) {
        self.0.push(object);
    }

    pub(crate) fn pop(&mut self) -> (u32, u64) {
        self.0.remove(0)
    }

    /// Takes the object out, wherever it stands.
    pub(crate) fn take(&mut self, object: u32) -> Option<(u32, u64)> {
        let at = self.0.iter().position(|(other, _)| *other == object)?;
        Some(self.0.remove(at))
    }

    /// Moves the object to the newest end, if it is here.
    pub(crate) fn touch(&mut self, object: u32) -> bool {
        let found = self.take(object);
        self.0.extend(found);
        found.is_some()
    }
}
