//! What the application's threads hand to the router's thread. Bounded by them: each waits for its replies.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use runtime::reactor::Waker;
use wire::resp::Command;

/// Commands of one call, and where their replies go.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) commands: Vec<Command>,
    pub(crate) replies: SyncSender<Vec<Bytes>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    state: Arc<Mutex<State>>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    submissions: Vec<Submission>,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(waker: Waker) -> Queue {
        Queue { state: Arc::default(), waker }
    }

    /// Dropped, which its caller notices, if the router's thread has ended.
    pub(crate) fn push(&self, submission: Submission) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        // One wake-up serves everything that has piled up by then.
        let first = state.submissions.is_empty();
        state.submissions.push(submission);
        drop(state);
        if first {
            self.waker.wake();
        }
    }

    /// Everything handed in; `into` is empty and its memory is used again.
    pub(crate) fn take(&self, into: &mut Vec<Submission>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.state().submissions, into);
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.submissions.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
