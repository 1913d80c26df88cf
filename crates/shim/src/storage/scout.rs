//! Asks one server after the other the same question, each on a connection for that alone. Not what to make of answers.

use std::net::SocketAddr;

use bytes::Bytes;
use runtime::address::Address;
use runtime::reactor::{ConnectionId, Event, Io};
use runtime::tls::Dialer;
use wire::resp::{Command, ReplyScanner, Value};

struct Trip {
    connection: ConnectionId,
    server: SocketAddr,
    since_us: u64,
    scanner: ReplyScanner,
    logging_in: bool,
}

/// What an error means: the remedy that a person has to be told, if it does not pass by itself. `true`: it was about the
/// login.
pub(super) type Remedy = fn(&str, bool) -> Option<&'static str>;

pub(super) struct Scout {
    user: Option<String>,
    password: Option<String>,
    tls: Option<Dialer>,
    question: Command,
    remedy: Remedy,
    timeout_us: u64,
    trip: Option<Trip>,
    found: Option<(SocketAddr, Value)>,
    refusal: Option<String>,
    /// Why nobody could be asked, as the log has it.
    trouble: Option<String>,
}

impl Scout {
    pub(super) fn new(
        (user, password): (Option<String>, Option<String>),
        tls: Option<Dialer>,
        question: Command,
        remedy: Remedy,
        timeout_us: u64,
    ) -> Scout {
        let (trip, found, refusal, trouble) = (None, None, None, None);
        Scout { user, password, tls, question, remedy, timeout_us, trip, found, refusal, trouble }
    }

    /// Why a person has to do something, as the server that was asked last has it.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn take_found(&mut self) -> Option<(SocketAddr, Value)> {
        self.found.take()
    }

    /// One at a time: who is asked while another is asked is left out.
    pub(super) fn ask(&mut self, io: &mut Io, now_us: u64, server: SocketAddr) {
        match &self.trip {
            Some(trip) if now_us.saturating_sub(trip.since_us) < self.timeout_us => return,
            _ => self.end(io),
        }
        let connection = io.dial_tls(&Address::Tcp(server), self.tls.as_ref());
        let out = io.out(connection);
        if let Some(password) = &self.password {
            let login = match &self.user {
                Some(user) => Command::from_args(&["AUTH", user, password]),
                None => Command::from_args(&["AUTH", password]),
            };
            out.extend_from_slice(login.frame());
        }
        out.extend_from_slice(self.question.frame());
        let logging_in = self.password.is_some();
        let scanner = ReplyScanner::new();
        self.trip = Some(Trip { connection, server, since_us: now_us, scanner, logging_in });
    }

    /// Gives back what is not its own.
    pub(super) fn event(&mut self, io: &mut Io, event: Event) -> Option<Event> {
        let own =
            |connection: ConnectionId| self.trip.as_ref().is_some_and(|trip| trip.connection == connection);
        match event {
            Event::Data { connection, bytes, .. } if own(connection) => self.data(io, connection, bytes),
            Event::Closed { connection, error } if own(connection) => self.closed(error),
            Event::Connected(connection) | Event::Writable(connection) if own(connection) => {}
            other => return Some(other),
        }
        None
    }

    /// Said once, as long as it stays the same.
    fn closed(&mut self, error: Option<std::io::Error>) {
        let server = self.trip.take().map(|trip| trip.server);
        let trouble = error.map(|error| error.to_string());
        if let (Some(server), Some(trouble)) = (server, &trouble)
            && self.trouble.as_ref() != Some(trouble)
        {
            tracing::warn!(%server, trouble, "a server cannot be asked about the others");
        }
        self.trouble = trouble;
    }

    fn data(&mut self, io: &mut Io, connection: ConnectionId, mut bytes: Bytes) {
        while let Some(trip) = &mut self.trip {
            let value = match trip.scanner.scan(&bytes) {
                Ok(Some(length)) => Value::parse(&bytes.split_to(length)),
                Ok(None) => return io.unread(connection, bytes),
                Err(error) => Err(error),
            };
            let server = trip.server;
            let answer = match value {
                Ok(Value::Error(error)) => Err(String::from_utf8_lossy(&error).into_owned()),
                Ok(value) => Ok(value),
                Err(_) => return self.end(io),
            };
            match answer {
                Ok(_) if trip.logging_in => trip.logging_in = false,
                Ok(value) => {
                    (self.refusal, self.trouble) = (None, None);
                    self.found = Some((server, value));
                    return self.end(io);
                }
                Err(error) => {
                    let remedy = (self.remedy)(&error, trip.logging_in);
                    self.refusal = remedy.map(|remedy| format!("{server}: {error}: {remedy}"));
                    return self.end(io);
                }
            }
        }
    }

    fn end(&mut self, io: &mut Io) {
        if let Some(trip) = self.trip.take() {
            io.close(trip.connection);
        }
    }
}
