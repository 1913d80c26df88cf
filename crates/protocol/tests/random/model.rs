//! One key as its clients may imagine it: a sequential text, hash or list. Not how DistCache keeps it.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;
use wire::resp::reply;

/// What an operation does to its key. Commands on several keys are one operation on each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Get,
    Set(Vec<u8>),
    /// Milliseconds to live.
    SetPx(Vec<u8>, u64),
    Incr,
    Append(Vec<u8>),
    Delete,
    /// FLUSHALL.
    Clear,
    HashSet(Vec<u8>, Vec<u8>),
    HashGet(Vec<u8>),
    HashLen,
    HashGetAll,
    Push(Vec<u8>),
    /// BLPOP, with the key's name for its reply.
    Pop(Vec<u8>),
    ListLen,
}

impl What {
    pub(crate) fn reads(&self) -> bool {
        matches!(self, What::Get | What::HashGet(_) | What::HashLen | What::HashGetAll | What::ListLen)
    }
}

/// The real times between which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Text { value: Option<Vec<u8>>, expires: Option<Window> },
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
}

/// A state that may follow, and what the client is told.
pub(crate) type Outcome = (State, Vec<u8>);

const ABSENT: State = State::Text { value: None, expires: None };

impl State {
    pub(crate) fn text() -> State {
        ABSENT
    }

    /// Every outcome of an operation that happens within `when`: two where the key may or may not have expired,
    /// none where the operation would block.
    pub(crate) fn outcomes(&self, what: &What, when: Window) -> SmallVec<[Outcome; 2]> {
        let mut outcomes = SmallVec::new();
        let expires = match self {
            State::Text { expires, .. } => *expires,
            _ => None,
        };
        if expires.is_none_or(|expires| when.earliest <= expires.latest) {
            outcomes.extend(self.clone().apply(what, when));
        }
        if expires.is_some_and(|expires| when.latest >= expires.earliest) {
            outcomes.extend(ABSENT.apply(what, when));
        }
        outcomes
    }

    fn apply(self, what: &What, when: Window) -> Option<Outcome> {
        match self {
            State::Text { value, expires } => Some(apply_text(value, expires, what, when)),
            State::Hash(hash) => Some(apply_hash(hash, what)),
            State::List(list) => apply_list(list, what),
        }
    }
}

fn apply_text(value: Option<Vec<u8>>, expires: Option<Window>, what: &What, when: Window) -> Outcome {
    let mut out = Vec::new();
    let state = |value: Option<Vec<u8>>| State::Text { value, expires: None };
    let state = match what {
        What::Get => {
            match &value {
                Some(value) => reply::bulk(value, &mut out),
                None => reply::null(false, &mut out),
            }
            State::Text { value, expires }
        }
        What::Set(value) => {
            reply::simple(b"OK", &mut out);
            state(Some(value.clone()))
        }
        What::SetPx(value, milliseconds) => {
            reply::simple(b"OK", &mut out);
            // Storage's clock may be wrong by 1 %, and it counts whole milliseconds.
            let earliest = (when.earliest + milliseconds * 990).saturating_sub(2000);
            let latest = when.latest.saturating_add(milliseconds * 1010 + 2000);
            State::Text { value: Some(value.clone()), expires: Some(Window { earliest, latest }) }
        }
        What::Incr => {
            let text = value.as_deref().unwrap_or(b"0");
            let number =
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0i64) + 1;
            reply::integer(number, &mut out);
            state(Some(number.to_string().into_bytes()))
        }
        What::Append(more) => {
            let mut text = value.unwrap_or_default();
            text.extend_from_slice(more);
            reply::integer(text.len() as i64, &mut out);
            state(Some(text))
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

fn apply_hash(mut hash: BTreeMap<Vec<u8>, Vec<u8>>, what: &What) -> Outcome {
    let mut out = Vec::new();
    match what {
        What::HashSet(field, value) => {
            hash.insert(field.clone(), value.clone());
            reply::integer(1, &mut out);
        }
        What::HashGet(field) => match hash.get(field) {
            Some(value) => reply::bulk(value, &mut out),
            None => reply::null(false, &mut out),
        },
        What::HashLen => reply::integer(hash.len() as i64, &mut out),
        What::HashGetAll => {
            reply::array_header(hash.len() * 2, &mut out);
            for (field, value) in &hash {
                reply::bulk(field, &mut out);
                reply::bulk(value, &mut out);
            }
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
    (State::Hash(hash), out)
}

fn apply_list(mut list: VecDeque<Vec<u8>>, what: &What) -> Option<Outcome> {
    let mut out = Vec::new();
    match what {
        What::Push(value) => {
            list.push_front(value.clone());
            reply::integer(list.len() as i64, &mut out);
        }
        What::Pop(key) => {
            let value = list.pop_front()?;
            reply::array_header(2, &mut out);
            reply::bulk(key, &mut out);
            reply::bulk(&value, &mut out);
        }
        What::ListLen => reply::integer(list.len() as i64, &mut out),
        What::Clear => {
            reply::simple(b"OK", &mut out);
            list.clear();
        }
        other => panic!("{other:?} on a list"),
    }
    Some((State::List(list), out))
}
