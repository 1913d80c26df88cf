//! One key as its clients may imagine it: a sequential text, hash or list. Not how DistCache or its storage keeps it.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use wire::resp::reply;

/// What an operation does to its key. Commands on several keys are one operation on each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Get,
    Length,
    Set(Vec<u8>),
    /// Milliseconds to live.
    SetFor(Vec<u8>, u64),
    Expire(u64),
    Increment(i64),
    Append(Vec<u8>),
    /// memcached's: sets only what is absent.
    Add(Vec<u8>),
    /// memcached's append, which does nothing to what is absent.
    Extend(Vec<u8>),
    /// Sets it to the second if it is the first, and tells whether it was.
    Swap(Option<Vec<u8>>, Vec<u8>),
    Delete,
    /// FLUSHALL.
    Clear,
    HashSet(Vec<u8>, Vec<u8>),
    HashGet(Vec<u8>),
    HashLength,
    HashGetAll,
    HashDelete(Vec<u8>),
    /// LPUSH.
    Push(Vec<u8>),
    /// LPOP.
    PopFirst,
    /// BLPOP, with the key's name for its reply.
    Pop(Vec<u8>),
    ListLength,
    /// LRANGE 0 -1.
    ListAll,
    /// Storage lost its newest writes: the key is what it was.
    Restore(Box<ModelState>),
}

impl What {
    pub fn reads(&self) -> bool {
        matches!(
            self,
            What::Get
                | What::Length
                | What::HashGet(_)
                | What::HashLength
                | What::HashGetAll
                | What::ListLength
                | What::ListAll
        )
    }
}

/// The virtual times between which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelWindow {
    pub earliest: u64,
    pub latest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ModelState {
    Text { value: Option<Vec<u8>>, expires: Option<ModelWindow> },
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
}

/// A state that may follow, and what the client is told.
pub type ModelOutcome = (ModelState, Vec<u8>);

/// What a command of memcached is told that did nothing.
pub const REFUSED: &[u8] = b"no";
pub(crate) const ABSENT: ModelState = ModelState::Text { value: None, expires: None };

impl ModelState {
    pub fn text() -> ModelState {
        ABSENT
    }

    pub fn expires(&self) -> Option<ModelWindow> {
        match self {
            ModelState::Text { expires, .. } => *expires,
            _ => None,
        }
    }

    /// What a read is told that changes nothing and happens within `when`; `None` if the key has expired by then.
    pub fn read(&self, what: &What, when: ModelWindow) -> Option<Vec<u8>> {
        if self.expires().is_some_and(|expires| when.earliest > expires.latest) {
            return None;
        }
        let mut out = Vec::new();
        match self {
            ModelState::Text { value, .. } => read_text(value.as_deref(), what, &mut out),
            ModelState::Hash(hash) => read_hash(hash, what, &mut out),
            ModelState::List(list) => read_list(list, what, &mut out),
        }
        Some(out)
    }

    /// Every outcome of an operation that happens within `when`: two where the key may or may not have expired,
    /// none where the operation would block.
    pub fn outcomes(&self, what: &What, when: ModelWindow) -> SmallVec<[ModelOutcome; 2]> {
        self.alternatives(what, when).into_iter().flatten().collect()
    }

    /// What comes of an operation if the key has not expired, and if it has.
    pub(crate) fn alternatives(&self, what: &What, when: ModelWindow) -> [Option<ModelOutcome>; 2] {
        let expires = self.expires();
        let lives = expires.is_none_or(|expires| when.earliest <= expires.latest);
        let has_expired = expires.is_some_and(|expires| when.latest >= expires.earliest);
        [
            if lives { self.clone().apply(what, when) } else { None },
            if has_expired { ABSENT.apply(what, when) } else { None },
        ]
    }

    fn apply(self, what: &What, when: ModelWindow) -> Option<ModelOutcome> {
        if what.reads() {
            let everything = ModelWindow { earliest: 0, latest: u64::MAX };
            let told = self.read(what, everything)?;
            return Some((self, told));
        }
        if let What::Restore(state) = what {
            return Some(((**state).clone(), Vec::new()));
        }
        match self {
            ModelState::Text { value, expires } => Some(apply_text(value, expires, what, when)),
            ModelState::Hash(hash) => Some(apply_hash(hash, what)),
            ModelState::List(list) => apply_list(list, what),
        }
    }
}

fn read_text(value: Option<&[u8]>, what: &What, out: &mut Vec<u8>) {
    match (what, value) {
        (What::Length, value) => reply::integer(value.map_or(0, |value| value.len() as i64), out),
        (_, Some(value)) => reply::bulk(value, out),
        (_, None) => reply::null(false, out),
    }
}

/// Storage's clock may be wrong by half a percent, and it counts whole milliseconds.
fn expiry(when: ModelWindow, milliseconds: u64) -> ModelWindow {
    let earliest = (when.earliest + milliseconds * 990).saturating_sub(2000);
    let latest = when.latest.saturating_add(milliseconds * 1010 + 2000);
    ModelWindow { earliest, latest }
}

fn apply_text(
    value: Option<Vec<u8>>,
    expires: Option<ModelWindow>,
    what: &What,
    when: ModelWindow,
) -> ModelOutcome {
    let mut out = Vec::new();
    let state = |value: Option<Vec<u8>>| ModelState::Text { value, expires: None };
    let state = match what {
        What::Set(value) => {
            reply::simple(b"OK", &mut out);
            state(Some(value.clone()))
        }
        What::SetFor(value, milliseconds) => {
            reply::simple(b"OK", &mut out);
            ModelState::Text { value: Some(value.clone()), expires: Some(expiry(when, *milliseconds)) }
        }
        What::Expire(milliseconds) => {
            reply::integer(i64::from(value.is_some()), &mut out);
            let expires = value.is_some().then(|| expiry(when, *milliseconds));
            ModelState::Text { value, expires }
        }
        What::Increment(by) => {
            let text = value.as_deref().unwrap_or(b"0");
            let number: i64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            reply::integer(number + by, &mut out);
            ModelState::Text { value: Some((number + by).to_string().into_bytes()), expires }
        }
        What::Append(more) => {
            let mut text = value.unwrap_or_default();
            text.extend_from_slice(more);
            reply::integer(text.len() as i64, &mut out);
            ModelState::Text { value: Some(text), expires }
        }
        What::Add(new) => {
            reply::simple(if value.is_none() { b"OK" } else { REFUSED }, &mut out);
            ModelState::Text { value: value.or_else(|| Some(new.clone())), expires }
        }
        What::Extend(more) => {
            reply::simple(if value.is_some() { b"OK" } else { REFUSED }, &mut out);
            let value = value.map(|text| [text, more.clone()].concat());
            ModelState::Text { value, expires }
        }
        What::Swap(expected, new) if value == *expected => {
            reply::integer(1, &mut out);
            state(Some(new.clone()))
        }
        What::Swap(..) => {
            reply::integer(0, &mut out);
            ModelState::Text { value, expires }
        }
        What::Delete => {
            reply::integer(i64::from(value.is_some()), &mut out);
            ABSENT
        }
        What::Clear => {
            reply::simple(b"OK", &mut out);
            ABSENT
        }
        other => panic!("{other:?} on a text"),
    };
    (state, out)
}

fn read_hash(hash: &BTreeMap<Vec<u8>, Vec<u8>>, what: &What, out: &mut Vec<u8>) {
    match what {
        What::HashGet(field) => match hash.get(field) {
            Some(value) => reply::bulk(value, out),
            None => reply::null(false, out),
        },
        What::HashLength => reply::integer(hash.len() as i64, out),
        _ => {
            reply::array_header(hash.len() * 2, out);
            for (field, value) in hash {
                reply::bulk(field, out);
                reply::bulk(value, out);
            }
        }
    }
}

fn apply_hash(mut hash: BTreeMap<Vec<u8>, Vec<u8>>, what: &What) -> ModelOutcome {
    let mut out = Vec::new();
    match what {
        What::HashSet(field, value) => {
            let before = hash.insert(field.clone(), value.clone());
            reply::integer(i64::from(before.is_none()), &mut out);
        }
        What::HashDelete(field) => {
            reply::integer(i64::from(hash.remove(field).is_some()), &mut out);
        }
        What::Delete => {
            reply::integer(i64::from(!hash.is_empty()), &mut out);
            hash.clear();
        }
        What::Clear => {
            reply::simple(b"OK", &mut out);
            hash.clear();
        }
        other => panic!("{other:?} on a hash"),
    }
    (ModelState::Hash(hash), out)
}

fn read_list(list: &VecDeque<Vec<u8>>, what: &What, out: &mut Vec<u8>) {
    match what {
        What::ListAll => {
            reply::array_header(list.len(), out);
            list.iter().for_each(|value| reply::bulk(value, out));
        }
        _ => reply::integer(list.len() as i64, out),
    }
}

fn apply_list(mut list: VecDeque<Vec<u8>>, what: &What) -> Option<ModelOutcome> {
    let mut out = Vec::new();
    match what {
        What::Push(value) => {
            list.push_front(value.clone());
            reply::integer(list.len() as i64, &mut out);
        }
        What::PopFirst => match list.pop_front() {
            Some(value) => reply::bulk(&value, &mut out),
            None => reply::null(false, &mut out),
        },
        What::Pop(key) => {
            let value = list.pop_front()?;
            reply::array_header(2, &mut out);
            reply::bulk(key, &mut out);
            reply::bulk(&value, &mut out);
        }
        What::Delete => {
            reply::integer(i64::from(!list.is_empty()), &mut out);
            list.clear();
        }
        What::Clear => {
            reply::simple(b"OK", &mut out);
            list.clear();
        }
        other => panic!("{other:?} on a list"),
    }
    Some((ModelState::List(list), out))
}
