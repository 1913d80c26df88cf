//! One connection under load: what is in flight on it and what is due. Not the socket.

use std::collections::VecDeque;

use protocol::time::Time;
use runtime::reactor::ConnectionId;
use wire::resp::ReplyScanner;

/// A request without its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    /// When it was sent (closed loop) or due (open loop).
    pub(crate) since: Time,
    pub(crate) key: u64,
}

pub(crate) struct BenchConnection {
    pub(crate) id: ConnectionId,
    pub(crate) up: bool,
    /// The login has been sent and not been answered.
    pub(crate) logging_in: bool,
    /// In the order of sending, which is the order of the replies.
    pub(crate) in_flight: VecDeque<SentRequest>,
    pub(crate) scanner: ReplyScanner,
    /// Open loop: how many requests have become due on this connection, and how many of them were sent.
    pub(crate) released: u64,
    pub(crate) sent: u64,
    /// When to connect again, if it is down.
    pub(crate) dial_at: Option<Time>,
}

impl BenchConnection {
    pub(crate) fn new(id: ConnectionId, pipeline: usize) -> BenchConnection {
        BenchConnection {
            id,
            up: false,
            logging_in: false,
            in_flight: VecDeque::with_capacity(pipeline.min(1_024)),
            scanner: ReplyScanner::new(),
            released: 0,
            sent: 0,
            dial_at: None,
        }
    }

    pub(crate) fn has_room(&self, pipeline: usize) -> bool {
        self.up && self.in_flight.len() < pipeline
    }
}
