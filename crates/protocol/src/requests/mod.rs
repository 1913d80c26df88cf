//! What a node or shim does with requests when there are more than it can begin: how many each router may have under way,
//! in what order they wait, for how long, and who is turned away. Not what they ask.

mod queue;
mod windows;

use std::time::Duration;

use bytes::Bytes;
use wire::message::{Fill, Reply};
use wire::{Degree, LayerSet, Message, Status};

pub use queue::{Arrival, Due, RequestClass, RequestQueue};
pub(crate) use windows::RouterWindows;

/// What becomes of requests that cannot be begun at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// Requests that would be late are answered `Busy`.
    #[default]
    Refuse,
    /// Requests wait, here and, beyond their router's window, there. `Busy` is for those that have waited for longer than this
    /// in all.
    Wait { patience: Duration },
}

/// How many requests a member takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests per second that are begun; 0 for as many as come.
    pub rate_max: u64,
    /// Requests that wait here. One more is answered `Busy`; the windows of `Overload::Wait` keep far below it.
    pub queue_max: usize,
    /// Requests that all routers together may have under way here, with `Overload::Wait`.
    pub window_max: u32,
    pub overload: Overload,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits { rate_max: 0, queue_max: 1 << 16, window_max: 1 << 14, overload: Overload::Refuse }
    }
}

impl RequestLimits {
    /// How long a request may wait before it is begun; `None` if what would be late is refused at once.
    pub fn patience(&self) -> Option<Duration> {
        match self.overload {
            Overload::Refuse => None,
            Overload::Wait { patience } => Some(patience),
        }
    }

    /// A request that has waited for so long is not begun any more.
    pub fn wait_max(&self) -> Duration {
        self.patience().unwrap_or(queue::LIFE)
    }

    pub fn waits(&self) -> bool {
        self.patience().is_some()
    }
}

/// What is said to a request that is not taken, with `value` as the error for its client. None if the message is no
/// request: what makes less work, or is under way already, is always taken.
pub fn refusal(message: &Message, value: Bytes) -> Option<Message> {
    let request = match message {
        Message::Read(read) => read.request,
        Message::Execute(execute) => execute.request,
        Message::Fetch(fetch) => {
            return Some(Message::Fill(Fill {
                session: fetch.session,
                fill: fetch.fill,
                key: fetch.key.clone(),
                view: fetch.view,
                version: 0,
                granted: false,
                status: Status::Refused,
                cached: LayerSet::EMPTY,
                degree: Degree::BASE,
                ttl_ms: None,
                stale_ms: 0,
                value,
            }));
        }
        _ => return None,
    };
    Some(Message::Reply(Reply { request, status: Status::Busy, value, ..Reply::default() }))
}

/// How long a request had waited before it came.
pub(crate) fn waited_before(message: &Message) -> Duration {
    let waited_ms = match message {
        Message::Read(read) => read.waited_ms,
        Message::Execute(execute) => execute.waited_ms,
        _ => 0,
    };
    Duration::from_millis(waited_ms.into())
}
