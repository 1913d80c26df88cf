//! Finds a command's keys among its arguments, where Redis itself would find them.

use smallvec::SmallVec;
use wire::resp::Command;

use super::classify::UnnamedKeys;
use super::refusal::CommandRefusal;
use super::spec::{Begin, CommandGroup, CommandSpec, Find, KeyFlag, KeyRange, KeySpec};
use wire::key::hash_tag;

/// Argument indexes, in the order of the arguments' roles in the table.
pub(super) type KeyIndexes = SmallVec<[usize; 1]>;

/// The keys of a command, or the error that Redis would answer because it finds none where some must be.
pub(super) fn extract(command: &Command, spec: &'static CommandSpec) -> Result<KeyIndexes, CommandRefusal> {
    // In these the table's description is not what Redis does when options repeat or look like each other.
    match spec.name {
        "sort" => return Ok(sort(command)),
        "georadius" => return Ok(geo_radius(command, 6)),
        "georadiusbymember" => return Ok(geo_radius(command, 5)),
        "xread" | "xreadgroup" => return streams(command),
        _ => {}
    }
    let mut keys = KeyIndexes::new();
    for key_spec in spec.keys {
        if !key_spec.has(KeyFlag::NotKey) {
            add(command, spec, key_spec, &mut keys)?;
        }
    }
    Ok(keys)
}

fn add(
    command: &Command,
    spec: &'static CommandSpec,
    key_spec: &KeySpec,
    keys: &mut KeyIndexes,
) -> Result<(), CommandRefusal> {
    let begin = match key_spec.begin {
        Begin::Index(index) => index,
        Begin::Keyword(keyword, from) => match position(command, keyword, from) {
            Some(index) => index + 1,
            None => return Ok(()),
        },
        Begin::Unknown => return Ok(()),
    };
    match key_spec.find {
        Find::Range(KeyRange { last: 0, .. }) if begin < command.len() => {
            keys.push(begin);
            Ok(())
        }
        Find::Range(found) => {
            keys.extend(range(command, spec, begin, found)?);
            Ok(())
        }
        Find::Count { count, first, step } => {
            let number = key_count(command, spec, begin + count, begin + first)?;
            keys.extend((0..number).map(|index| begin + first + index * step));
            Ok(())
        }
        Find::Unknown => Ok(()),
    }
}

fn range(
    command: &Command,
    spec: &'static CommandSpec,
    first: usize,
    KeyRange { last, step, limit }: KeyRange,
) -> Result<impl Iterator<Item = usize>, CommandRefusal> {
    let behind = match (usize::try_from(last), limit) {
        (Ok(last), _) => first + last + 1,
        (Err(_), 0 | 1) => command.len() + 1 - usize::from(last.unsigned_abs()),
        (Err(_), limit) => first + command.len().saturating_sub(first) / limit,
    };
    // MSET: a key without its value.
    let uneven = step > 1 && last < 0 && !command.len().saturating_sub(first).is_multiple_of(step);
    if behind > command.len() || uneven {
        return Err(CommandRefusal::Arity(spec.name));
    }
    // May be none at all: PFMERGE without a source.
    Ok((first..behind).step_by(step.max(1)))
}

/// The number of keys that the argument at `count` announces, all of them there from `first` on.
fn key_count(
    command: &Command,
    spec: &'static CommandSpec,
    count: usize,
    first: usize,
) -> Result<usize, CommandRefusal> {
    let scripting = spec.group == CommandGroup::Scripting;
    let pops = spec.name.ends_with("mpop");
    let cardinality = spec.name == "sintercard";
    let Some(text) = command.get(count) else { return Err(CommandRefusal::Arity(spec.name)) };
    let available = command.len().saturating_sub(first);
    match integer(text) {
        None if spec.name.starts_with("fcall") => Err(CommandRefusal::BadKeyCount),
        None if pops || cardinality => Err(CommandRefusal::KeyCountNotPositive),
        None => Err(CommandRefusal::NotInteger),
        Some(number) if scripting && number < 0 => Err(CommandRefusal::NegativeKeyCount),
        Some(number) if number < 1 && (pops || cardinality) => Err(CommandRefusal::KeyCountNotPositive),
        Some(number) if number < 1 && !scripting => Err(CommandRefusal::NoInputKey(spec.name)),
        Some(number) if number as u64 > available as u64 => {
            Err(if scripting || cardinality { CommandRefusal::TooManyKeys } else { CommandRefusal::Syntax })
        }
        Some(number) => Ok(number as usize),
    }
}

/// The source, and the destination of the last STORE.
fn sort(command: &Command) -> KeyIndexes {
    let mut keys = KeyIndexes::from_elem(1, 1);
    let mut at = 2;
    while at < command.len() {
        let option = command.arg(at);
        if option.eq_ignore_ascii_case(b"store") && at + 1 < command.len() {
            keys.truncate(1);
            keys.push(at + 1);
        }
        at += 1 + sort_option_args(option);
    }
    keys
}

/// The keys of MIGRATE: the one at its place, or all behind KEYS if that is empty and there are some.
pub(super) fn migrate(command: &Command) -> std::ops::Range<usize> {
    let mut at = 6;
    while at < command.len() {
        let is = |name: &[u8]| command.arg(at).eq_ignore_ascii_case(name);
        if is(b"keys") {
            let behind = at + 1..command.len();
            return if command.arg(3).is_empty() && !behind.is_empty() { behind } else { 3..4 };
        }
        at += 1 + usize::from(is(b"auth")) + 2 * usize::from(is(b"auth2"));
    }
    3..4
}

fn sort_option_args(option: &[u8]) -> usize {
    if option.eq_ignore_ascii_case(b"limit") {
        return 2;
    }
    let one: [&[u8]; 3] = [b"get", b"by", b"store"];
    usize::from(one.iter().any(|name| option.eq_ignore_ascii_case(name)))
}

/// Which keys SORT reads that it derives from its elements.
pub(super) fn sort_derives(command: &Command) -> UnnamedKeys {
    let home = hash_tag(command.get(1).unwrap_or_default());
    let (mut at, mut found) = (2, UnnamedKeys::None);
    while at < command.len() {
        let option = command.arg(at);
        let pattern = option.eq_ignore_ascii_case(b"by") || option.eq_ignore_ascii_case(b"get");
        if pattern && let Some(pattern) = command.get(at + 1) {
            found = found.max(derived(home, pattern));
        }
        at += 1 + sort_option_args(option);
    }
    found
}

/// The keys that a pattern of SORT makes beside one with this hash tag, whatever the element is that takes the place of `*`.
fn derived(tag: &[u8], pattern: &[u8]) -> UnnamedKeys {
    let Some(star) = pattern.iter().position(|&byte| byte == b'*') else { return UnnamedKeys::None };
    let before = &pattern[..star];
    match hash_tag(before).len() < before.len() && hash_tag(before) == tag {
        true => UnnamedKeys::Tagged,
        false => UnnamedKeys::Any,
    }
}

/// The first option of SORT by which it reads keys that it derives from its elements, or nothing but the elements.
pub fn sort_option_that_reads_keys(command: &Command) -> Option<&'static str> {
    let mut at = 2;
    while let Some(option) = command.get(at) {
        let value = command.get(at + 1);
        if option.eq_ignore_ascii_case(b"by") && value.is_some_and(|pattern| pattern.contains(&b'*')) {
            return Some("BY");
        }
        if option.eq_ignore_ascii_case(b"get") && value.is_some() {
            return Some("GET");
        }
        at += 1 + sort_option_args(option);
    }
    None
}

/// The source, and the destination of the last STORE or STOREDIST.
fn geo_radius(command: &Command, options: usize) -> KeyIndexes {
    let mut keys = KeyIndexes::from_elem(1, 1);
    let mut at = options;
    while at + 1 < command.len() {
        let option = command.arg(at);
        if option.eq_ignore_ascii_case(b"store") || option.eq_ignore_ascii_case(b"storedist") {
            keys.truncate(1);
            keys.push(at + 1);
            at += 1;
        }
        at += 1;
    }
    keys
}

/// What stands between XREAD's or XREADGROUP's name and its keys.
pub(super) struct StreamOptions {
    pub(super) blocks: bool,
    keys: usize,
}

/// `None` when there is no STREAMS where Redis would look for it.
pub(super) fn stream_options(command: &Command) -> Option<StreamOptions> {
    let mut blocks = false;
    let mut at = 1;
    loop {
        let option = command.get(at)?;
        at += match option.to_ascii_lowercase().as_slice() {
            b"block" => {
                blocks = true;
                2
            }
            b"count" => 2,
            b"noack" => 1,
            b"group" => 3,
            b"streams" => return Some(StreamOptions { blocks, keys: at + 1 }),
            _ => return None,
        };
    }
}

fn streams(command: &Command) -> Result<KeyIndexes, CommandRefusal> {
    let first = stream_options(command).ok_or(CommandRefusal::Syntax)?.keys;
    let rest = command.len().saturating_sub(first);
    if rest == 0 {
        return Err(CommandRefusal::Syntax);
    }
    if rest % 2 != 0 {
        return Err(CommandRefusal::UnbalancedStreams);
    }
    Ok((first..first + rest / 2).collect())
}

/// Where `keyword` stands, not counting the last argument, behind which nothing can follow.
pub(super) fn position(command: &Command, keyword: &str, from: usize) -> Option<usize> {
    (from..command.len().saturating_sub(1))
        .find(|index| command.arg(*index).eq_ignore_ascii_case(keyword.as_bytes()))
}

/// An integer as strictly as Redis reads one.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}
