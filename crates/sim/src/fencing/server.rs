//! A Redis server as far as fencing goes: users, connections, roles, and commands that are carried out when it gets to
//! them, whoever still waits. Not the data, and not when bytes come and go.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use wire::resp::{Command, reply};

/// The user of connections that have not said who they are; it may do everything.
const DEFAULT: &[u8] = b"default";

/// A connection as the server has it.
#[derive(Debug)]
pub(super) struct Client {
    user: Bytes,
    /// Read and not carried out.
    input: VecDeque<Command>,
    /// The other end has gone. What was read is carried out all the same.
    ended: bool,
}

/// What became of one command.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) reply: Bytes,
    /// Connections that are no more, with all that was read from them.
    pub(super) killed: Vec<u64>,
    /// It has changed data.
    pub(super) wrote: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    clients: BTreeMap<u64, Client>,
    /// Users of incarnations, with their passwords.
    users: BTreeMap<Bytes, Bytes>,
    clients_made: u64,
    run: u64,
    history: u64,
    pub(super) is_primary: bool,
    /// It answers BUSY to all but a few commands.
    pub(super) is_busy: bool,
}

impl Server {
    pub(super) fn new() -> Server {
        Server {
            clients: BTreeMap::new(),
            users: BTreeMap::new(),
            clients_made: 0,
            run: 1,
            history: 1,
            is_primary: true,
            is_busy: false,
        }
    }

    /// A connection is there; its number.
    pub(super) fn accept(&mut self) -> u64 {
        self.clients_made += 1;
        let user = Bytes::from_static(DEFAULT);
        self.clients.insert(self.clients_made, Client { user, input: VecDeque::new(), ended: false });
        self.clients_made
    }

    /// Reads commands from a connection, unless it is no more.
    pub(super) fn read(&mut self, client: u64, commands: impl IntoIterator<Item = Command>) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.input.extend(commands);
        }
    }

    /// The other end of a connection has gone.
    pub(super) fn end(&mut self, client: u64) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.ended = true;
            if found.input.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// Another process at the same address, with the same data or none: no user and no connection is left.
    pub(super) fn restart(&mut self) -> Vec<u64> {
        self.run += 1;
        self.history += 1;
        self.users.clear();
        (self.is_primary, self.is_busy) = (true, false);
        std::mem::take(&mut self.clients).into_keys().collect()
    }

    /// It follows another server; or is the primary again, of another history.
    pub(super) fn set_primary(&mut self, is_primary: bool) {
        self.history += u64::from(is_primary && !self.is_primary);
        self.is_primary = is_primary;
    }

    /// Somebody takes a user away who is not a shim.
    pub(super) fn lose_users(&mut self) -> Vec<u64> {
        let users: Vec<Bytes> = self.users.keys().cloned().collect();
        self.delete_users(&users)
    }

    /// Carries out the next command of a connection, if there is one.
    pub(super) fn execute(&mut self, client: u64) -> Option<(Command, Outcome)> {
        let found = self.clients.get_mut(&client)?;
        let command = found.input.pop_front()?;
        let gone = found.ended && found.input.is_empty();
        let outcome = self.carry_out(client, &command);
        if gone {
            self.clients.remove(&client);
        }
        Some((command, outcome))
    }

    pub(super) fn has_work(&self, client: u64) -> bool {
        self.clients.get(&client).is_some_and(|client| !client.input.is_empty())
    }

    fn carry_out(&mut self, client: u64, command: &Command) -> Outcome {
        let name = command.name().to_ascii_uppercase();
        let sub = command.get(1).unwrap_or_default().to_ascii_uppercase();
        let mut out = Vec::new();
        let mut outcome = Outcome::default();
        match (name.as_slice(), sub.as_slice()) {
            (b"HELLO", _) => self.hello(client, command, &mut out),
            (b"ACL", b"WHOAMI") => reply::bulk(&self.clients[&client].user, &mut out),
            (b"ACL", b"LIST") => self.acl_list(&mut out),
            (b"ACL", b"USERS") => {
                reply::array_header(self.users.len() + 1, &mut out);
                reply::bulk(DEFAULT, &mut out);
                self.users.keys().for_each(|user| reply::bulk(user, &mut out));
            }
            (b"ACL", b"SETUSER") => {
                let password = command.args().find(|arg| arg.starts_with(b">"));
                let password = password.map_or(Bytes::new(), |arg| Bytes::copy_from_slice(&arg[1..]));
                self.users.insert(command.arg_bytes(2), password);
                reply::simple(b"OK", &mut out);
            }
            (b"ACL", b"DELUSER") => {
                let users: Vec<Bytes> = (2..command.len()).map(|index| command.arg_bytes(index)).collect();
                outcome.killed = self.delete_users(&users);
                reply::integer(outcome.killed.len() as i64, &mut out);
            }
            (b"CLIENT", b"LIST") => self.client_list(&mut out),
            (b"CLIENT", b"KILL") => {
                let id = std::str::from_utf8(command.arg(3)).ok().and_then(|id| id.parse::<u64>().ok());
                outcome.killed.extend(id.filter(|id| self.clients.remove(id).is_some()));
                reply::integer(outcome.killed.len() as i64, &mut out);
            }
            (b"INFO", b"SERVER") => {
                let text =
                    format!("redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:{:040x}\r\n", self.run);
                reply::bulk(text.as_bytes(), &mut out);
            }
            (b"INFO", _) => {
                let role = if self.is_primary { "master" } else { "slave" };
                let text = format!("role:{role}\r\nmaster_replid:{:040x}\r\n", self.history);
                reply::bulk(text.as_bytes(), &mut out);
            }
            _ if self.is_busy => reply::error(b"BUSY Redis is busy running a script.", &mut out),
            (b"PING", _) => reply::simple(b"PONG", &mut out),
            _ if !self.is_primary => {
                reply::error(b"READONLY You can't write against a read only replica.", &mut out);
            }
            _ => {
                outcome.wrote = true;
                reply::bulk(command.arg(1), &mut out);
            }
        }
        outcome.reply = out.into();
        outcome
    }

    fn hello(&mut self, client: u64, command: &Command, out: &mut Vec<u8>) {
        let args: Vec<&[u8]> = command.args().collect();
        if let Some(at) = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"AUTH")) {
            let known =
                self.users.get(args[at + 1]).is_some_and(|password| password.as_ref() == args[at + 2]);
            if !known {
                return reply::error(b"WRONGPASS invalid username-password pair or user is disabled.", out);
            }
            if let Some(found) = self.clients.get_mut(&client) {
                found.user = Bytes::copy_from_slice(args[at + 1]);
            }
        }
        reply::array_header(4, out);
        reply::bulk(b"proto", out);
        reply::integer(2, out);
        reply::bulk(b"id", out);
        reply::integer(client as i64, out);
    }

    fn acl_list(&self, out: &mut Vec<u8>) {
        reply::array_header(self.users.len() + 1, out);
        reply::bulk(b"user default on nopass ~* &* +@all", out);
        for user in self.users.keys() {
            let line = [b"user ", user.as_ref(), b" on #00 ~* &* +@all"].concat();
            reply::bulk(&line, out);
        }
    }

    fn client_list(&self, out: &mut Vec<u8>) {
        let mut text = String::new();
        for (id, client) in &self.clients {
            text.push_str(&format!("id={id} name= user={} cmd=x\n", String::from_utf8_lossy(&client.user)));
        }
        reply::bulk(text.as_bytes(), out);
    }

    /// Users that are gone take their connections along.
    fn delete_users(&mut self, users: &[Bytes]) -> Vec<u64> {
        let gone: Vec<&Bytes> = users.iter().filter(|user| self.users.contains_key(*user)).collect();
        let theirs = |client: &&u64| gone.contains(&&self.clients[client].user);
        let killed: Vec<u64> = self.clients.keys().filter(theirs).copied().collect();
        for client in &killed {
            self.clients.remove(client);
        }
        for user in users {
            self.users.remove(user);
        }
        killed
    }
}
