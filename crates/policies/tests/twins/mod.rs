//! Naive twins of all policies: obvious lists that are searched from end to end. Slow, and never used by the product.

mod adaptive;
mod fifo_like;
mod ranked;
mod recency;
mod segmented;
mod tiny;

use policies::{Insertion, Request, Spec};

pub(crate) trait Twin {
    /// Serves one request, and says whether it was a hit.
    fn request(&mut self, request: &Request) -> bool;
}

/// None for the policies that have no more obvious form than their own: infinite and random.
pub(crate) fn twin(spec: Spec, capacity: u64) -> Option<Box<dyn Twin>> {
    let slru = |segments, insertion| -> Box<dyn Twin> {
        Box::new(segmented::Slru::new(capacity, segments, insertion))
    };
    Some(match spec {
        Spec::Fifo => ranked::fifo(capacity),
        Spec::Lru => ranked::lru(capacity),
        Spec::Lfu => ranked::lfu(capacity),
        Spec::Gdsf { frequency_max } => ranked::gdsf(capacity, frequency_max),
        Spec::Clairvoyant => ranked::clairvoyant(capacity),
        Spec::S4Lru => slru(4, Insertion::Lowest),
        Spec::S4LruFill => slru(4, Insertion::LowestWithRoom),
        Spec::Slru { segments } => slru(segments, Insertion::Lowest),
        Spec::SlruBorrow { segments } => slru(segments, Insertion::LowestBorrowing),
        Spec::Sieve => Box::new(fifo_like::Sieve::new(capacity)),
        Spec::Clock => Box::new(fifo_like::Clock::new(capacity)),
        Spec::S3Fifo => Box::new(fifo_like::S3Fifo::new(capacity)),
        Spec::TwoQ => Box::new(recency::TwoQ::new(capacity)),
        Spec::Lirs => Box::new(recency::Lirs::new(capacity)),
        Spec::Arc => Box::new(adaptive::Arc::new(capacity)),
        Spec::WTinyLfu => Box::new(tiny::WTinyLfu::new(capacity)),
        Spec::Infinite | Spec::Random => return None,
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
