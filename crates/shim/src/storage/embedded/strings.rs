//! String and counter commands of the embedded store. Not expiry commands.

use super::call::{CallFault, CallOutcome, EmbeddedCall, NOT_AN_INTEGER, STRING_BYTES_MAX, SYNTAX, TOO_LONG};
use super::keyspace::{Encoding, Keyspace};
use super::number;

/// What the options of SET and GETEX say.
#[derive(Default)]
struct Options {
    absent_only: bool,
    present_only: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<(Unit, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    SecondsAt,
    MillisecondsAt,
}

impl Unit {
    fn parse(word: &[u8]) -> Option<Unit> {
        match word.to_ascii_lowercase().as_slice() {
            b"ex" => Some(Unit::Seconds),
            b"px" => Some(Unit::Milliseconds),
            b"exat" => Some(Unit::SecondsAt),
            b"pxat" => Some(Unit::MillisecondsAt),
            _ => None,
        }
    }

    pub(super) fn in_seconds(self) -> bool {
        matches!(self, Unit::Seconds | Unit::SecondsAt)
    }

    pub(super) fn is_absolute(self) -> bool {
        matches!(self, Unit::SecondsAt | Unit::MillisecondsAt)
    }
}

/// Options from argument `first` on; `of_set` tells SET's from GETEX's.
fn options(call: &EmbeddedCall<'_>, first: usize, of_set: bool) -> Result<Options, CallFault> {
    let mut options = Options::default();
    let mut at = first;
    while at < call.len() {
        let unit = Unit::parse(call.arg(at));
        let other_unit = |unit| matches!(options.expiry, Some((given, _)) if given != unit);
        if of_set && call.is(at, "nx") && !options.present_only {
            options.absent_only = true;
        } else if of_set && call.is(at, "xx") && !options.absent_only {
            options.present_only = true;
        } else if of_set && call.is(at, "get") {
            options.get = true;
        } else if of_set && call.is(at, "keepttl") && options.expiry.is_none() {
            options.keep_ttl = true;
        } else if !of_set && call.is(at, "persist") && options.expiry.is_none() {
            options.persist = true;
        } else if let Some(unit) = unit
            && !options.keep_ttl
            && !options.persist
            && !other_unit(unit)
            && at + 1 < call.len()
        {
            options.expiry = Some((unit, at + 1));
            at += 1;
        } else {
            return Err(SYNTAX);
        }
        at += 1;
    }
    Ok(options)
}

/// The point of wall-clock time that argument `index` means.
fn expiry(call: &EmbeddedCall<'_>, unit: Unit, index: usize) -> Result<i64, CallFault> {
    let fault = || CallFault::expire_time(call.name);
    let mut when = call.integer(index)?;
    if when <= 0 {
        return Err(fault());
    }
    if unit.in_seconds() {
        when = when.checked_mul(1000).ok_or_else(fault)?;
    }
    if !unit.is_absolute() {
        when = when.checked_add(call.clock.unix).ok_or_else(fault)?;
    }
    Ok(when)
}

fn put(keys: &mut dyn Keyspace, key: &[u8], value: &[u8], deadline: Option<i64>) {
    keys.put(key, value.to_vec(), Encoding::of(value), deadline);
}

fn bulk_or_null(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>, key: &[u8]) {
    match keys.get(call.clock.now, key) {
        Some(object) => call.reply.bulk(&object.value),
        None => call.reply.null(),
    }
}

pub(super) fn get(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    bulk_or_null(keys, call, call.arg(1));
    Ok(())
}

pub(super) fn set(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let options = options(call, 3, true)?;
    let key = call.arg(1);
    let when = match options.expiry {
        Some((unit, index)) => Some(expiry(call, unit, index)?),
        None => None,
    };
    if options.get {
        bulk_or_null(keys, call, key);
    }
    let found = keys.get(call.clock.now, key).map(|object| object.deadline());
    if (options.absent_only && found.is_some()) || (options.present_only && found.is_none()) {
        if !options.get {
            call.reply.null();
        }
        return Ok(());
    }
    let kept = found.flatten().filter(|_| options.keep_ttl);
    let deadline = when.map(|when| call.clock.deadline(when)).or(kept);
    put(keys, key, call.arg(2), deadline);
    if !options.get {
        call.reply.ok();
    }
    Ok(())
}

pub(super) fn setnx(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let absent = !keys.contains(call.clock.now, call.arg(1));
    if absent {
        put(keys, call.arg(1), call.arg(2), None);
    }
    call.reply.boolean(absent);
    Ok(())
}

/// SETEX and PSETEX.
pub(super) fn setex(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let unit = if call.name == "setex" { Unit::Seconds } else { Unit::Milliseconds };
    let when = expiry(call, unit, 2)?;
    put(keys, call.arg(1), call.arg(3), Some(call.clock.deadline(when)));
    call.reply.ok();
    Ok(())
}

pub(super) fn getset(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    bulk_or_null(keys, call, call.arg(1));
    put(keys, call.arg(1), call.arg(2), None);
    Ok(())
}

pub(super) fn getdel(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    match keys.take(call.clock.now, call.arg(1)) {
        Some(object) => call.reply.bulk(&object.value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn getex(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let options = options(call, 2, false)?;
    let key = call.arg(1);
    let now = call.clock.now;
    if !keys.contains(now, key) {
        call.reply.null();
        return Ok(());
    }
    let when = match options.expiry {
        Some((unit, index)) => Some(expiry(call, unit, index)?),
        None => None,
    };
    bulk_or_null(keys, call, key);
    match when {
        Some(when) if when <= call.clock.unix => {
            keys.take(now, key);
        }
        Some(when) => {
            keys.expire_at(now, key, Some(call.clock.deadline(when)));
        }
        None if options.persist => {
            keys.expire_at(now, key, None);
        }
        None => {}
    }
    Ok(())
}

pub(super) fn append(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let (key, tail) = (call.arg(1), call.arg(2));
    let Some(object) = keys.get_mut(call.clock.now, key) else {
        put(keys, key, tail, None);
        call.reply.integer(tail.len() as i64);
        return Ok(());
    };
    if object.value.len() + tail.len() > STRING_BYTES_MAX {
        return Err(TOO_LONG);
    }
    object.value.extend_from_slice(tail);
    object.encoding = Encoding::Raw;
    call.reply.integer(object.value.len() as i64);
    Ok(())
}

pub(super) fn strlen(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let len = keys.get(call.clock.now, call.arg(1)).map_or(0, |object| object.value.len());
    call.reply.integer(len as i64);
    Ok(())
}

/// GETRANGE and SUBSTR.
pub(super) fn getrange(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let (mut start, mut end) = (call.integer(2)?, call.integer(3)?);
    let Some(object) = keys.get(call.clock.now, call.arg(1)) else {
        call.reply.bulk(b"");
        return Ok(());
    };
    let len = object.value.len() as i64;
    let backwards = start < 0 && end < 0 && start > end;
    if start < 0 {
        start = start.saturating_add(len).max(0);
    }
    if end < 0 {
        end = end.saturating_add(len).max(0);
    }
    end = end.min(len - 1);
    if backwards || start > end || len == 0 {
        call.reply.bulk(b"");
    } else {
        call.reply.bulk(&object.value[start as usize..=end as usize]);
    }
    Ok(())
}

pub(super) fn setrange(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let (key, patch) = (call.arg(1), call.arg(3));
    let offset = call.integer(2)?;
    if offset < 0 {
        return Err(CallFault::text("ERR offset is out of range"));
    }
    let now = call.clock.now;
    let len = keys.get(now, key).map_or(0, |object| object.value.len());
    if patch.is_empty() {
        call.reply.integer(len as i64);
        return Ok(());
    }
    let end = (offset as u64).saturating_add(patch.len() as u64);
    if end > STRING_BYTES_MAX as u64 {
        return Err(TOO_LONG);
    }
    let (offset, end) = (offset as usize, end as usize);
    if !keys.contains(now, key) {
        keys.put(key, Vec::new(), Encoding::Raw, None);
    }
    if let Some(object) = keys.get_mut(now, key) {
        if object.value.len() < end {
            object.value.resize(end, 0);
        }
        object.value[offset..end].copy_from_slice(patch);
        object.encoding = Encoding::Raw;
        call.reply.integer(object.value.len() as i64);
    }
    Ok(())
}

pub(super) fn mget(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    call.reply.array(call.len() - 1);
    for index in 1..call.len() {
        bulk_or_null(keys, call, call.arg(index));
    }
    Ok(())
}

/// MSET and MSETNX.
pub(super) fn mset(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    if call.len().is_multiple_of(2) {
        return Err(CallFault::arity(call.name));
    }
    let only_absent = call.name == "msetnx";
    let now = call.clock.now;
    if only_absent && (1..call.len()).step_by(2).any(|index| keys.contains(now, call.arg(index))) {
        call.reply.integer(0);
        return Ok(());
    }
    for index in (1..call.len()).step_by(2) {
        put(keys, call.arg(index), call.arg(index + 1), None);
    }
    if only_absent {
        call.reply.integer(1)
    } else {
        call.reply.ok()
    }
    Ok(())
}

/// INCR, DECR, INCRBY and DECRBY.
pub(super) fn increment(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let step = match call.name {
        "incr" => 1,
        "decr" => -1,
        "incrby" => call.integer(2)?,
        _ => call.integer(2)?.checked_neg().ok_or(CallFault::text("ERR decrement would overflow"))?,
    };
    let key = call.arg(1);
    let found = keys.get(call.clock.now, key);
    let old = match found {
        Some(object) => number::parse_integer(&object.value).ok_or(NOT_AN_INTEGER)?,
        None => 0,
    };
    let deadline = found.and_then(|object| object.deadline());
    let sum = old.checked_add(step).ok_or(CallFault::text("ERR increment or decrement would overflow"))?;
    keys.put(key, sum.to_string().into_bytes(), Encoding::Int, deadline);
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn increment_float(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let not_a_float = || CallFault::text("ERR value is not a valid float");
    let parse = |text: &[u8]| number::Extended::parse(text).ok_or_else(not_a_float);
    let key = call.arg(1);
    let found = keys.get(call.clock.now, key);
    let old = parse(found.map_or(b"0".as_slice(), |object| &object.value))?;
    let deadline = found.and_then(|object| object.deadline());
    let sum = old
        .add(parse(call.arg(2))?)
        .ok_or(CallFault::text("ERR increment would produce NaN or Infinity"))?
        .print();
    call.reply.bulk(&sum);
    let encoding = Encoding::of_text(&sum);
    keys.put(key, sum, encoding, deadline);
    Ok(())
}
