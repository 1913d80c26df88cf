//! Asks one server after the other the same question, each on a connection for that alone. Not what to make of answers.

use core::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use wire::resp::{Command, ReplyScanner, Value};

use super::login::Login;
use super::network::{ConnectionId, Endpoint, Network, StorageInput};
use super::{NoteLevel, StorageEvent};
use crate::time::Time;

/// An answer.
pub(super) struct Found {
    pub(super) server: SocketAddr,
    /// It was true at some time after this.
    pub(super) asked: Time,
    pub(super) value: Value,
}

struct Trip {
    connection: ConnectionId,
    server: SocketAddr,
    since: Time,
    scanner: ReplyScanner,
    logging_in: bool,
}

/// What an error means: the remedy that a person has to be told, if it does not pass by itself. `true`: it was about the
/// login.
pub(super) type Remedy = fn(&str, bool) -> Option<&'static str>;

pub(super) struct Discovery {
    login: Option<Login>,
    question: Command,
    remedy: Remedy,
    timeout: Duration,
    trip: Option<Trip>,
    found: Option<Found>,
    refusal: Option<String>,
    /// Why nobody could be asked, as the log has it.
    trouble: Option<String>,
}

impl Discovery {
    pub(super) fn new(
        login: Option<Login>,
        question: Command,
        remedy: Remedy,
        timeout: Duration,
    ) -> Discovery {
        let (trip, found, refusal, trouble) = (None, None, None, None);
        Discovery { login, question, remedy, timeout, trip, found, refusal, trouble }
    }

    /// Why a person has to do something, as the server that was asked last has it.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn take_found(&mut self) -> Option<Found> {
        self.found.take()
    }

    /// One at a time: who is asked while another is asked is left out.
    pub(super) fn ask(&mut self, network: &mut dyn Network, now: Time, server: SocketAddr) {
        match &self.trip {
            Some(trip) if now.since(trip.since) < self.timeout => {
                return;
            }
            _ => self.end(network),
        }
        let connection = network.dial(Endpoint::Discovered(server), false);
        let out = network.out(connection);
        if let Some(login) = &self.login {
            out.extend_from_slice(login.command().frame());
        }
        out.extend_from_slice(self.question.frame());
        let logging_in = self.login.is_some();
        let scanner = ReplyScanner::new();
        self.trip = Some(Trip { connection, server, since: now, scanner, logging_in });
    }

    pub(super) fn owns(&self, id: ConnectionId) -> bool {
        self.trip.as_ref().is_some_and(|trip| trip.connection == id)
    }

    /// Takes what is about its own connection.
    pub(super) fn step(
        &mut self,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        match input {
            StorageInput::Data { connection, bytes } => self.data(network, connection, bytes),
            StorageInput::Closed { reason, .. } => self.closed(reason, events),
            _ => {}
        }
    }

    /// Said once, as long as it stays the same.
    fn closed(&mut self, reason: String, events: &mut Vec<StorageEvent>) {
        let Some(trip) = self.trip.take() else { return };
        if self.trouble.as_ref() != Some(&reason) {
            let text = format!("{}: a server cannot be asked about the others: {reason}", trip.server);
            events.push(StorageEvent::Note { level: NoteLevel::Warning, text });
        }
        self.trouble = Some(reason);
    }

    fn data(&mut self, network: &mut dyn Network, connection: ConnectionId, mut bytes: Bytes) {
        while let Some(trip) = &mut self.trip {
            let value = match trip.scanner.scan(&bytes) {
                Ok(Some(length)) => Value::parse(&bytes.split_to(length)),
                Ok(None) => return network.unread(connection, bytes),
                Err(error) => Err(error),
            };
            let server = trip.server;
            let answer = match value {
                Ok(Value::Error(error)) => Err(String::from_utf8_lossy(&error).into_owned()),
                Ok(value) => Ok(value),
                Err(_) => return self.end(network),
            };
            match answer {
                Ok(_) if trip.logging_in => trip.logging_in = false,
                Ok(value) => {
                    (self.refusal, self.trouble) = (None, None);
                    self.found = Some(Found { server, asked: trip.since, value });
                    return self.end(network);
                }
                Err(error) => {
                    let remedy = (self.remedy)(&error, trip.logging_in);
                    self.refusal = remedy.map(|remedy| format!("{server}: {error}: {remedy}"));
                    return self.end(network);
                }
            }
        }
    }

    fn end(&mut self, network: &mut dyn Network) {
        if let Some(trip) = self.trip.take() {
            network.close(trip.connection);
        }
    }
}
