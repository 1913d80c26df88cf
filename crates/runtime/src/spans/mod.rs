//! Spans on their way out of a member: what one is, and the bounded queue between its thread and the exporter's. Not
//! which commands have any.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use protocol::time::Time;

#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod otlp;

#[cfg(feature = "otel")]
pub use export::start;

/// Commands whose spans wait for the exporter, which takes them once a second; a KiB or so each.
const WAITING_MAX: usize = 8192;

/// What one command did, and in `children` what it had others do. Times are of the clock of leases.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub name: String,
    /// Somebody else was asked, as opposed to this process.
    pub client: bool,
    pub start: Time,
    pub end: Time,
    pub attributes: Vec<(&'static str, Attribute)>,
    /// What went wrong, in a word.
    pub error: Option<String>,
    pub children: Vec<Span>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Text(String),
    Number(i64),
    Truth(bool),
}

impl Span {
    /// With those below it.
    fn count(&self) -> u64 {
        1 + self.children.iter().map(Span::count).sum::<u64>()
    }
}

/// The spans of one member; clones share them.
#[derive(Clone, Debug, Default)]
pub struct SpanQueue(Arc<SpansShared>);

#[derive(Debug, Default)]
struct SpansShared {
    waiting: Mutex<Vec<Span>>,
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl SpanQueue {
    /// Never waits: while the exporter is at the queue, `spans` stay where they are for the next time. What does not fit is
    /// dropped and counted.
    pub fn offer(&self, spans: &mut Vec<Span>) {
        let mut waiting = match self.0.waiting.try_lock() {
            Ok(waiting) => waiting,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let room = WAITING_MAX - waiting.len();
        let fitting = room.min(spans.len());
        waiting.extend(spans.drain(..fitting));
        drop(waiting);
        self.drop_all(spans);
    }

    /// Spans that a collector has taken.
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    fn drop_all(&self, spans: &mut Vec<Span>) {
        self.0.dropped.fetch_add(count(spans), Ordering::Relaxed);
        spans.clear();
    }

    #[cfg(feature = "otel")]
    fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.0.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    #[cfg(feature = "otel")]
    fn note_exported(&self, spans: u64) {
        self.0.exported.fetch_add(spans, Ordering::Relaxed);
    }
}

fn count(spans: &[Span]) -> u64 {
    spans.iter().map(Span::count).sum()
}

#[cfg(test)]
mod tests {
    use super::{Span, SpanQueue, WAITING_MAX};
    use protocol::time::Time;

    fn span(children: usize) -> Span {
        let (name, attributes, error) = (String::new(), Vec::new(), None);
        let children = (0..children).map(|_| span(0)).collect();
        Span { name, client: false, start: Time(1), end: Time(2), attributes, error, children }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_with_its_children() {
        let queue = SpanQueue::default();
        queue.offer(&mut vec![span(0); WAITING_MAX - 1]);
        assert_eq!(queue.dropped(), 0);
        let mut more = vec![span(2); 3];
        queue.offer(&mut more);
        assert!(more.is_empty());
        assert_eq!(queue.dropped(), 6, "one had room");
    }

    #[test]
    fn nobody_waits_for_the_exporter() {
        let queue = SpanQueue::default();
        let exporting = queue.0.waiting.lock().unwrap();
        let mut spans = vec![span(1)];
        queue.offer(&mut spans);
        assert_eq!(spans.len(), 1, "it is there for the next time");
        drop(exporting);
        queue.offer(&mut spans);
        assert!(spans.is_empty() && queue.dropped() == 0);
    }
}
