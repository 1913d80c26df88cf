//! The threads of one router in this process: how they tell each other something, and what they count together. Not what they
//! tell.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use protocol::router::{SiblingMessage, ThreadPlace};
use runtime::reactor::Waker;

/// One thread's access to the others, and to what all have together.
#[derive(Clone, Debug)]
pub(crate) struct Siblings {
    router: Arc<RouterThreads>,
    own: u16,
}

#[derive(Debug)]
struct RouterThreads {
    threads: Vec<SiblingThread>,
    latencies: Mutex<Histogram<u64>>,
    clients: AtomicUsize,
}

#[derive(Debug)]
struct SiblingThread {
    /// What it has been told, each with the thread that did.
    inbox: Mutex<Vec<(u16, Box<SiblingMessage>)>>,
    waker: Waker,
    /// What its clients' connections hold.
    held_bytes: AtomicU64,
}

impl Siblings {
    /// One for each thread, by what wakes it.
    pub(crate) fn new(wakers: impl Iterator<Item = Waker>) -> Vec<Siblings> {
        let thread = |waker| SiblingThread { inbox: Mutex::default(), waker, held_bytes: AtomicU64::new(0) };
        let threads: Vec<SiblingThread> = wakers.map(thread).collect();
        let count = threads.len() as u16;
        let latencies = Mutex::new(crate::status::histogram());
        let router = Arc::new(RouterThreads { threads, latencies, clients: AtomicUsize::new(0) });
        (0..count).map(|own| Siblings { router: Arc::clone(&router), own }).collect()
    }

    /// The only thread of its router.
    pub(crate) fn alone(waker: Waker) -> Siblings {
        Siblings::new(std::iter::once(waker)).remove(0)
    }

    fn threads(&self) -> &[SiblingThread] {
        &self.router.threads
    }

    pub(crate) fn place(&self) -> ThreadPlace {
        ThreadPlace { own: self.own, count: self.threads().len() as u16 }
    }

    pub(crate) fn tell(&self, thread: u16, message: Box<SiblingMessage>) {
        let thread = &self.threads()[usize::from(thread)];
        locked(&thread.inbox).push((self.own, message));
        thread.waker.wake();
    }

    /// The others hear that this thread answers nothing more.
    pub(crate) fn tell_end(&self) {
        let others = (0..self.threads().len() as u16).filter(|thread| *thread != self.own);
        others.for_each(|thread| self.tell(thread, Box::new(SiblingMessage::Ended)));
    }

    /// What this thread has been told since it asked last.
    pub(crate) fn heard(&self) -> Vec<(u16, Box<SiblingMessage>)> {
        std::mem::take(&mut *locked(&self.threads()[usize::from(self.own)].inbox))
    }

    /// Says what this thread's clients hold.
    pub(crate) fn hold(&self, bytes: u64) {
        self.threads()[usize::from(self.own)].held_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What the clients of all threads hold.
    pub(crate) fn held(&self) -> u64 {
        self.threads().iter().map(|thread| thread.held_bytes.load(Ordering::Relaxed)).sum()
    }

    /// The same of the other threads.
    pub(crate) fn held_elsewhere(&self) -> u64 {
        let own = self.threads()[usize::from(self.own)].held_bytes.load(Ordering::Relaxed);
        self.held().saturating_sub(own)
    }

    /// A client has come to this thread.
    pub(crate) fn add_client(&self) {
        self.router.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// One of its clients is gone.
    pub(crate) fn remove_client(&self) {
        self.router.clients.fetch_sub(1, Ordering::Relaxed);
    }

    /// Clients of all threads.
    pub(crate) fn clients(&self) -> usize {
        self.router.clients.load(Ordering::Relaxed)
    }

    /// Times from a command's arrival to its reply, of all threads.
    pub(crate) fn latencies(&self) -> MutexGuard<'_, Histogram<u64>> {
        locked(&self.router.latencies)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
