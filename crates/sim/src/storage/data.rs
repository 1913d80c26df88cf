//! The data of one storage server: strings, hashes, lists and expiry as Redis has them. Not who may change it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use linearize::{ModelState, ModelWindow};
use wire::resp::{Command, reply};

#[derive(Clone, Debug, PartialEq)]
enum Datum {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    datum: Datum,
    expires_ms: Option<u64>,
}

/// Whether a command can have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Wrote,
    WroteAll,
}

/// What has changed, whoever did it and whether anybody is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) all: bool,
    pub(crate) keys: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    stored: BTreeMap<Vec<u8>, Stored>,
    changes: Changes,
}

impl Data {
    /// Carries a command out at `now_ms` of the server's clock. `None`: it blocks.
    pub(crate) fn execute(&mut self, now_ms: u64, command: &Command, resp3: bool) -> Option<(Bytes, Effect)> {
        let mut out = Vec::new();
        if command.len() > 1 {
            self.expire(now_ms, command.arg(1));
        }
        let effect = match command.name() {
            b"PING" => {
                reply::simple(b"PONG", &mut out);
                Effect::Read
            }
            b"GET" | b"STRLEN" | b"EXISTS" | b"TOUCH" | b"PTTL" => {
                self.read(now_ms, command, resp3, &mut out)
            }
            b"MGET" => self.read_several(now_ms, command, resp3, &mut out),
            b"HGET" | b"HLEN" | b"HGETALL" => self.read_hash(command, resp3, &mut out),
            b"LLEN" => {
                reply::integer(self.list(command.arg(1)).map_or(0, |list| list.len() as i64), &mut out);
                Effect::Read
            }
            b"BLPOP" => {
                let popped = self.pop(command.arg(1))?;
                reply::array_header(2, &mut out);
                reply::bulk(command.arg(1), &mut out);
                reply::bulk(&popped, &mut out);
                Effect::Wrote
            }
            b"FLUSHALL" => {
                self.stored.clear();
                self.changes.all = true;
                reply::simple(b"OK", &mut out);
                Effect::WroteAll
            }
            b"HSET" | b"LPUSH" => self.add(command, &mut out),
            _ => self.write(now_ms, command, &mut out),
        };
        // A key that was not there has neither gone nor got a time to live.
        let in_vain = matches!(command.name(), b"DEL" | b"EXPIRE" | b"PEXPIRE") && out == b":0\r\n";
        if effect == Effect::Wrote && !in_vain {
            let last = if command.name() == b"MSET" { command.len() } else { 2 };
            let keys = (1..last).step_by(2).map(|index| command.arg(index).to_vec());
            self.changes.keys.extend(keys);
        }
        Some((Bytes::from(out), effect))
    }

    /// What has changed since it was asked last.
    pub(crate) fn take_changes(&mut self) -> Option<Changes> {
        let changes = std::mem::take(&mut self.changes);
        (changes.all || !changes.keys.is_empty()).then_some(changes)
    }

    /// Becomes what it was, less what has expired since; says which keys differ.
    pub(crate) fn restore(&mut self, now_ms: u64, mut earlier: Data) -> Changes {
        earlier.sweep(now_ms);
        let now = std::mem::replace(&mut self.stored, earlier.stored);
        let differs = |key: &&Vec<u8>| now.get(*key) != self.stored.get(*key);
        let mut keys: Vec<Vec<u8>> = now.keys().chain(self.stored.keys()).filter(differs).cloned().collect();
        keys.sort();
        keys.dedup();
        Changes { all: false, keys }
    }

    /// A key as a checker imagines it: `expires` says when it will be gone. `None`: there is none.
    pub(crate) fn imagined(&self, key: &[u8], expires: Option<ModelWindow>) -> Option<ModelState> {
        Some(match self.stored.get(key)?.datum.clone() {
            Datum::Text(text) => ModelState::Text { value: Some(text), expires },
            Datum::List(list) => ModelState::List(list),
            Datum::Hash(hash) => ModelState::Hash(hash),
        })
    }

    /// When a key will be gone, in milliseconds of the server's clock.
    pub(crate) fn expires_ms(&self, key: &[u8]) -> Option<u64> {
        self.stored.get(key)?.expires_ms
    }

    fn expire(&mut self, now_ms: u64, key: &[u8]) {
        let gone = |stored: &Stored| stored.expires_ms.is_some_and(|end| now_ms >= end);
        if self.stored.get(key).is_some_and(gone) {
            self.stored.remove(key);
            self.changes.keys.push(key.to_vec());
        }
    }

    /// Removes all that has expired.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        let gone: Vec<Vec<u8>> = self.stored.keys().cloned().collect();
        gone.iter().for_each(|key| self.expire(now_ms, key));
    }

    fn text(&self, key: &[u8]) -> Option<&Vec<u8>> {
        match self.stored.get(key) {
            Some(Stored { datum: Datum::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    fn read(&mut self, now_ms: u64, command: &Command, resp3: bool, out: &mut Vec<u8>) -> Effect {
        let key = command.arg(1);
        match command.name() {
            b"GET" => match self.text(key) {
                Some(text) => reply::bulk(text, out),
                None => reply::null(resp3, out),
            },
            b"STRLEN" => reply::integer(self.text(key).map_or(0, |text| text.len() as i64), out),
            b"PTTL" => reply::integer(
                match self.stored.get(key).map(|stored| stored.expires_ms) {
                    None => -2,
                    Some(None) => -1,
                    Some(Some(end)) => (end - now_ms) as i64,
                },
                out,
            ),
            _ => reply::integer(i64::from(self.stored.contains_key(key)), out),
        }
        Effect::Read
    }

    fn read_several(&mut self, now_ms: u64, command: &Command, resp3: bool, out: &mut Vec<u8>) -> Effect {
        reply::array_header(command.len() - 1, out);
        for key in command.args().skip(1) {
            self.expire(now_ms, key);
            match self.text(key) {
                Some(text) => reply::bulk(text, out),
                None => reply::null(resp3, out),
            }
        }
        Effect::Read
    }

    fn write(&mut self, now_ms: u64, command: &Command, out: &mut Vec<u8>) -> Effect {
        let key = command.arg(1).to_vec();
        match command.name() {
            b"SET" => {
                let expires_ms = (command.len() > 4).then(|| now_ms + natural(command.arg(4)));
                self.set(key, command.arg(2), expires_ms, out);
            }
            b"PSETEX" | b"SETEX" => {
                let unit = if command.name() == b"SETEX" { 1000 } else { 1 };
                let expires_ms = Some(now_ms + natural(command.arg(2)) * unit);
                self.set(key, command.arg(3), expires_ms, out);
            }
            b"MSET" => {
                for index in (1..command.len()).step_by(2) {
                    let datum = Datum::Text(command.arg(index + 1).to_vec());
                    self.stored.insert(command.arg(index).to_vec(), Stored { datum, expires_ms: None });
                }
                reply::simple(b"OK", out);
            }
            b"INCR" | b"INCRBY" => {
                let by = command.get(2).and_then(integer).unwrap_or(1);
                let number = self.text(&key).map_or(Some(0), |text| integer(text)).map(|number| number + by);
                let Some(number) = number else {
                    reply::error(b"ERR value is not an integer or out of range", out);
                    return Effect::Read;
                };
                *self.text_mut(key) = number.to_string().into_bytes();
                reply::integer(number, out);
            }
            b"APPEND" => {
                let text = self.text_mut(key);
                text.extend_from_slice(command.arg(2));
                reply::integer(text.len() as i64, out);
            }
            b"DEL" => reply::integer(i64::from(self.stored.remove(&key).is_some()), out),
            b"EXPIRE" | b"PEXPIRE" => {
                let unit = if command.name() == b"EXPIRE" { 1000 } else { 1 };
                let stored = self.stored.get_mut(&key);
                reply::integer(i64::from(stored.is_some()), out);
                if let Some(stored) = stored {
                    stored.expires_ms = Some(now_ms + natural(command.arg(2)) * unit);
                }
            }
            other => {
                reply::error(format!("ERR unknown command '{}'", other.escape_ascii()).as_bytes(), out);
                return Effect::Read;
            }
        }
        Effect::Wrote
    }

    fn set(&mut self, key: Vec<u8>, value: &[u8], expires_ms: Option<u64>, out: &mut Vec<u8>) {
        self.stored.insert(key, Stored { datum: Datum::Text(value.to_vec()), expires_ms });
        reply::simple(b"OK", out);
    }

    /// The text of a key, made if there is none. Keeps the time to live.
    fn text_mut(&mut self, key: Vec<u8>) -> &mut Vec<u8> {
        let blank = || Stored { datum: Datum::Text(Vec::new()), expires_ms: None };
        let stored = self.stored.entry(key).or_insert_with(blank);
        if !matches!(stored.datum, Datum::Text(_)) {
            stored.datum = Datum::Text(Vec::new());
        }
        let Datum::Text(text) = &mut stored.datum else { unreachable!("it was made a text just now") };
        text
    }

    fn add(&mut self, command: &Command, out: &mut Vec<u8>) -> Effect {
        let is_hash = command.name() == b"HSET";
        let blank = || match is_hash {
            true => Datum::Hash(BTreeMap::new()),
            false => Datum::List(VecDeque::new()),
        };
        let stored = self.stored.entry(command.arg(1).to_vec());
        let stored = stored.or_insert_with(|| Stored { datum: blank(), expires_ms: None });
        match &mut stored.datum {
            Datum::Hash(hash) if is_hash => {
                let before = hash.insert(command.arg(2).to_vec(), command.arg(3).to_vec());
                reply::integer(i64::from(before.is_none()), out);
            }
            Datum::List(list) if !is_hash => {
                list.push_front(command.arg(2).to_vec());
                reply::integer(list.len() as i64, out);
            }
            _ => {
                reply::error(b"WRONGTYPE Operation against a key holding the wrong kind of value", out);
                return Effect::Read;
            }
        }
        Effect::Wrote
    }

    fn list(&self, key: &[u8]) -> Option<&VecDeque<Vec<u8>>> {
        match self.stored.get(key) {
            Some(Stored { datum: Datum::List(list), .. }) => Some(list),
            _ => None,
        }
    }

    fn pop(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let Some(Stored { datum: Datum::List(list), .. }) = self.stored.get_mut(key) else { return None };
        let popped = list.pop_front();
        if list.is_empty() {
            self.stored.remove(key);
        }
        popped
    }

    fn read_hash(&self, command: &Command, resp3: bool, out: &mut Vec<u8>) -> Effect {
        let empty = BTreeMap::new();
        let hash = match self.stored.get(command.arg(1)) {
            Some(Stored { datum: Datum::Hash(hash), .. }) => hash,
            _ => &empty,
        };
        match command.name() {
            b"HLEN" => reply::integer(hash.len() as i64, out),
            b"HGET" => match hash.get(command.arg(2)) {
                Some(value) => reply::bulk(value, out),
                None => reply::null(resp3, out),
            },
            _ => {
                reply::map_header(hash.len(), resp3, out);
                for (field, value) in hash {
                    reply::bulk(field, out);
                    reply::bulk(value, out);
                }
            }
        }
        Effect::Read
    }
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn natural(text: &[u8]) -> u64 {
    integer(text).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(script: &[(u64, &str)]) -> Vec<String> {
        let mut data = Data::default();
        let execute = |(now_ms, line): &(u64, &str)| {
            let words: Vec<&str> = line.split(' ').collect();
            let done = data.execute(*now_ms, &Command::from_args(&words), false);
            done.map_or("blocks".to_owned(), |(reply, _)| {
                String::from_utf8_lossy(&reply).replace("\r\n", " ")
            })
        };
        script.iter().map(execute).collect()
    }

    #[test]
    fn counting_and_appending_keep_the_time_to_live_and_setting_does_not() {
        let script = [(0, "PSETEX n 10 1"), (5, "INCR n"), (6, "APPEND n 0"), (9, "PTTL n"), (10, "GET n")];
        assert_eq!(replies(&script), ["+OK ", ":2 ", ":2 ", ":1 ", "$-1 "]);
        let script =
            [(0, "SET n 1 PX 10"), (5, "SET n 2"), (10, "GET n"), (10, "PEXPIRE n 5"), (15, "INCR n")];
        assert_eq!(replies(&script), ["+OK ", "+OK ", "$1 2 ", ":1 ", ":1 "]);
    }

    #[test]
    fn pops_block_until_there_is_something() {
        let script = [(0, "BLPOP l 0"), (0, "LPUSH l a"), (0, "BLPOP l 0"), (0, "EXISTS l")];
        assert_eq!(replies(&script), ["blocks", ":1 ", "*2 $1 l $1 a ", ":0 "]);
    }
}
