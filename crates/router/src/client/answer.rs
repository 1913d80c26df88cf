//! Where the replies of a call that waits are put, and who hears of it. Not the call's commands.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;

/// The replies of a call in the order of its commands; `None` if there will be none.
pub(crate) type CallReplies = Option<Vec<Bytes>>;

/// The outcome of one call, from the thread that has it to the one that wants it.
#[derive(Debug)]
pub(crate) struct CallAnswer(Mutex<CallAnswerState>);

#[derive(Debug)]
struct CallAnswerState {
    outcome: Option<CallReplies>,
    waker: Waker,
}

impl CallAnswer {
    pub(crate) fn new(waker: Waker) -> Arc<CallAnswer> {
        Arc::new(CallAnswer(Mutex::new(CallAnswerState { outcome: None, waker })))
    }

    /// Gives back who is to be woken, once no lock is held.
    pub(crate) fn put(&self, outcome: CallReplies) -> Waker {
        let mut state = self.state();
        state.outcome = Some(outcome);
        state.waker.clone()
    }

    /// What wakes whoever waits for it.
    pub(crate) fn waker(&self) -> Waker {
        self.state().waker.clone()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.state().outcome.is_some()
    }

    /// The outcome, once.
    pub(crate) fn take(&self) -> Option<CallReplies> {
        self.state().outcome.take()
    }

    /// Blocks the thread whose waker it has until the outcome is there.
    pub(crate) fn wait(&self) -> CallReplies {
        loop {
            if let Some(outcome) = self.take() {
                return outcome;
            }
            std::thread::park();
        }
    }

    /// The outcome, or whoever asks is woken when it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<CallReplies> {
        let mut state = self.state();
        if let Some(outcome) = state.outcome.take() {
            return Poll::Ready(outcome);
        }
        let before = (!state.waker.will_wake(context.waker()))
            .then(|| std::mem::replace(&mut state.waker, context.waker().clone()));
        drop(state);
        // The end of a waker may run what is not ours.
        drop(before);
        Poll::Pending
    }

    fn state(&self) -> MutexGuard<'_, CallAnswerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the `park` of a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Unpark>) {
        self.0.unpark();
    }
}

/// A waker that ends the `park` of the thread that asks.
pub(crate) fn own_waker() -> Waker {
    thread_local! {
        static OWN: RefCell<Option<Waker>> = const { RefCell::new(None) };
    }
    let new = || Waker::from(Arc::new(Unpark(std::thread::current())));
    OWN.try_with(|own| own.borrow_mut().get_or_insert_with(new).clone()).unwrap_or_else(|_| new())
}
