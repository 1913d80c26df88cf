//! Drives a router for the threads of its own process. Not which of them does at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::Config;
use protocol::router::{ClientId, Input};
use protocol::time::Time;
use runtime::instance::MapCell;
use runtime::reactor::{Driver, Event, Io};
use wire::resp::Command;

use super::answer::CallAnswer;
use super::calls::Calls;
use super::error::CONNECT_TIMEOUT;
use crate::engine::Engine;

pub(crate) struct ClientDriver {
    config: Arc<Config>,
    engine: Engine,
    pub(crate) calls: Calls,
    pub(crate) maps: MapCell,
    /// Makes another engine, with another id.
    renew: Renew,
    /// Has an outcome when every shim can be reached, or when that took too long: then none.
    connected: Option<Arc<CallAnswer>>,
    give_up: Time,
}

/// Makes an engine with an id of its own, drawn at random, and has it dial.
pub(crate) type Renew = Box<dyn Fn(&mut Io) -> Result<Engine, String> + Send>;

/// What has become of a call by the time its commands are with the machine.
pub(crate) enum StartedCall {
    /// With its replies, unless the call has made an end of its client.
    Over(Option<Vec<Bytes>>),
    Waits(ClientId),
}

impl ClientDriver {
    /// Its reactor is woken by what comes into `maps`.
    pub(crate) fn new(
        config: Arc<Config>,
        engine: Engine,
        renew: Renew,
        io: &Io,
        connected: Arc<CallAnswer>,
    ) -> ClientDriver {
        let (maps, waker) = (MapCell::default(), io.waker());
        maps.register(move || waker.wake());
        let (calls, give_up) = (Calls::default(), io.now().after(CONNECT_TIMEOUT));
        ClientDriver { config, engine, renew, calls, maps, connected: Some(connected), give_up }
    }

    /// A fresh client of the machine for each call: nothing that an earlier one set up is left over.
    pub(crate) fn start(&mut self, io: &mut Io, now: Time, commands: Vec<Command>) -> StartedCall {
        let client = self.calls.open(commands, self.config.limits.pipeline_max);
        self.step(io, now, Input::Opened { client });
        self.feed(io, now, client);
        self.settle(io, now);
        if self.calls.is_over(client) {
            self.step(io, now, Input::Closed { client });
            return StartedCall::Over(self.calls.end(client));
        }
        match self.calls.is_open(client) {
            true => StartedCall::Waits(client),
            false => StartedCall::Over(None),
        }
    }

    /// Nobody waits for a call any more.
    pub(crate) fn abandon(&mut self, io: &mut Io, client: ClientId) {
        self.step(io, io.now(), Input::Closed { client });
        self.calls.end(client);
    }

    /// Takes another id if another process has this one: such a client links with nobody, and so has no calls yet.
    fn redraw(&mut self, io: &mut Io) {
        if self.connected.is_none() || !self.engine.peers.is_taken() {
            return;
        }
        match (self.renew)(io) {
            Ok(engine) => {
                std::mem::replace(&mut self.engine, engine).peers.leave(io);
                // The one that left may have known a newer map than the configuration's.
                self.follow_map(io);
            }
            Err(reason) => tracing::error!(reason, "the client cannot take another id"),
        }
    }

    fn follow_map(&mut self, io: &mut Io) {
        let epoch = self.engine.router.epoch();
        if let Some(map) = self.maps.placement_newer_than(&self.config, epoch) {
            self.engine.adopt(io, map, &mut self.calls);
        }
    }

    /// Why members refuse this client, in words.
    pub(crate) fn refusals(&self, io: &Io) -> Vec<String> {
        self.engine.peers.status(io.now()).links_refused
    }

    /// Tells whoever waits that nothing comes.
    pub(crate) fn leave_all(&mut self) {
        self.calls.clear();
        if let Some(connected) = self.connected.take() {
            self.calls.tell(&connected, None);
        }
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

    /// Hands in what stalled calls had left, and ends those that somebody waits for and that have all replies.
    fn settle(&mut self, io: &mut Io, now: Time) {
        while let Some(client) = self.calls.next_resumed() {
            self.feed(io, now, client);
            if self.calls.is_over(client) && self.calls.answer(client).is_some() {
                self.step(io, now, Input::Closed { client });
                self.calls.end(client);
            }
        }
        self.redraw(io);
        let is_connected = self.engine.is_connected();
        if let Some(connected) = self.connected.take_if(|_| is_connected || now >= self.give_up) {
            self.calls.tell(&connected, is_connected.then(Vec::new));
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
            Some(Event::Woken) => self.follow_map(io),
            _ => {}
        }
        if self.calls.have_resumed() || self.connected.is_some() {
            self.settle(io, io.now());
        }
    }

    fn rest(&mut self, now: Time) -> Duration {
        self.engine.rest(now)
    }

    fn stopping(&mut self, io: &mut Io) -> bool {
        self.step(io, io.now(), Input::Drain);
        self.leave_all();
        true
    }
}
