//! A Redis server: users, connections, roles, and commands that are carried out when it gets to them, whoever still waits.
//! Not when bytes come and go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use commands::resolve;
use wire::resp::{Command, RespLimits, reply, take_command};

use super::data::{Data, Effect};
use super::site::Server;
use crate::shape::RefusedFences;

/// The user of connections that have not said who they are; it may do everything.
const DEFAULT: &[u8] = b"default";

/// A connection as the server has it.
#[derive(Debug)]
struct Client {
    user: Bytes,
    resp3: bool,
    /// Read and not carried out, each with the time when it came.
    input: VecDeque<(u64, Command)>,
    /// Since when its first command blocks, as a serial number.
    blocked: Option<u64>,
    /// It is told of what changes.
    tracks: bool,
    /// What it reads behind CLIENT CACHING is tracked, and its changes are told to this one.
    redirect: Option<u64>,
    /// What it reads next is tracked.
    caching: bool,
    /// The name of the last command that was carried out, with its subcommand, as CLIENT LIST has it.
    last: String,
    /// When that was, in milliseconds.
    last_ms: u64,
    /// The other end has gone. What was read is carried out all the same.
    ended: bool,
}

/// What became of one command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) command: Command,
    pub(crate) reply: Bytes,
    /// Connections that are no more, with all that was read from them.
    pub(crate) killed: Vec<u64>,
    pub(crate) effect: Effect,
    /// The key that was read and is tracked from now on, after what this command has found changed.
    pub(crate) tracked: Option<Bytes>,
}

#[derive(Debug)]
pub(crate) struct RedisServer {
    pub(crate) data: Data,
    clients: BTreeMap<u64, Client>,
    /// Who has read which keys and is told of their next changes.
    tracked: BTreeMap<Bytes, BTreeSet<u64>>,
    /// Users of incarnations, with their passwords.
    users: BTreeMap<Bytes, Bytes>,
    clients_made: u64,
    blocked_made: u64,
    run: u64,
    history: u64,
    pub(crate) is_primary: bool,
    /// The code of its library of functions, and what a file has that its next process may read.
    library: Option<Bytes>,
    saved: Option<Bytes>,
    /// It answers BUSY to all but a few commands.
    pub(crate) is_busy: bool,
    refused: RefusedFences,
}

impl Server for RedisServer {
    fn accept(&mut self, _from: SocketAddr) -> u64 {
        self.clients_made += 1;
        let client = Client {
            user: Bytes::from_static(DEFAULT),
            resp3: false,
            input: VecDeque::new(),
            blocked: None,
            tracks: false,
            redirect: None,
            caching: false,
            last: "NULL".to_owned(),
            last_ms: 0,
            ended: false,
        };
        self.clients.insert(self.clients_made, client);
        self.clients_made
    }

    fn read(&mut self, now: u64, client: u64, received: &mut BytesMut) {
        for command in commands(received) {
            if let Some(client) = self.clients.get_mut(&client) {
                client.input.push_back((now, command));
            }
        }
    }

    /// A command that blocks is not carried out any more.
    fn end(&mut self, client: u64) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.ended = true;
            if found.input.is_empty() || found.blocked.is_some() {
                self.clients.remove(&client);
            }
        }
    }

    fn knows(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    fn has_work(&self, client: u64) -> bool {
        self.next(client).is_some()
    }

    fn execute(&mut self, now_ms: u64, client: u64) -> Option<Outcome> {
        let found = self.clients.get(&client)?;
        let command = found.input.front()?.1.clone();
        let Some(outcome) = self.carry_out(now_ms, client, &command) else {
            self.blocked_made += 1;
            let serial = self.blocked_made;
            let found = self.clients.get_mut(&client)?;
            found.blocked.get_or_insert(serial);
            if found.ended {
                self.clients.remove(&client);
            }
            return None;
        };
        // A command may end its own connection.
        if let Some(found) = self.clients.get_mut(&client) {
            found.input.pop_front();
            found.blocked = None;
            (found.last, found.last_ms) = (full_name(&command), now_ms);
            if found.ended && found.input.is_empty() {
                self.clients.remove(&client);
            }
        }
        Some(outcome)
    }
}

fn full_name(command: &Command) -> String {
    let name = resolve(command).map(|spec| spec.name.to_owned());
    name.unwrap_or_else(|_| String::from_utf8_lossy(command.name()).into_owned())
}

/// Takes whole commands off what has come over a connection.
pub(crate) fn commands(received: &mut BytesMut) -> Vec<Command> {
    let mut bytes = received.split().freeze();
    let mut commands = Vec::new();
    while let Ok(Some(command)) = take_command(&mut bytes, &RespLimits::default()) {
        commands.push(command);
    }
    received.extend_from_slice(&bytes);
    commands
}

impl RedisServer {
    pub(crate) fn new(refused: RefusedFences) -> RedisServer {
        RedisServer {
            data: Data::default(),
            clients: BTreeMap::new(),
            tracked: BTreeMap::new(),
            users: BTreeMap::new(),
            clients_made: 0,
            blocked_made: 0,
            run: 1,
            history: 1,
            is_primary: true,
            library: None,
            saved: None,
            is_busy: false,
            refused,
        }
    }

    /// Another process at the same address: no connection is left. One that has read its data from a file, which may lack the
    /// last writes, goes on with the history; users are left if somebody has had them saved.
    pub(crate) fn restart(&mut self, keeps_history: bool, keeps_users: bool) -> Vec<u64> {
        self.run += 1;
        self.history += u64::from(!keeps_history);
        if !keeps_users {
            self.users.clear();
        }
        self.library = self.saved.clone().filter(|_| keeps_history);
        (self.is_primary, self.is_busy) = (true, false);
        self.close_all()
    }

    /// It writes its data to the file that its next process reads.
    pub(crate) fn save(&mut self) {
        self.saved.clone_from(&self.library);
    }

    /// It closes all its connections, as sentinels have it do that make a replica of it.
    pub(crate) fn close_all(&mut self) -> Vec<u64> {
        self.tracked.clear();
        std::mem::take(&mut self.clients).into_keys().collect()
    }

    /// It follows another server; or is the primary again, of another history.
    pub(crate) fn set_primary(&mut self, is_primary: bool) {
        self.history += u64::from(is_primary && !self.is_primary);
        self.is_primary = is_primary;
    }

    /// Somebody takes a user away who is not a shim.
    pub(crate) fn lose_users(&mut self) -> Vec<u64> {
        let users: Vec<Bytes> = self.users.keys().cloned().collect();
        self.delete_users(&users)
    }

    pub(crate) fn has_no_users(&self) -> bool {
        self.users.is_empty()
    }

    /// Connections with a command that blocks, those first that came first.
    pub(crate) fn blocked(&self) -> Vec<u64> {
        let blocked = self.clients.iter().filter_map(|(id, client)| Some((client.blocked?, *id)));
        let mut blocked: Vec<(u64, u64)> = blocked.collect();
        blocked.sort_unstable();
        blocked.into_iter().map(|(_, id)| id).collect()
    }

    /// The next command of a connection that does not block, and when it came.
    pub(crate) fn next(&self, client: u64) -> Option<&(u64, Command)> {
        self.clients.get(&client).filter(|client| client.blocked.is_none())?.input.front()
    }

    /// Whether a connection is told of what changes.
    pub(crate) fn tracks(&self, client: u64) -> bool {
        self.clients.get(&client).is_some_and(|client| client.tracks)
    }

    /// Whom to tell of a change of a key by `writer`, or of all keys: who has read it since it changed last.
    pub(crate) fn take_readers(&mut self, key: Option<&[u8]>, writer: Option<u64>) -> Vec<u64> {
        let readers = match key {
            Some(key) => self.tracked.remove(key).unwrap_or_default(),
            None => {
                self.tracked.clear();
                self.clients
                    .iter()
                    .filter(|(_, client)| client.redirect.is_some())
                    .map(|(id, _)| *id)
                    .collect()
            }
        };
        let told =
            |reader: u64| self.clients.get(&reader)?.redirect.filter(|to| self.clients.contains_key(to));
        readers
            .into_iter()
            .filter(|reader| key.is_none() || Some(*reader) != writer)
            .filter_map(told)
            .collect()
    }

    /// The key that a command reads, if the command before it said that its read is tracked.
    fn read_key(&mut self, client: u64, command: &Command, effect: Effect) -> Option<Bytes> {
        let caching = self.clients.get_mut(&client).is_some_and(|found| std::mem::take(&mut found.caching));
        (caching && effect == Effect::Read && command.len() > 1).then(|| command.arg_bytes(1))
    }

    /// The next change of a key is told of because this connection has read it.
    pub(crate) fn track(&mut self, client: u64, key: Bytes) {
        self.tracked.entry(key).or_default().insert(client);
    }

    /// Carries a command out; `None` where it blocks.
    fn carry_out(&mut self, now_ms: u64, client: u64, command: &Command) -> Option<Outcome> {
        let name = command.name().to_ascii_uppercase();
        let sub = command.get(1).unwrap_or_default().to_ascii_uppercase();
        let (mut out, mut killed, mut effect, mut tracked) = (Vec::new(), Vec::new(), Effect::Read, None);
        match (name.as_slice(), sub.as_slice()) {
            _ if self.refused.covers(&name, &sub) => reply::error(b"NOPERM not to this user", &mut out),
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
                killed = self.delete_users(&users);
                reply::integer(killed.len() as i64, &mut out);
            }
            (b"CLIENT", b"LIST") => self.client_list(now_ms, &mut out),
            (b"CLIENT", b"KILL") => {
                let id = std::str::from_utf8(command.arg(3)).ok().and_then(|id| id.parse::<u64>().ok());
                killed.extend(id.filter(|id| self.clients.remove(id).is_some()));
                reply::integer(killed.len() as i64, &mut out);
            }
            (b"INFO", part) => self.info(now_ms, part, &mut out),
            _ if self.is_busy => reply::error(b"BUSY Redis is busy running a script.", &mut out),
            (b"CLIENT", b"TRACKING") if command.get(3) == Some(b"REDIRECT") => {
                self.redirect(client, command, &mut out);
            }
            (b"CLIENT", b"TRACKING") => {
                if let Some(found) = self.clients.get_mut(&client) {
                    found.tracks = command.arg(2) == b"ON";
                }
                reply::simple(b"OK", &mut out);
            }
            (b"CLIENT", b"CACHING") => self.cache_next(client, &mut out),
            (b"CONFIG", _) => reply::error(b"NOPERM this user has no permissions for CONFIG", &mut out),
            (b"PING", _) => reply::simple(b"PONG", &mut out),
            _ if !self.is_primary => {
                reply::error(b"READONLY You can't write against a read only replica.", &mut out);
            }
            (b"FUNCTION", b"LIST") => {
                reply::array_header(self.library.iter().len(), &mut out);
                if let Some(code) = &self.library {
                    reply::array_header(2, &mut out);
                    reply::bulk(b"library_code", &mut out);
                    reply::bulk(code, &mut out);
                }
            }
            (b"FUNCTION", _) => {
                self.library = Some(command.arg_bytes(3));
                reply::bulk(b"distcache", &mut out);
            }
            _ => {
                let resp3 = self.clients.get(&client).is_some_and(|client| client.resp3);
                let (reply, done) = self.data.execute(now_ms, command, resp3)?;
                effect = done;
                tracked = self.read_key(client, command, effect);
                out.extend_from_slice(&reply);
            }
        }
        Some(Outcome { command: command.clone(), reply: out.into(), killed, effect, tracked })
    }

    /// What a connection reads behind CLIENT CACHING is reported to another one when it changes.
    fn redirect(&mut self, client: u64, command: &Command, out: &mut Vec<u8>) {
        let to = std::str::from_utf8(command.arg(4)).ok().and_then(|id| id.parse::<u64>().ok());
        match (to.filter(|to| self.clients.contains_key(to)), self.clients.get_mut(&client)) {
            (Some(to), Some(found)) => {
                found.redirect = Some(to);
                reply::simple(b"OK", out);
            }
            _ => reply::error(b"ERR The client ID you want redirect to does not exist", out),
        }
    }

    fn cache_next(&mut self, client: u64, out: &mut Vec<u8>) {
        match self.clients.get_mut(&client) {
            Some(found) if found.redirect.is_some() => {
                found.caching = true;
                reply::simple(b"OK", out);
            }
            _ => reply::error(b"ERR CLIENT CACHING can be called only in tracking mode", out),
        }
    }

    fn info(&self, now_ms: u64, part: &[u8], out: &mut Vec<u8>) {
        let role = if self.is_primary { "master" } else { "slave" };
        let text = match part {
            b"SERVER" => format!(
                "redis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:{:040x}\r\nserver_time_usec:{}\r\n",
                self.run,
                now_ms * 1000
            ),
            b"KEYSPACE" => "# Keyspace\r\n".to_owned(),
            b"CLIENTS" => format!("connected_clients:{}\r\n", self.clients.len()),
            _ => format!("role:{role}\r\nmaster_replid:{:040x}\r\n", self.history),
        };
        reply::bulk(text.as_bytes(), out);
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
        let resp3 = args.get(1) == Some(&&b"3"[..]);
        if let Some(found) = self.clients.get_mut(&client) {
            found.resp3 = resp3;
        }
        reply::map_header(2, resp3, out);
        reply::bulk(b"proto", out);
        reply::integer(if resp3 { 3 } else { 2 }, out);
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

    fn client_list(&self, now_ms: u64, out: &mut Vec<u8>) {
        let mut text = String::new();
        for (id, client) in &self.clients {
            let user = String::from_utf8_lossy(&client.user);
            let idle = now_ms.saturating_sub(client.last_ms) / 1000;
            text.push_str(&format!("id={id} name= idle={idle} cmd={} user={user}\n", client.last));
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
