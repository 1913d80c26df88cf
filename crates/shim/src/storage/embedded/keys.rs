//! Expiry and key commands of the embedded store. Not commands that look at values.

use super::call::{CallFault, CallOutcome, EmbeddedCall, NO_SUCH_KEY, SYNTAX};
use super::keyspace::{Encoding, Keyspace, StoredObject};
use bytes::Bytes;
use commands::glob;

#[derive(Default)]
struct Conditions {
    without: bool,
    with: bool,
    greater: bool,
    less: bool,
}

fn conditions(call: &EmbeddedCall<'_>) -> Result<Conditions, CallFault> {
    let mut conditions = Conditions::default();
    for index in 3..call.len() {
        match call.arg(index).to_ascii_lowercase().as_slice() {
            b"nx" => conditions.without = true,
            b"xx" => conditions.with = true,
            b"gt" => conditions.greater = true,
            b"lt" => conditions.less = true,
            _ => return Err(CallFault::quoting("ERR Unsupported option ", call.arg(index), "")),
        }
    }
    let others = conditions.with || conditions.greater || conditions.less;
    if conditions.without && others {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(CallFault::text(text));
    }
    if conditions.greater && conditions.less {
        return Err(CallFault::text("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(conditions)
}

impl Conditions {
    fn allow(&self, when: i64, current: Option<i64>) -> bool {
        match current {
            None => !self.with && !self.greater,
            Some(_) if self.without => false,
            Some(current) => (!self.greater || when > current) && (!self.less || when < current),
        }
    }
}

/// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
pub(super) fn expire(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let conditions = conditions(call)?;
    let fault = || CallFault::expire_time(call.name);
    let mut when = call.integer(2)?;
    if !call.name.starts_with('p') {
        when = when.checked_mul(1000).ok_or_else(fault)?;
    }
    if !call.name.ends_with("at") {
        when = when.checked_add(call.clock.unix).ok_or_else(fault)?;
    }
    let (key, clock) = (call.arg(1), call.clock);
    let current = keys.get(clock.now, key).map(|object| object.deadline().map(|at| clock.unix(at)));
    let allowed = current.is_some_and(|current| conditions.allow(when, current));
    if allowed && when <= clock.unix {
        keys.take(clock.now, key);
    } else if allowed {
        keys.expire_at(clock.now, key, Some(clock.deadline(when)));
    }
    call.reply.boolean(allowed);
    Ok(())
}

/// TTL, PTTL, EXPIRETIME and PEXPIRETIME.
pub(super) fn ttl(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let clock = call.clock;
    let value = match keys.get(clock.now, call.arg(1)).map(StoredObject::deadline) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let absolute = call.name.ends_with("expiretime");
            let value = if absolute { clock.unix(deadline) } else { (deadline - clock.now).max(0) };
            if call.name.starts_with('p') { value } else { value.saturating_add(500) / 1000 }
        }
    };
    call.reply.integer(value);
    Ok(())
}

pub(super) fn persist(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let (key, now) = (call.arg(1), call.clock.now);
    let persisted = keys.get(now, key).is_some_and(|object| object.deadline().is_some());
    if persisted {
        keys.expire_at(now, key, None);
    }
    call.reply.boolean(persisted);
    Ok(())
}

/// DEL and UNLINK.
pub(super) fn delete(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let removed =
        (1..call.len()).filter(|&index| keys.take(call.clock.now, call.arg(index)).is_some()).count();
    call.reply.integer(removed as i64);
    Ok(())
}

/// EXISTS and TOUCH.
pub(super) fn exists(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let found = (1..call.len()).filter(|&index| keys.contains(call.clock.now, call.arg(index))).count();
    call.reply.integer(found as i64);
    Ok(())
}

pub(super) fn type_of(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let found = keys.contains(call.clock.now, call.arg(1));
    call.reply.simple(if found { "string" } else { "none" });
    Ok(())
}

/// RENAME and RENAMENX.
pub(super) fn rename(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let (source, target, now) = (call.arg(1), call.arg(2), call.clock.now);
    let only_absent = call.name == "renamenx";
    if !keys.contains(now, source) {
        return Err(NO_SUCH_KEY);
    }
    let refused = only_absent && keys.contains(now, target);
    if !refused
        && source != target
        && let Some(object) = keys.take(now, source)
    {
        let deadline = object.deadline();
        keys.put(target, object.value, object.encoding, deadline);
    }
    if only_absent {
        call.reply.boolean(!refused)
    } else {
        call.reply.ok()
    }
    Ok(())
}

pub(super) fn copy(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let (source, target, now) = (call.arg(1), call.arg(2), call.clock.now);
    let mut replace = false;
    let mut index = 3;
    while index < call.len() {
        if call.is(index, "replace") {
            replace = true;
        } else if call.is(index, "db") && index + 1 < call.len() {
            call.database(index + 1)?;
            index += 1;
        } else {
            return Err(SYNTAX);
        }
        index += 1;
    }
    if source == target {
        return Err(CallFault::text("ERR source and destination objects are the same"));
    }
    let found =
        keys.get(now, source).map(|object| (object.value.clone(), object.encoding, object.deadline()));
    let copied = match found {
        Some((value, encoding, deadline)) if replace || !keys.contains(now, target) => {
            keys.put(target, value, encoding, deadline);
            true
        }
        _ => false,
    };
    call.reply.boolean(copied);
    Ok(())
}

fn reply_keys(call: &mut EmbeddedCall<'_>, found: &[Bytes]) {
    call.reply.array(found.len());
    for key in found {
        call.reply.bulk(key);
    }
}

pub(super) fn keys(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let pattern = call.arg(1);
    let (mut found, _) = keys.scan(call.clock.now, 0, usize::MAX);
    found.retain(|key| pattern == b"*" || glob::matches(pattern, key));
    reply_keys(call, &found);
    Ok(())
}

pub(super) fn scan(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let cursor = std::str::from_utf8(call.arg(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or(CallFault::text("ERR invalid cursor"))?;
    let (mut pattern, mut count, mut of_type) = (b"*".as_slice(), 10, b"string".as_slice());
    let mut index = 2;
    while index < call.len() {
        if index + 1 == call.len() {
            return Err(SYNTAX);
        }
        match call.arg(index).to_ascii_lowercase().as_slice() {
            b"match" => pattern = call.arg(index + 1),
            b"type" => of_type = call.arg(index + 1),
            b"count" => count = call.integer(index + 1)?,
            _ => return Err(SYNTAX),
        }
        if count < 1 {
            return Err(SYNTAX);
        }
        index += 2;
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (mut found, next) = keys.scan(call.clock.now, cursor, count);
    found.retain(|key| {
        of_type.eq_ignore_ascii_case(b"string") && (pattern == b"*" || glob::matches(pattern, key))
    });
    call.reply.array(2);
    call.reply.bulk(next.to_string().as_bytes());
    reply_keys(call, &found);
    Ok(())
}

pub(super) fn dbsize(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    call.reply.integer(keys.keys_count() as i64);
    Ok(())
}

pub(super) fn randomkey(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    match keys.random(call.clock.now, call.random) {
        Some(key) => call.reply.bulk(&key),
        None => call.reply.null(),
    }
    Ok(())
}

/// FLUSHALL and FLUSHDB; there is one database.
pub(super) fn flush(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    let valid = call.len() == 1 || (call.len() == 2 && (call.is(1, "async") || call.is(1, "sync")));
    if !valid {
        return Err(SYNTAX);
    }
    keys.clear();
    call.reply.ok();
    Ok(())
}

pub(super) fn object(keys: &mut dyn Keyspace, call: &mut EmbeddedCall<'_>) -> CallOutcome {
    if !call.is(1, "encoding") {
        return Err(call.subcommand_fault(&["freq", "help", "idletime", "refcount"]));
    }
    if call.len() != 3 {
        return Err(CallFault::arity("object|encoding"));
    }
    match keys.get(call.clock.now, call.arg(2)).map(|object| object.encoding) {
        Some(Encoding::Int) => call.reply.bulk(b"int"),
        Some(Encoding::Embstr) => call.reply.bulk(b"embstr"),
        Some(Encoding::Raw) => call.reply.bulk(b"raw"),
        None => call.reply.null(),
    }
    Ok(())
}
