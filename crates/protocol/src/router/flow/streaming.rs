//! What has come of a large reply and has not been given to its client, and what waits behind it. Not whose turn it is.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::message::Credit;
use wire::{Message, Peer};

use crate::router::step::RouterStep;
use crate::storage::{EARLY_BYTES, WINDOW_BYTES};

/// A reply of which not everything has come, or not everything has been given to the client.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) request: u64,
    peer: Peer,
    /// Parts that wait for earlier replies of the client.
    parts: VecDeque<Bytes>,
    /// There are no more parts.
    ended: bool,
    /// What may be asked for once the client has taken what it was given: as much, and when its turn comes the rest of the
    /// window.
    unread: u64,
    total: usize,
    /// What else is to be said to the client; a push in the middle of a reply would be a part of it.
    pushes: Vec<Bytes>,
    pushes_bytes: usize,
}

impl Streaming {
    pub(crate) fn new(request: u64, peer: Peer) -> Streaming {
        Streaming {
            request,
            peer,
            parts: VecDeque::new(),
            ended: false,
            unread: WINDOW_BYTES - EARLY_BYTES,
            total: 0,
            pushes: Vec::new(),
            pushes_bytes: 0,
        }
    }

    pub(crate) fn keep(&mut self, value: Bytes, last: bool) {
        self.parts.push_back(value);
        self.ended = last;
    }

    /// The next part, which the client is given now.
    pub(crate) fn give(&mut self) -> Option<Bytes> {
        let bytes = self.parts.pop_front()?;
        self.total += bytes.len();
        self.unread += bytes.len() as u64;
        Some(bytes)
    }

    /// Once there are no more parts: how large the whole was, and what is to be said behind it.
    pub(crate) fn end(&mut self) -> Option<(usize, Vec<Bytes>)> {
        self.ended.then(|| (self.total, std::mem::take(&mut self.pushes)))
    }

    pub(crate) fn ask_for_more(&mut self, step: &mut RouterStep<'_>) {
        let bytes = std::mem::take(&mut self.unread);
        if bytes > 0 && !self.ended {
            step.send(self.peer, Message::Credit(Credit { request: self.request, bytes }));
        }
    }

    /// Something to say behind the reply. Returns how much of that waits now.
    pub(crate) fn push(&mut self, bytes: Bytes) -> usize {
        self.pushes_bytes += bytes.len();
        self.pushes.push(bytes);
        self.pushes_bytes
    }
}
