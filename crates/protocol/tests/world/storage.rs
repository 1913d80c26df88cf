//! A storage server small enough to read: strings, lists, hashes, expiry. Not Redis, but right about what it does.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use wire::resp::transaction::MULTI;
use wire::resp::{Command, reply};

#[derive(Clone, Debug)]
enum Datum {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// Keys to data and the time in milliseconds at which they expire.
#[derive(Debug, Default)]
pub(super) struct MiniStorage {
    data: BTreeMap<Vec<u8>, (Datum, Option<u64>)>,
    /// By watching connection: the keys and what they were.
    watched: BTreeMap<u64, Vec<(Vec<u8>, String)>>,
    /// What was there when changes were reported last.
    reported: BTreeMap<Vec<u8>, String>,
    flushed: bool,
    /// The policy by which it says that it evicts.
    pub(super) eviction: Option<String>,
    /// The next CLIENT CACHING is not carried out.
    pub(crate) is_busy: bool,
    /// The text of CLIENT LIST.
    pub(super) clients: String,
}

/// The push that names what has changed.
pub(super) fn push(changes: Option<&[Vec<u8>]>) -> Bytes {
    let mut out = Vec::new();
    reply::push_header(2, true, &mut out);
    reply::bulk(b"invalidate", &mut out);
    match changes {
        None => reply::null(true, &mut out),
        Some(keys) => {
            reply::array_header(keys.len(), &mut out);
            keys.iter().for_each(|key| reply::bulk(key, &mut out));
        }
    }
    out.into()
}

impl MiniStorage {
    /// What has changed since it was asked last; the inner `None` stands for all keys.
    pub(super) fn changes(&mut self) -> Option<Option<Vec<Vec<u8>>>> {
        let state = self.data.iter().map(|(key, datum)| (key.clone(), format!("{datum:?}")));
        let state: BTreeMap<_, _> = state.collect();
        let before = std::mem::replace(&mut self.reported, state);
        let mut keys: Vec<Vec<u8>> = before.keys().chain(self.reported.keys()).cloned().collect();
        keys.sort();
        keys.dedup();
        keys.retain(|key| before.get(key) != self.reported.get(key));
        let flushed = std::mem::take(&mut self.flushed);
        if flushed { Some(None) } else { Some(Some(keys)).filter(|keys| keys != &Some(Vec::new())) }
    }

    /// Carries a batch out, from MULTI to EXEC as a transaction. `None`: it blocks.
    pub(super) fn execute_all(&mut self, now_ms: u64, frames: &[Bytes]) -> Option<Vec<Bytes>> {
        let parse = |frame: &Bytes| Command::parse(frame.clone()).expect("only whole commands reach storage");
        let (queued, exec) = match frames {
            [multi, queued @ .., exec] if multi == MULTI => (queued, exec),
            _ => return frames.iter().map(|frame| self.execute(now_ms, &parse(frame))).collect(),
        };
        assert_eq!(parse(exec).name(), b"EXEC", "a transaction must not stay open");
        let mut replies = vec![Bytes::from_static(reply::OK)];
        let mut done = Vec::new();
        reply::array_header(queued.len(), &mut done);
        for frame in queued {
            replies.push(Bytes::from_static(b"+QUEUED\r\n"));
            done.extend_from_slice(
                &self.execute(now_ms, &parse(frame)).unwrap_or(Bytes::from_static(b"*-1\r\n")),
            );
        }
        replies.push(done.into());
        Some(replies)
    }

    /// Carries out what came on a watching connection.
    pub(super) fn execute_watching(&mut self, now_ms: u64, number: u64, frames: &[Bytes]) -> Vec<Bytes> {
        let first = Command::parse(frames[0].clone()).expect("only whole commands reach storage");
        if first.name() == b"WATCH" {
            let state = (first.arg(1).to_vec(), format!("{:?}", self.data.get(first.arg(1))));
            self.watched.entry(number).or_default().push(state);
            return vec![Bytes::from_static(reply::OK)];
        }
        let watched = self.watched.remove(&number).expect("an EXEC comes on the connection that has watched");
        if watched.iter().all(|(key, state)| *state == format!("{:?}", self.data.get(key))) {
            return self.execute_all(now_ms, frames).expect("a transaction does not block");
        }
        let mut replies = vec![Bytes::from_static(b"+QUEUED\r\n"); frames.len()];
        (replies[0], replies[frames.len() - 1]) =
            (Bytes::from_static(reply::OK), Bytes::from_static(b"*-1\r\n"));
        replies
    }

    pub(super) fn release(&mut self, number: u64) {
        self.watched.remove(&number);
    }

    fn information(&self, section: &[u8]) -> String {
        match section {
            b"stats" => "tracking_total_keys:1".to_owned(),
            b"memory" => self
                .eviction
                .iter()
                .map(|policy| format!("maxmemory:1\r\nmaxmemory_policy:{policy}"))
                .collect(),
            b"clients" => "connected_clients:1".to_owned(),
            _ => String::new(),
        }
    }

    fn client(&mut self, command: &Command, out: &mut Vec<u8>) {
        match command.arg(1) {
            b"LIST" => reply::bulk(self.clients.as_bytes(), out),
            _ if std::mem::take(&mut self.is_busy) => {
                reply::error(b"BUSY Redis is busy running a script.", out);
            }
            _ => reply::simple(b"OK", out),
        }
    }

    /// Carries a command out. `None`: it blocks.
    pub(super) fn execute(&mut self, now_ms: u64, command: &Command) -> Option<Bytes> {
        self.data.retain(|_, (_, end)| end.is_none_or(|end| now_ms < end));
        let mut out = Vec::new();
        let arg = |index: usize| command.arg(index).to_vec();
        match command.name().to_ascii_uppercase().as_slice() {
            b"PING" => reply::simple(b"PONG", &mut out),
            b"CLIENT" => self.client(command, &mut out),
            b"INFO" => reply::bulk(self.information(command.arg(1)).as_bytes(), &mut out),
            b"CONFIG" => reply::error(b"NOPERM no CONFIG here", &mut out),
            b"GET" => match self.data.get(command.arg(1)) {
                Some((Datum::Text(text), _)) => reply::bulk(text, &mut out),
                Some(_) => reply::error(b"WRONGTYPE not a string", &mut out),
                None => reply::null(false, &mut out),
            },
            b"SET" => {
                let end = (command.len() > 3).then(|| now_ms + number(command.arg(4)) as u64);
                self.data.insert(arg(1), (Datum::Text(arg(2)), end));
                reply::simple(b"OK", &mut out);
            }
            b"MSET" => {
                for index in (1..command.len()).step_by(2) {
                    self.data.insert(arg(index), (Datum::Text(arg(index + 1)), None));
                }
                reply::simple(b"OK", &mut out);
            }
            b"INCR" => {
                let value = match self.data.get(command.arg(1)) {
                    Some((Datum::Text(text), _)) => number(text) + 1,
                    _ => 1,
                };
                self.data.insert(arg(1), (Datum::Text(value.to_string().into_bytes()), None));
                reply::integer(value, &mut out);
            }
            b"APPEND" => {
                let mut text = match self.data.remove(command.arg(1)) {
                    Some((Datum::Text(text), _)) => text,
                    _ => Vec::new(),
                };
                text.extend_from_slice(command.arg(2));
                reply::integer(text.len() as i64, &mut out);
                self.data.insert(arg(1), (Datum::Text(text), None));
            }
            b"STRLEN" => match self.data.get(command.arg(1)) {
                Some((Datum::Text(text), _)) => reply::integer(text.len() as i64, &mut out),
                _ => reply::integer(0, &mut out),
            },
            b"DEL" => reply::integer(i64::from(self.data.remove(command.arg(1)).is_some()), &mut out),
            b"TOUCH" => reply::integer(i64::from(self.data.contains_key(command.arg(1))), &mut out),
            b"PEXPIRE" => {
                let found = self.data.get_mut(command.arg(1));
                reply::integer(i64::from(found.is_some()), &mut out);
                if let Some((_, end)) = found {
                    *end = Some(now_ms + number(command.arg(2)) as u64);
                }
            }
            b"PTTL" => reply::integer(
                match self.data.get(command.arg(1)) {
                    None => -2,
                    Some((_, None)) => -1,
                    Some((_, Some(end))) => (end - now_ms) as i64,
                },
                &mut out,
            ),
            _ => return self.execute_other(command),
        }
        Some(Bytes::from(out))
    }

    /// Lists, hashes and the whole.
    fn execute_other(&mut self, command: &Command) -> Option<Bytes> {
        let mut out = Vec::new();
        let arg = |index: usize| command.arg(index).to_vec();
        match command.name().to_ascii_uppercase().as_slice() {
            b"FLUSHALL" => {
                self.data.clear();
                self.flushed = true;
                reply::simple(b"OK", &mut out);
            }
            b"HSET" => {
                let slot = self.data.entry(arg(1)).or_insert((Datum::Hash(BTreeMap::new()), None));
                let Datum::Hash(hash) = &mut slot.0 else { panic!("HSET on another type") };
                hash.insert(arg(2), arg(3));
                reply::integer(1, &mut out);
            }
            b"HGET" | b"HLEN" | b"HGETALL" => self.hash(command, &mut out),
            b"LPUSH" => {
                let slot = self.data.entry(arg(1)).or_insert((Datum::List(VecDeque::new()), None));
                let Datum::List(list) = &mut slot.0 else { panic!("LPUSH on another type") };
                list.push_front(arg(2));
                reply::integer(list.len() as i64, &mut out);
            }
            b"LLEN" => {
                reply::integer(self.list(command.arg(1)).map_or(0, |list| list.len() as i64), &mut out)
            }
            b"BLPOP" => {
                let popped = self.list(command.arg(1))?.pop_front()?;
                reply::array_header(2, &mut out);
                reply::bulk(command.arg(1), &mut out);
                reply::bulk(&popped, &mut out);
            }
            other => panic!("the mini storage does not know {}", String::from_utf8_lossy(other)),
        }
        Some(Bytes::from(out))
    }

    fn list(&mut self, key: &[u8]) -> Option<&mut VecDeque<Vec<u8>>> {
        match self.data.get_mut(key) {
            Some((Datum::List(list), _)) => Some(list),
            _ => None,
        }
    }

    fn hash(&self, command: &Command, out: &mut Vec<u8>) {
        let empty = BTreeMap::new();
        let hash = match self.data.get(command.arg(1)) {
            Some((Datum::Hash(hash), _)) => hash,
            _ => &empty,
        };
        match command.name() {
            b"HLEN" => reply::integer(hash.len() as i64, out),
            b"HGET" => match hash.get(command.arg(2)) {
                Some(value) => reply::bulk(value, out),
                None => reply::null(false, out),
            },
            _ => {
                reply::array_header(hash.len() * 2, out);
                for (field, value) in hash {
                    reply::bulk(field, out);
                    reply::bulk(value, out);
                }
            }
        }
    }
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
