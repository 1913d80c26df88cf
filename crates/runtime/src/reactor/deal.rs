//! Connections of one listening socket, dealt out to the reactors of several threads: each goes to the one that has the
//! fewest. Not what comes over them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::reactor::socket::Stream;
use crate::reactor::{Io, ListenerId, Waker};

/// The reactors that share listeners, in the order of their threads; clones are the same. The first one accepts.
#[derive(Clone, Debug)]
pub struct Dealer(Arc<[DealtTable]>);

/// What one reactor has been dealt.
#[derive(Debug)]
struct DealtTable {
    /// Connections that it has, or that wait for it.
    count: AtomicUsize,
    waiting: Mutex<Vec<(ListenerId, Stream)>>,
    waker: Waker,
}

/// One reactor's place among those that share listeners.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    dealer: Dealer,
    own: usize,
}

impl Dealer {
    /// Has these share the listeners that they have by now, which have to be the same ones in the same order: the first
    /// listens, the others share.
    pub fn join<'a>(reactors: impl Iterator<Item = &'a mut Io>) -> Dealer {
        let reactors: Vec<&mut Io> = reactors.collect();
        let table = |io: &&mut Io| DealtTable {
            count: AtomicUsize::new(0),
            waiting: Mutex::default(),
            waker: io.waker(),
        };
        let dealer = Dealer(reactors.iter().map(table).collect());
        for (own, io) in reactors.into_iter().enumerate() {
            io.seat = Some(Seat { dealer: dealer.clone(), own });
        }
        dealer
    }

    /// Connections that each reactor has.
    pub fn counts(&self) -> Vec<usize> {
        self.0.iter().map(|table| table.count.load(Ordering::Relaxed)).collect()
    }
}

impl Seat {
    /// Gives the next connection to the reactor that has the fewest; back comes what is this one's own.
    pub(crate) fn deal(&self, listener: ListenerId, stream: Stream) -> Option<Stream> {
        let tables = &self.dealer.0;
        let count = |at: &usize| tables[*at].count.load(Ordering::Relaxed);
        // Of equals the one that comes last: this one has the work of accepting besides.
        let Some(to) = (0..tables.len()).rev().min_by_key(count) else { return Some(stream) };
        tables[to].count.fetch_add(1, Ordering::Relaxed);
        if to == self.own {
            return Some(stream);
        }
        tables[to].waiting().push((listener, stream));
        tables[to].waker.wake();
        None
    }

    /// What has been dealt to this one since it asked last.
    pub(crate) fn take(&self) -> Vec<(ListenerId, Stream)> {
        std::mem::take(&mut *self.dealer.0[self.own].waiting())
    }

    /// A connection of this one is gone.
    pub(crate) fn left(&self) {
        self.dealer.0[self.own].count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DealtTable {
    fn waiting(&self) -> MutexGuard<'_, Vec<(ListenerId, Stream)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
