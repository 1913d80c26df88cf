//! Drives a router for the threads of its own process: each call is a client of the machine for as long as it runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bytes::Bytes;
use config::Config;
use protocol::router::{ClientId, CloseReason, Input};
use protocol::time::Time;
use runtime::instance::MapCell;
use runtime::reactor::{Driver, Event, Io};
use wire::resp::Command;

use super::queue::{Queue, Submission};
use crate::engine::{Engine, Front};

pub(crate) struct ClientDriver {
    config: Arc<Config>,
    engine: Engine,
    calls: Calls,
    pub(crate) queue: Queue,
    pub(crate) maps: MapCell,
    submissions: Vec<Submission>,
    /// Told once, when every shim can be reached.
    connected: Option<SyncSender<()>>,
}

/// Calls under way, by `ClientId`. A client of the machine that is free serves the next call.
#[derive(Default)]
struct Calls {
    calls: Vec<Option<Call>>,
    free: Vec<ClientId>,
    /// May take commands again.
    resumed: Vec<ClientId>,
}

struct Call {
    waiting: VecDeque<Command>,
    outstanding: usize,
    replies: Vec<Bytes>,
    answer: SyncSender<Vec<Bytes>>,
}

impl ClientDriver {
    /// Its thread is woken by what comes into `queue` and `maps`.
    pub(crate) fn new(
        config: Arc<Config>,
        engine: Engine,
        io: &Io,
        connected: SyncSender<()>,
    ) -> ClientDriver {
        let (queue, maps, waker) = (Queue::new(io.waker()), MapCell::default(), io.waker());
        maps.register(move || waker.wake());
        let (calls, submissions) = (Calls::default(), Vec::new());
        ClientDriver { config, engine, calls, queue, maps, submissions, connected: Some(connected) }
    }

    fn start(&mut self, io: &mut Io, now: Time, submission: Submission) {
        let client = self.calls.free.pop().unwrap_or_else(|| {
            let client = ClientId(self.calls.calls.len() as u32);
            self.calls.calls.push(None);
            client
        });
        // A fresh client for each call: nothing that an earlier one set up is left over.
        self.step(io, now, Input::Opened { client });
        self.calls.calls[client.0 as usize] = Some(Call {
            outstanding: submission.commands.len(),
            replies: Vec::with_capacity(submission.commands.len().min(self.config.limits.pipeline_max)),
            waiting: submission.commands.into(),
            answer: submission.replies,
        });
        self.feed(io, now, client);
    }

    fn feed(&mut self, io: &mut Io, now: Time, client: ClientId) {
        while self.engine.router.ready(client) {
            let Some(command) = self.calls.next_command(client) else { return };
            self.step(io, now, Input::Command { client, command });
        }
    }

    fn step(&mut self, io: &mut Io, now: Time, input: Input) {
        self.engine.step(io, now, input, &mut self.calls);
    }

    /// Ends calls that have all replies, and hands in what stalled ones had left.
    fn settle(&mut self, io: &mut Io) {
        let now = io.now();
        while let Some(client) = self.calls.resumed.pop() {
            self.feed(io, now, client);
            if self.calls.is_over(client) {
                self.step(io, now, Input::Closed { client });
                self.calls.end(client);
            }
        }
        if self.engine.is_connected()
            && let Some(connected) = self.connected.take()
        {
            // The application may have given up waiting.
            let _ = connected.try_send(());
        }
    }
}

impl Driver for ClientDriver {
    fn event(&mut self, io: &mut Io, event: Event) {
        match self.engine.event(io, event, &mut self.calls) {
            Some(Event::Tick) => {
                let now = io.now();
                self.step(io, now, Input::Tick);
            }
            Some(Event::Woken) => {
                let now = io.now();
                let epoch = self.engine.router.epoch();
                if let Some(map) = self.maps.placement_newer_than(&self.config, epoch) {
                    self.engine.adopt(io, map, &mut self.calls);
                }
                let mut submissions = std::mem::take(&mut self.submissions);
                self.queue.take(&mut submissions);
                for submission in submissions.drain(..) {
                    self.start(io, now, submission);
                }
                self.submissions = submissions;
            }
            _ => {}
        }
        self.settle(io);
    }

    fn rest(&mut self, now: Time) -> Duration {
        self.engine.rest(now)
    }

    /// Callers that still wait learn that the client has ended: dropping a call drops its channel.
    fn stopping(&mut self, io: &mut Io) -> bool {
        self.step(io, io.now(), Input::Drain);
        self.queue.close();
        self.calls.calls.clear();
        true
    }
}

impl Drop for ClientDriver {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Calls {
    fn get_mut(&mut self, client: ClientId) -> Option<&mut Call> {
        self.calls.get_mut(client.0 as usize)?.as_mut()
    }

    fn next_command(&mut self, client: ClientId) -> Option<Command> {
        self.get_mut(client)?.waiting.pop_front()
    }

    fn is_over(&self, client: ClientId) -> bool {
        let call = self.calls.get(client.0 as usize).and_then(Option::as_ref);
        call.is_some_and(|call| call.outstanding == 0)
    }

    fn end(&mut self, client: ClientId) {
        if let Some(call) = self.calls[client.0 as usize].take() {
            self.free.push(client);
            // The caller waits for it, unless its thread is gone.
            let _ = call.answer.try_send(call.replies);
        }
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
        if let Some(call) = self.calls.get_mut(client.0 as usize).and_then(Option::take) {
            self.free.push(client);
            drop(call);
        }
    }

    fn resume(&mut self, _io: &mut Io, client: ClientId) {
        self.resumed.push(client);
    }
}
