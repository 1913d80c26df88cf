//! One memcached: a process without users that lists its connections, and others who connect to it. Not what a machine makes
//! of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use protocol::storage::MarkedPart;
use protocol::storage::memcached::{Memcached, MemcachedSettings};
use protocol::storage::network::{Backend, Endpoint};
use wire::resp::{Command, reply};

use super::redis::PATIENCE;
use super::world::{HABITS, Scene, World};
use crate::random::SimRandom;
use crate::storage::redis::Outcome;
use crate::storage::site::{Server, Site};
use crate::storage::{Effect, marked_part};

/// How long somebody else is connected.
const VISIT: u64 = 2_000_000;

#[derive(Debug)]
pub(super) struct MemcachedScene;

/// Somebody else leaves, by the number of his connection.
#[derive(Debug)]
pub(super) struct Leaves(u64);

/// A connection as the server has it.
#[derive(Debug)]
struct Client {
    address: String,
    /// The kernel has it from the start, a thread of the server only when it gets to it.
    is_listed: bool,
    /// Read and not carried out.
    input: VecDeque<Bytes>,
    /// The other end has gone. What was read is carried out all the same.
    ended: bool,
}

/// A memcached of which nothing is asked but who is connected, and to store.
#[derive(Debug, Default)]
pub(super) struct MemcachedServer {
    clients: BTreeMap<u64, Client>,
    clients_made: u64,
    /// Whose keys it holds, as somebody has written. Nothing else may be written before, nor while it holds another's.
    mark: Option<Bytes>,
    holds_others: bool,
    /// As its statistics have it.
    changes: u64,
    /// By others than the processes, of all lives, and how many of them a process has noticed.
    foreign: u64,
    noticed: u64,
}

impl Server for MemcachedServer {
    fn accept(&mut self, from: SocketAddr) -> u64 {
        self.visit(format!("tcp6:{from}"))
    }

    fn read(&mut self, _now: u64, client: u64, received: &mut BytesMut) {
        while let Some(request) = take_request(received) {
            if let Some(client) = self.clients.get_mut(&client) {
                client.input.push_back(request);
            }
        }
    }

    fn end(&mut self, client: u64) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.ended = true;
            self.forget(client);
        }
    }

    fn knows(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    fn has_work(&self, client: u64) -> bool {
        self.clients.get(&client).is_some_and(|client| !client.is_listed || !client.input.is_empty())
    }

    fn execute(&mut self, _now_ms: u64, client: u64) -> Option<Outcome> {
        let found = self.clients.get_mut(&client)?;
        let (command, reply, effect) = if found.is_listed {
            self.carry_out(client)?
        } else {
            found.is_listed = true;
            (Command::from_args(&["accept"]), Bytes::new(), Effect::Read)
        };
        self.forget(client);
        Some(Outcome { command, reply, killed: Vec::new(), effect, tracked: None })
    }
}

impl MemcachedServer {
    /// Somebody is there; the number of his connection.
    fn visit(&mut self, address: String) -> u64 {
        self.clients_made += 1;
        let client = Client { address, is_listed: false, input: VecDeque::new(), ended: false };
        self.clients.insert(self.clients_made, client);
        self.clients_made
    }

    fn carry_out(&mut self, client: u64) -> Option<(Command, Bytes, Effect)> {
        let request = self.clients.get_mut(&client)?.input.pop_front()?;
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        self.changes += u64::from(words[0] == b"ms");
        let (reply, effect) = match words[0] {
            b"mn" => (Bytes::from_static(b"MN\r\n"), Effect::Read),
            b"stats" if words.len() == 1 => {
                (Bytes::from(format!("STAT pid 1\r\nSTAT cmd_set {}\r\nEND\r\n", self.changes)), Effect::Read)
            }
            b"stats" => (self.listing(), Effect::Read),
            b"mg" => (self.marked(), Effect::Read),
            b"ms" if words[1] == b"distcache:mark" => {
                self.mark = Some(request.slice(line.len() + 2..));
                (Bytes::from_static(b"HD\r\n"), Effect::Wrote)
            }
            b"ms" if self.mark.is_none() || self.holds_others => {
                (Bytes::from_static(b"NS\r\n"), Effect::Wrote)
            }
            b"ms" => (Bytes::from_static(b"HD\r\n"), Effect::Wrote),
            _ => (Bytes::from_static(b"ERROR\r\n"), Effect::Read),
        };
        Some((Command::from_args(&words), reply, effect))
    }

    fn marked(&self) -> Bytes {
        let Some(mark) = &self.mark else { return Bytes::from_static(b"EN\r\n") };
        let head = format!("VA {}\r\n", mark.len() - 2);
        [head.as_bytes(), mark].concat().into()
    }

    fn listing(&self) -> Bytes {
        let mut out = String::from("STAT 3:addr tcp6:[::]:11211\r\nSTAT 3:state conn_listening\r\n");
        for (number, client) in self.clients.iter().filter(|(_, client)| client.is_listed) {
            let number = number + 3;
            out.push_str(&format!("STAT {number}:addr {}\r\n", client.address));
            out.push_str(&format!("STAT {number}:listen_addr tcp6:[::]:11211\r\n"));
            out.push_str(&format!("STAT {number}:state conn_read\r\n"));
        }
        out.push_str("END\r\n");
        out.into()
    }

    /// Nothing is left of a connection without another end, once all that came over it is done.
    fn forget(&mut self, client: u64) {
        let done = |client: &Client| client.ended && client.is_listed && client.input.is_empty();
        if self.clients.get(&client).is_some_and(done) {
            self.clients.remove(&client);
        }
    }

    /// Another process at the same address: no connection is left, and no data but another shim's, if any.
    fn restart(&mut self, holds_others: bool) -> Vec<u64> {
        let text = "cluster c c\nshims a b\nshim b\n\r\n";
        self.mark = holds_others.then(|| Bytes::from_static(text.as_bytes()));
        (self.holds_others, self.changes) = (holds_others, 0);
        std::mem::take(&mut self.clients).into_keys().collect()
    }
}

/// A line, and a value where it announces one.
fn take_request(received: &mut BytesMut) -> Option<Bytes> {
    let end = received.windows(2).position(|two| two == b"\r\n")? + 2;
    let line = String::from_utf8_lossy(&received[..end - 2]).into_owned();
    let mut words = line.split(' ');
    let value = match (words.next(), words.nth(1)) {
        (Some("ms"), Some(length)) => length.parse::<usize>().unwrap_or(0) + 2,
        _ => 0,
    };
    (received.len() >= end + value).then(|| received.split_to(end + value).freeze())
}

impl Scene for MemcachedScene {
    type Server = MemcachedServer;
    type Own = Leaves;

    const LANES: bool = false;
    // Connections of an incarnation lead to the process that it began with, or nowhere.
    const NOTICED: u64 = 0;

    fn build(_random: &mut SimRandom) -> (MemcachedScene, Vec<Site<MemcachedServer>>) {
        (MemcachedScene, vec![Site::new(MemcachedServer::default(), HABITS)])
    }

    fn machine(&self, seed: u64) -> Box<dyn Backend> {
        let (endpoint, address) = (Endpoint::Configured, "the server".to_owned());
        let (timeout, is_first) = (PATIENCE, false);
        let shims = vec!["a".to_owned(), "b".to_owned()];
        let (part, adopts) = (MarkedPart { shims, shim: "a".to_owned(), ..marked_part() }, false);
        Box::new(Memcached::new(MemcachedSettings {
            endpoint,
            address,
            timeout,
            is_first,
            part,
            adopts,
            seed,
        }))
    }

    fn site(&self, _endpoint: Endpoint) -> usize {
        0
    }

    fn request(number: u64) -> Command {
        Command::from_args(&[".MS", &number.to_string(), "value"])
    }

    fn reply(_number: u64) -> Bytes {
        let mut out = Vec::new();
        reply::bulk(b"HD", &mut out);
        out.into()
    }

    fn number(outcome: &Outcome) -> Option<u64> {
        let text = std::str::from_utf8(outcome.command.get(1)?).ok()?;
        text.parse().ok().filter(|_| outcome.effect == Effect::Wrote)
    }

    fn trouble(world: &mut World<MemcachedScene>, draw: u64) -> Result<(), String> {
        match draw {
            0..20 => {
                world.changes(0);
                let holds_others = world.random.percent(30);
                world.at_site(0, |site, at| {
                    let gone = site.server.restart(holds_others);
                    site.cut(at, &gone);
                });
            }
            20..50 => {
                let address = format!("tcp:192.0.2.1:{}", world.random.between(1024, 65535));
                let changes = world.random.between(0, 3);
                let server = &mut world.sites[0].server;
                let visitor = server.visit(address);
                server.execute(0, visitor);
                (server.changes, server.foreign) = (server.changes + changes, server.foreign + changes);
                world.own_event(VISIT, Leaves(visitor));
            }
            50..75 => world.at_site(0, |site, at| {
                // It closes one connection, as it does with one that says nothing for long.
                let all: Vec<u64> = site.server.clients.keys().copied().collect();
                if !all.is_empty() {
                    let client = at.random.pick(&all);
                    site.server.clients.remove(&client);
                    site.cut(at, &[client]);
                }
            }),
            // It accepts nobody for a while.
            _ => {
                world.sites[0].refuses = true;
                world.own_event(600_000, Leaves(0));
            }
        }
        Ok(())
    }

    fn foreign_writes(world: &mut World<MemcachedScene>, count: u64) -> Result<(), String> {
        let server = &mut world.sites[0].server;
        server.noticed += count;
        world.book.tally.foreign += count;
        match server.noticed <= server.foreign {
            true => Ok(()),
            false => Err(format!("{} foreign writes of {} were noticed", server.noticed, server.foreign)),
        }
    }

    fn end_trouble(world: &mut World<MemcachedScene>) -> Result<(), String> {
        world.sites[0].refuses = false;
        if std::mem::take(&mut world.sites[0].server.holds_others) {
            world.sites[0].server.mark = None;
        }
        Ok(())
    }

    fn happens(world: &mut World<MemcachedScene>, Leaves(visitor): Leaves) -> Result<(), String> {
        world.sites[0].refuses &= visitor != 0;
        world.sites[0].server.end(visitor);
        Ok(())
    }
}
