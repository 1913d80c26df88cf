//! Asks one server after the other what it knows of the cluster, on a connection for that alone. Not what to believe.

use std::net::SocketAddr;

use bytes::Bytes;
use runtime::address::Address;
use runtime::reactor::{ConnectionId, Event, Io};
use wire::resp::{Command, ReplyScanner, Value};

struct Trip {
    connection: ConnectionId,
    server: SocketAddr,
    since_us: u64,
    scanner: ReplyScanner,
    logging_in: bool,
}

pub(super) struct Scout {
    user: Option<String>,
    password: Option<String>,
    timeout_us: u64,
    trip: Option<Trip>,
    found: Option<(SocketAddr, Bytes)>,
    refusal: Option<String>,
}

impl Scout {
    pub(super) fn new(user: Option<String>, password: Option<String>, timeout_us: u64) -> Scout {
        Scout { user, password, timeout_us, trip: None, found: None, refusal: None }
    }

    /// Why a person has to do something, as the server that was asked last has it.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn take_found(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.found.take()
    }

    /// One at a time: who is asked while another is asked is left out.
    pub(super) fn ask(&mut self, io: &mut Io, now_us: u64, server: SocketAddr) {
        match &self.trip {
            Some(trip) if now_us.saturating_sub(trip.since_us) < self.timeout_us => return,
            _ => self.end(io),
        }
        let connection = io.dial_tls(&Address::Tcp(server), None);
        let out = io.out(connection);
        if let Some(password) = &self.password {
            let login = match &self.user {
                Some(user) => Command::from_args(&["AUTH", user, password]),
                None => Command::from_args(&["AUTH", password]),
            };
            out.extend_from_slice(login.frame());
        }
        out.extend_from_slice(Command::from_args(&["CLUSTER", "NODES"]).frame());
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
            Event::Closed { connection, .. } if own(connection) => self.trip = None,
            Event::Connected(connection) | Event::Writable(connection) if own(connection) => {}
            other => return Some(other),
        }
        None
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
                    self.refusal = None;
                    self.found = value.bytes().map(|text| (server, text.clone()));
                    return self.end(io);
                }
                Err(error) => {
                    self.refusal = refusal(server, trip.logging_in, &error);
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

/// What a person has to do about an error; none if it may pass.
fn refusal(server: SocketAddr, logging_in: bool, error: &str) -> Option<String> {
    let remedy = match error.split(' ').next().unwrap_or_default() {
        "LOADING" | "BUSY" => return None,
        "NOAUTH" => {
            "the URL in `storage` has to hold a password: redis-cluster://USER:PASSWORD@HOST:PORT,..."
        }
        "NOPERM" => "give the storage user +cluster|nodes",
        _ if logging_in => {
            "check user and password in `storage` (redis-cluster://USER:PASSWORD@HOST:PORT,...)"
        }
        _ if error.contains("cluster support disabled") => {
            "redis-cluster:// is for servers in cluster mode; for a plain server write redis://HOST:PORT, one per shim"
        }
        _ => return None,
    };
    Some(format!("{server}: {error}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn an_error_says_what_to_do() {
        let server = "127.0.0.1:7000".parse().expect("an address");
        let check = |logging_in, error, expected| {
            let found = refusal(server, logging_in, error);
            assert_eq!(found.as_deref().map(|text| text.contains(expected)), Some(true), "{found:?}");
        };
        check(false, "ERR This instance has cluster support disabled", "write redis://");
        check(true, "WRONGPASS invalid", "check user and password");
        check(false, "NOAUTH Authentication required.", "has to hold a password");
        check(false, "NOPERM this user", "+cluster|nodes");
        assert_eq!(refusal(server, false, "LOADING dataset"), None);
    }
}
