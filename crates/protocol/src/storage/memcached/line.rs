//! The connection to memcached that commands go over: a greeting, then requests, first in first out. No sockets.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::codec::VALUE_BYTES_MAX;
use wire::memcached::{ReplyHead, next_reply};

use super::census::Changes;
use super::question::{self, Question, Replies, Written};
use crate::storage::{StorageEvent, Store};
use crate::time::Time;

/// A store whose replies are not complete.
struct Awaited {
    ticket: u64,
    /// Not answered yet, the next one last.
    questions: SmallVec<[Question; 2]>,
    replies: Replies,
    sent: Time,
    /// Where its bytes start in all that was ever written.
    start: u64,
}

pub(super) struct Line {
    open: bool,
    awaited: VecDeque<Awaited>,
    written: u64,
    /// When it was made, or last heard of.
    heard: Time,
    /// The request that follows whatever takes all items away.
    mark: Bytes,
    changes: Changes,
}

impl Line {
    /// The server answers the greeting once it has the connection in its books, and so before any command comes.
    pub(super) fn new(now: Time, mark: Bytes, out: &mut Vec<u8>) -> Line {
        const GREETING: &[u8] = b"mn\r\n";
        out.extend_from_slice(GREETING);
        Line {
            open: false,
            awaited: VecDeque::new(),
            written: GREETING.len() as u64,
            heard: now,
            mark,
            changes: Changes::default(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn changes(&self) -> Changes {
        self.changes
    }

    pub(super) fn pending_count(&self) -> usize {
        self.awaited.len()
    }

    /// Only once it is open.
    pub(super) fn store(
        &mut self,
        now: Time,
        store: &Store,
        out: &mut Vec<u8>,
        events: &mut Vec<StorageEvent>,
    ) {
        let before = out.len();
        match question::write(store, &self.mark, out) {
            Written::Asked(mut questions) => {
                questions.reverse();
                self.changes.sent += questions.iter().filter(|question| question.changes()).count() as i64;
                let (ticket, start) = (store.ticket, self.written);
                let replies = SmallVec::new();
                self.awaited.push_back(Awaited { ticket, questions, replies, sent: now, start });
                self.written += (out.len() - before) as u64;
            }
            Written::Refused(replies) => events.push(StorageEvent::Replies { ticket: store.ticket, replies }),
        }
    }

    /// Takes whole replies off `bytes`; what is left comes again with more behind it.
    pub(super) fn data(
        &mut self,
        now: Time,
        bytes: &mut Bytes,
        events: &mut Vec<StorageEvent>,
    ) -> Result<(), String> {
        self.heard = now;
        while let Some((head, text)) = next_reply(bytes, VALUE_BYTES_MAX)? {
            let odd =
                || format!("an answer that fits no question: {}", text[..text.len().min(80)].escape_ascii());
            if !self.open {
                if head != ReplyHead::Noop {
                    return Err(format!("{}; DistCache needs memcached 1.6 with the meta protocol", odd()));
                }
                self.open = true;
                continue;
            }
            let first = self.awaited.front_mut().ok_or_else(odd)?;
            let question = first.questions.pop().ok_or_else(odd)?;
            if question.changes() {
                let has_changed = question.has_changed(&text);
                self.changes.done += i64::from(has_changed);
                self.changes.sent -= i64::from(!has_changed);
            }
            first.replies.extend(question::read(question, head, &text).map_err(|()| odd())?);
            if first.questions.is_empty() {
                let replies = std::mem::take(&mut first.replies);
                events.push(StorageEvent::Replies { ticket: first.ticket, replies });
                self.awaited.pop_front();
            }
        }
        Ok(())
    }

    /// Whether something has been awaited for longer than `timeout` without a sign of life.
    pub(super) fn overdue(&self, now: Time, timeout: Duration) -> bool {
        let since = match self.awaited.front() {
            Some(first) => first.sent.max(self.heard),
            None if self.open => return false,
            None => self.heard,
        };
        now.since(since) > timeout
    }

    /// The connection is gone, with `unwritten` bytes that the kernel never got. Whether the server may hold requests
    /// that it has not executed.
    pub(super) fn lose(self, unwritten: usize, events: &mut Vec<StorageEvent>) -> bool {
        let reached = self.written - (unwritten as u64).min(self.written);
        let mut unknown = false;
        for awaited in self.awaited {
            let sent = awaited.start < reached;
            unknown |= sent;
            events.push(StorageEvent::Lost { ticket: awaited.ticket, sent });
        }
        unknown
    }
}
