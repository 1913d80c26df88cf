//! The attacks by name, and what all of them need: a place to attack, when to stop, and what went wrong. Not the cluster.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;

use super::{BAD, PASSWORD, hold, storm};

pub(super) const LARGE_KEY: &str = "hostile:large";
pub(super) const LARGE_BYTES: usize = 1 << 20;

/// One way to be a bad client. `run` returns how often it was bad.
pub(in crate::show) struct Attack {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// One turn of it.
    pub(super) seconds: u64,
    pub(super) run: fn(&Field<'_>) -> u64,
}

/// Paced, because an attacker that takes a core from two shows what the machine lacks, not what the router does.
pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "half-open",
        what: "10,000 strangers that send half a command and stay",
        seconds: 15,
        run: hold::half_open,
    },
    Attack {
        name: "slow-writers",
        what: "500 connections that send a byte now and then",
        seconds: 5,
        run: hold::slow_writers,
    },
    Attack {
        name: "giant-headers",
        what: "1,000 connections that announce 60 MiB and send little of it",
        seconds: 5,
        run: hold::giant_headers,
    },
    Attack {
        name: "hoarders",
        what: "connections that send 8 MiB of an announced 60 MiB each, again and again",
        seconds: 5,
        run: hold::hoarders,
    },
    Attack {
        name: "slow-readers",
        what: "50 connections that ask for 1 MiB values and never read",
        seconds: 5,
        run: hold::slow_readers,
    },
    Attack {
        name: "connection-flood",
        what: "connections opened and reset as fast as 1,000 per second",
        seconds: 5,
        run: storm::connections,
    },
    Attack {
        name: "nonsense",
        what: "frames that no client sends: nested arrays, lengths that lie, endless lines, random bytes",
        seconds: 5,
        run: storm::nonsense,
    },
    Attack {
        name: "passwords",
        what: "500 guesses of a password per second",
        seconds: 5,
        run: storm::passwords,
    },
    Attack {
        name: "strangers",
        what: "strangers that send more than one may before a password",
        seconds: 5,
        run: storm::strangers,
    },
    Attack {
        name: "binary",
        what: "keys and values of random bytes, checked",
        seconds: 5,
        run: storm::binary,
    },
    Attack {
        name: "many-arguments",
        what: "commands of 10,000 keys, twice a second",
        seconds: 5,
        run: storm::many_arguments,
    },
];

/// Where an attacker works.
#[derive(Clone, Copy)]
pub(in crate::show) struct Field<'a> {
    pub(super) router: SocketAddr,
    pub(super) stop: &'a AtomicBool,
    pub(super) wrong: &'a Mutex<Vec<String>>,
}

impl Field<'_> {
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.router, Duration::from_secs(5)).ok()?;
        stream.set_nodelay(true).ok()?;
        // It must not hang once the router has closed its side or stopped to read.
        stream.set_write_timeout(Some(Duration::from_millis(20))).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        Some(stream)
    }

    /// One who has shown a password.
    pub(super) fn log_in(&self) -> Option<TcpStream> {
        let mut stream = self.connect()?;
        let said = self.ask(&mut stream, format!("AUTH {BAD} {PASSWORD}\r\n").as_bytes(), 5);
        if said != b"+OK\r\n" {
            self.wrong(format!("a login got {:?}", String::from_utf8_lossy(&said)));
        }
        Some(stream)
    }

    pub(super) fn wrong(&self, text: String) {
        if let Ok(mut wrong) = self.wrong.lock() {
            wrong.push(text);
        }
    }

    pub(super) fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Stays until the end.
    pub(super) fn wait(&self) {
        while self.goes_on() {
            self.pause(Duration::from_millis(20));
        }
    }

    /// What the router says to `bytes` until it closes the connection or has said `bytes_max`.
    pub(super) fn ask(&self, stream: &mut TcpStream, bytes: &[u8], bytes_max: usize) -> Vec<u8> {
        // It may close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut said = vec![0; bytes_max];
        let mut count = 0;
        while count < bytes_max {
            match stream.read(&mut said[count..]) {
                Ok(0) | Err(_) => break,
                Ok(more) => count += more,
            }
        }
        said.truncate(count);
        said
    }
}

pub(in crate::show) fn named(name: &str) -> anyhow::Result<&'static Attack> {
    let names = || ATTACKS.iter().map(|attack| attack.name).collect::<Vec<_>>().join(", ");
    let attack = ATTACKS.iter().find(|attack| attack.name == name);
    attack.with_context(|| format!("no attack is named {name:?}; there are {}", names()))
}
