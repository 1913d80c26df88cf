//! Commands for storage that speaks Redis. What Redis has no command for is one script with its key declared.

use wire::resp::Command;

use super::Expiry;

/// Appends or prepends, if there is a value and it is the expected one.
const CONCATENATE: &str = "local v = redis.call('GET', KEYS[1]) \
if not v then return 'NS' end \
if ARGV[3] ~= '' and string.sub(redis.sha1hex(v), 1, 15) ~= ARGV[3] then return 'EX' end \
local n = v .. ARGV[2] \
if ARGV[1] == 'P' then n = ARGV[2] .. v end \
redis.call('SET', KEYS[1], n, 'KEEPTTL') \
return 'HD x' .. string.sub(redis.sha1hex(n), 1, 15)";

/// Sets if the value is the expected one.
const COMPARE_AND_SET: &str = "local v = redis.call('GET', KEYS[1]) \
if not v then return 'NF' end \
if string.sub(redis.sha1hex(v), 1, 15) ~= ARGV[1] then return 'EX' end \
if ARGV[3] then redis.call('SET', KEYS[1], ARGV[2], ARGV[3], ARGV[4]) else redis.call('SET', KEYS[1], ARGV[2]) end \
return 'HD'";

const COMPARE_AND_DELETE: &str = "local v = redis.call('GET', KEYS[1]) \
if not v then return 'NF' end \
if string.sub(redis.sha1hex(v), 1, 15) ~= ARGV[1] then return 'EX' end \
redis.call('DEL', KEYS[1]) \
return 'HD'";

/// Reads with the remaining time, which is that before the touch if the last argument says so.
const FETCH: &str = "local v = redis.call('GET', KEYS[1]) \
if not v then return 'EN' end \
local t = redis.call('PTTL', KEYS[1]) \
if ARGV[1] == '' then redis.call('PERSIST', KEYS[1]) \
elseif ARGV[1] ~= '-' then redis.call(ARGV[1] == 'PX' and 'PEXPIRE' or 'PEXPIREAT', KEYS[1], ARGV[2]) end \
if ARGV[3] == '' then t = redis.call('PTTL', KEYS[1]) end \
if t < 0 then t = -1 else t = math.ceil(t / 1000) end \
return 'VA ' .. #v .. ' t' .. t .. '\\r\\n' .. v";

/// Counts on unsigned 64-bit numbers, which Lua has not: as two halves of ten decimal digits. As memcached's, a number is what
/// strtoull takes for one, and ends with the value, a blank of any kind or a NUL byte, whatever follows.
const COUNT: &str = "local k = KEYS[1] \
local function expire(how, ms) \
if how == '' then redis.call('PERSIST', k) elseif how ~= '-' then \
redis.call(how == 'PX' and 'PEXPIRE' or 'PEXPIREAT', k, ms) end end \
local v, n, t = redis.call('GET', k), ARGV[4], redis.call('PTTL', k) \
if not v then \
if n == '' then return 'NF' end \
redis.call('SET', k, n) \
expire(ARGV[10], ARGV[11]) \
t = redis.call('PTTL', k) \
expire(ARGV[5], ARGV[6]) \
else \
if ARGV[3] ~= '' and string.sub(redis.sha1hex(v), 1, 15) ~= ARGV[3] then return 'EX' end \
local d = string.match(v .. ' ', '^%s*%+?0*(%d+)[%s%z]') or string.match(v .. ' ', '^%s*%-0*(0)[%s%z]') \
local function halves(d) d = string.rep('0', 20 - #d) .. d \
return tonumber(string.sub(d, 1, 10)), tonumber(string.sub(d, 11)) end \
local h, l = 1844674408, 0 \
if d and #d <= 20 then h, l = halves(d) end \
if h > 1844674407 or (h == 1844674407 and l > 3709551615) then \
return 'CLIENT_ERROR cannot increment or decrement non-numeric value' end \
local a, b = halves(ARGV[2]) \
if ARGV[1] == 'I' then \
h, l = h + a, l + b \
if l >= 1e10 then h, l = h + 1, l - 1e10 end \
if h > 1844674407 or (h == 1844674407 and l > 3709551615) then h, l = h - 1844674407, l - 3709551616 \
if l < 0 then h, l = h - 1, l + 1e10 end end \
else \
h, l = h - a, l - b \
if l < 0 then h, l = h - 1, l + 1e10 end \
if h < 0 then h, l = 0, 0 end end \
n = string.format('%.0f', l) \
if h > 0 then n = string.format('%.0f', h) .. string.rep('0', 10 - #n) .. n end \
redis.call('SET', k, n, 'KEEPTTL') \
expire(ARGV[7], ARGV[8]) \
if ARGV[9] == '' then t = redis.call('PTTL', k) end end \
if t < 0 then t = -1 else t = math.ceil(t / 1000) end \
return 'VA ' .. #n .. ' t' .. t .. '\\r\\n' .. n";

/// An option of SET, PEXPIRE or GETEX and its number; a script reads no option as `''` and no touch as `'-'`.
fn option(expiry: Expiry) -> Option<(&'static str, String)> {
    match expiry {
        Expiry::Never => None,
        Expiry::InMs(ms) => Some(("PX", ms.to_string())),
        Expiry::AtMs(ms) => Some(("PXAT", ms.to_string())),
    }
}

fn script_option(expiry: Option<Expiry>) -> (&'static str, String) {
    match expiry {
        None => ("-", String::new()),
        Some(expiry) => option(expiry).unwrap_or(("", String::new())),
    }
}

/// `SET`, with `NX` or `XX`.
pub(super) fn set(key: &[u8], value: &[u8], condition: Option<&'static str>, expiry: Expiry) -> Command {
    let option = option(expiry);
    let mut args: Vec<&[u8]> = vec![b"SET", key, value];
    args.extend(condition.map(str::as_bytes));
    if let Some((option, number)) = &option {
        args.extend([option.as_bytes(), number.as_bytes()]);
    }
    Command::from_args(&args)
}

pub(super) fn delete(key: &[u8]) -> Command {
    Command::from_args(&[b"DEL", key])
}

/// Reads and gives a new expiry time.
pub(super) fn get_and_touch(key: &[u8], expiry: Expiry) -> Command {
    match option(expiry) {
        None => Command::from_args(&[b"GETEX", key, b"PERSIST"]),
        Some((option, number)) => Command::from_args(&[b"GETEX", key, option.as_bytes(), number.as_bytes()]),
    }
}

/// Answers a number, but for a touch without an end, whose answer is the value or null.
pub(super) fn touch(key: &[u8], expiry: Expiry) -> Command {
    match expiry {
        Expiry::Never => get_and_touch(key, expiry),
        Expiry::InMs(ms) => Command::from_args(&[b"PEXPIRE", key, ms.to_string().as_bytes()]),
        Expiry::AtMs(ms) => Command::from_args(&[b"PEXPIREAT", key, ms.to_string().as_bytes()]),
    }
}

pub(super) fn compare_and_set(key: &[u8], unique: u64, value: &[u8], expiry: Expiry) -> Command {
    let (unique, option) = (hexadecimal(Some(unique)), option(expiry));
    let mut args: Vec<&[u8]> = vec![unique.as_bytes(), value];
    if let Some((option, number)) = &option {
        args.extend([option.as_bytes(), number.as_bytes()]);
    }
    eval("EVAL", COMPARE_AND_SET, key, &args)
}

pub(super) fn compare_and_delete(key: &[u8], unique: u64) -> Command {
    eval("EVAL", COMPARE_AND_DELETE, key, &[hexadecimal(Some(unique)).as_bytes()])
}

pub(super) fn concatenate(key: &[u8], after: bool, value: &[u8], unique: Option<u64>) -> Command {
    let how: &[u8] = if after { b"A" } else { b"P" };
    eval("EVAL", CONCATENATE, key, &[how, value, hexadecimal(unique).as_bytes()])
}

/// `early`: the remaining time is asked for before the touch.
pub(super) fn fetch(key: &[u8], touch: Option<Expiry>, early: bool) -> Command {
    let name = if touch.is_some() { "EVAL" } else { "EVAL_RO" };
    let (how, number) = script_option(touch);
    eval(name, FETCH, key, &[how.as_bytes(), number.as_bytes(), flag(early).as_bytes()])
}

fn flag(set: bool) -> &'static str {
    if set { "1" } else { "" }
}

/// A change of a number: what makes one that is not there, and what becomes of its expiry time.
pub(super) struct Counting {
    pub(super) up: bool,
    pub(super) delta: u64,
    pub(super) unique: Option<u64>,
    pub(super) initial: Option<(u64, Expiry)>,
    pub(super) touch: Option<Expiry>,
    /// The remaining time is asked for before the touch.
    pub(super) early: bool,
    /// Which time one that is not there has when its remaining time is asked for.
    pub(super) told: Expiry,
}

pub(super) fn count(key: &[u8], counting: &Counting) -> Command {
    let initial = counting.initial.map(|(number, _)| number.to_string()).unwrap_or_default();
    let (born, born_number) = script_option(counting.initial.map(|(_, expiry)| expiry));
    let (touch, touch_number) = script_option(counting.touch);
    let (delta, unique) = (counting.delta.to_string(), hexadecimal(counting.unique));
    let how = if counting.up { "I" } else { "D" };
    let early = flag(counting.early);
    let (told, told_number) = script_option(Some(counting.told));
    let args =
        [how, &delta, &unique, &initial, born, &born_number, touch, &touch_number, early, told, &told_number];
    eval("EVAL", COUNT, key, &args.map(str::as_bytes))
}

/// As `redis.sha1hex` has it.
fn hexadecimal(unique: Option<u64>) -> String {
    unique.map(|unique| format!("{unique:015x}")).unwrap_or_default()
}

fn eval(name: &str, script: &str, key: &[u8], args: &[&[u8]]) -> Command {
    let mut all: Vec<&[u8]> = vec![name.as_bytes(), script.as_bytes(), b"1", key];
    all.extend_from_slice(args);
    Command::from_args(&all)
}
