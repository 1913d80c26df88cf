//! Calls under way, each a client of the machine for as long as it runs. Not who turns the machine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use protocol::router::{ClientId, CloseReason};
use runtime::reactor::Io;
use wire::resp::Command;

use super::answer::{CallAnswer, CallReplies};
use crate::engine::Front;

/// The calls of all threads, by `ClientId`. A client of the machine that is free serves the next call.
#[derive(Default)]
pub(crate) struct Calls {
    calls: Vec<Option<Call>>,
    free: Vec<ClientId>,
    /// May take commands again.
    resumed: Vec<ClientId>,
    /// Whose outcomes are there: to be woken when no lock is held.
    woken: Vec<Waker>,
    /// Calls that futures wait for.
    futures: usize,
    /// Whether a thread was among them.
    woke_thread: bool,
}

struct Call {
    waiting: VecDeque<Command>,
    outstanding: usize,
    replies: Vec<Bytes>,
    waiter: Option<CallWaiter>,
}

/// Who waits for a call that was not over at once.
pub(crate) struct CallWaiter {
    pub(crate) answer: Arc<CallAnswer>,
    /// A thread that does nothing else meanwhile, and may turn the machine; not a future.
    pub(crate) is_thread: bool,
}

/// Wakers to call, and whether there was a thread's among them.
pub(crate) struct Woken {
    wakers: Vec<Waker>,
    pub(crate) thread: bool,
}

impl Woken {
    pub(crate) fn count(&self) -> usize {
        self.wakers.len()
    }

    /// Not under a lock: what a waker does is the application's.
    pub(crate) fn wake(self) {
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

impl Calls {
    /// A client for these commands.
    pub(crate) fn open(&mut self, commands: Vec<Command>, pipeline_max: usize) -> ClientId {
        let client = self.free.pop().unwrap_or_else(|| {
            self.calls.push(None);
            ClientId(self.calls.len() as u32 - 1)
        });
        self.calls[client.0 as usize] = Some(Call {
            outstanding: commands.len(),
            replies: Vec::with_capacity(commands.len().min(pipeline_max)),
            waiting: commands.into(),
            waiter: None,
        });
        client
    }

    fn get_mut(&mut self, client: ClientId) -> Option<&mut Call> {
        self.calls.get_mut(client.0 as usize)?.as_mut()
    }

    pub(crate) fn next_command(&mut self, client: ClientId) -> Option<Command> {
        self.get_mut(client)?.waiting.pop_front()
    }

    pub(crate) fn have_resumed(&self) -> bool {
        !self.resumed.is_empty()
    }

    pub(crate) fn next_resumed(&mut self) -> Option<ClientId> {
        self.resumed.pop()
    }

    fn get(&self, client: ClientId) -> Option<&Call> {
        self.calls.get(client.0 as usize)?.as_ref()
    }

    /// Whether there is such a call, and it has all its replies.
    pub(crate) fn is_over(&self, client: ClientId) -> bool {
        self.get(client).is_some_and(|call| call.outstanding == 0)
    }

    pub(crate) fn is_open(&self, client: ClientId) -> bool {
        self.get(client).is_some()
    }

    /// The answer of a call, if anybody waits for it.
    pub(crate) fn answer(&self, client: ClientId) -> Option<&Arc<CallAnswer>> {
        Some(&self.get(client)?.waiter.as_ref()?.answer)
    }

    /// Says who waits for a call.
    pub(crate) fn wait(&mut self, client: ClientId, waiter: CallWaiter) {
        let futures = usize::from(!waiter.is_thread);
        if let Some(call) = self.get_mut(client) {
            call.waiter = Some(waiter);
            self.futures += futures;
        }
    }

    /// Ends a call with what it has, for its waiter if it has one; gives back the replies if not.
    pub(crate) fn end(&mut self, client: ClientId) -> CallReplies {
        let call = self.calls.get_mut(client.0 as usize)?.take()?;
        self.free.push(client);
        let Some(waiter) = call.waiter else { return Some(call.replies) };
        self.woke_thread |= waiter.is_thread;
        self.futures -= usize::from(!waiter.is_thread);
        self.woken.push(waiter.answer.put((call.outstanding == 0).then_some(call.replies)));
        None
    }

    /// Puts an outcome where somebody waits who has no call.
    pub(crate) fn tell(&mut self, answer: &CallAnswer, outcome: CallReplies) {
        self.woken.push(answer.put(outcome));
    }

    /// Ends all calls without replies.
    pub(crate) fn clear(&mut self) {
        self.free.clear();
        self.futures = 0;
        for waiter in self.calls.drain(..).flatten().filter_map(|call| call.waiter) {
            self.woken.push(waiter.answer.put(None));
        }
    }

    /// Wakers of calls that have ended, to be called when no lock is held.
    pub(crate) fn take_woken(&mut self) -> Woken {
        Woken { wakers: std::mem::take(&mut self.woken), thread: std::mem::take(&mut self.woke_thread) }
    }

    /// A thread that waits, if any does.
    pub(crate) fn waiting_thread(&self) -> Option<&Arc<CallAnswer>> {
        let mut waiters = self.calls.iter().flatten().filter_map(|call| call.waiter.as_ref());
        waiters.find(|waiter| waiter.is_thread).map(|waiter| &waiter.answer)
    }

    /// Calls under way.
    pub(crate) fn count(&self) -> usize {
        self.calls.len() - self.free.len()
    }

    /// Calls that futures wait for.
    pub(crate) fn futures(&self) -> usize {
        self.futures
    }
}

impl Front for Calls {
    fn reply(&mut self, _io: &mut Io, client: ClientId, bytes: Bytes) {
        let Some(call) = self.get_mut(client) else { return };
        // Shared bytes would keep the whole read buffer of the link alive for as long as the value is held.
        call.replies.push(Bytes::copy_from_slice(&bytes));
        call.outstanding -= 1;
        if call.outstanding == 0 {
            self.resumed.push(client);
        }
    }

    /// Its machine asks for whole replies.
    fn part(&mut self, _io: &mut Io, _client: ClientId, _bytes: Bytes) -> bool {
        false
    }

    /// A call is over with its replies: nobody is there to listen.
    fn push(&mut self, _io: &mut Io, _client: ClientId, _bytes: Bytes) {}

    /// QUIT: the commands after it are never answered.
    fn close(&mut self, _io: &mut Io, client: ClientId, _reason: &CloseReason) {
        self.end(client);
    }

    fn resume(&mut self, _io: &mut Io, client: ClientId) {
        self.resumed.push(client);
    }
}
