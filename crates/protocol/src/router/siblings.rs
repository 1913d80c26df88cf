//! The threads of one router, each a [`super::Router`] with some of its clients: what they tell each other, so that they are
//! one router to whoever asks. Not what a thread does about it.

use wire::resp::Command;

use crate::router::front::client_tracking::Notice;
use crate::router::front::whole::ThreadShare;

/// Which of a router's threads a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPlace {
    pub own: u16,
    /// Threads of the router, each of which has the same number here.
    pub count: u16,
}

impl Default for ThreadPlace {
    /// The only one.
    fn default() -> ThreadPlace {
        ThreadPlace { own: 0, count: 1 }
    }
}

impl ThreadPlace {
    /// The other threads.
    pub(crate) fn others(self) -> impl Iterator<Item = u16> {
        (0..self.count).filter(move |thread| *thread != self.own)
    }

    /// A number that no other thread gives to what it counts, for the one that comes after `before` others here.
    pub(crate) fn number(self, before: u64) -> u64 {
        before * u64::from(self.count) + u64::from(self.own)
    }

    /// The thread that has the client of this number: they count from one.
    pub(crate) fn thread_of(self, client_number: u64) -> u16 {
        (client_number.saturating_sub(1) % u64::from(self.count)) as u16
    }

    /// The part of this thread where all together may have so many.
    pub(crate) fn part(self, of: usize) -> usize {
        of.div_ceil(usize::from(self.count))
    }
}

/// What a thread tells another of the same router. None is ever lost, and they come in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiblingMessage {
    /// A command of a client of the thread that sends it, which all threads obey, or answer for their own clients.
    Ask { asked: u64, command: Command },
    /// The answer to `Ask` of this number.
    Told { asked: u64, share: ThreadShare },
    /// A client of the thread that sends it is told of changed keys by a client here.
    Notify(Notification),
    /// That client, to be told instead of `from`, is gone.
    Broken { from: ThreadClient, to: ThreadClient },
    /// A client of the thread that sends it runs a script for long, or none does any more.
    RunsScript(bool),
    /// The thread that sends it has ended: it answers nothing more.
    Ended,
}

/// What a client keeps has changed, and another is told instead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub(crate) from: ThreadClient,
    pub(crate) to: ThreadClient,
    pub(crate) notice: Notice,
}

/// A client of any thread: its place in that thread's tables, and what CLIENT ID says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClient {
    pub(crate) thread: u16,
    pub(crate) client: u32,
    pub(crate) number: u64,
}
