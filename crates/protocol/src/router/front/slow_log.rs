//! The slow log: the last commands that took long, with what SLOWLOG and CONFIG say of it. Not how long is measured.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use wire::Peer;
use wire::resp::{Command, reply};

use crate::router::config::RouterConfig;
use crate::router::flow::pipeline::ClientOperation;
use crate::router::flow::ran::{Ran, RequestTally};
use crate::router::flow::refusal::shim_name;
use crate::router::front::session::Session;
use crate::router::front::whole::ThreadShare;
use crate::router::settings::SlowLogSettings;
use crate::router::siblings::ThreadPlace;
use crate::router::{replies, words};
use crate::time::Time;
use commands::{Flag, integer};

/// As Redis shows them.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;
/// An entry takes up to 4 KiB.
const ENTRIES_MAX: usize = 16_384;
const COUNT: usize = 10;
/// One command more is written down for each of these intervals, beside [`SlowLog::burst`]: where everything is slow, writing
/// it all down would cost time just when there is none.
const INTERVAL: Duration = Duration::from_millis(1);
/// A log of a few entries shows the newest ones too, and not those that came first.
const BURST_MIN: usize = 128;

const SLOWER_THAN: &str = "slowlog-log-slower-than";
const MAX_LEN: &str = "slowlog-max-len";
const COUNT_ERROR: &str = "ERR count should be greater than or equal to -1";
const HELP: [&str; 12] = [
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
    "HELP",
    "    Print this help.",
];

#[derive(Debug)]
pub(crate) struct SlowLog {
    settings: SlowLogSettings,
    place: ThreadPlace,
    entries: VecDeque<SlowEntry>,
    next: u64,
    /// How many may be written down at once, as of then.
    room: usize,
    room_at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEntry {
    pub(crate) id: u64,
    pub(crate) at: Time,
    took: Duration,
    /// Behind earlier commands of its client.
    waited: Duration,
    asked: Option<Peer>,
    hit: String,
    /// Time at the router, at nodes and at shims.
    split_us: [u32; 3],
    retries: u16,
    arguments: Vec<Bytes>,
    address: String,
    name: Bytes,
}

/// How entries are wanted.
pub(crate) struct SlowLogView<'a> {
    pub(crate) config: &'a RouterConfig,
    pub(crate) resp3: bool,
    pub(crate) command: &'a Command,
}

impl SlowLog {
    pub(crate) fn new(settings: SlowLogSettings, place: ThreadPlace) -> SlowLog {
        let mut log =
            SlowLog { settings, place, entries: VecDeque::new(), next: 0, room: 0, room_at: Time(0) };
        log.set(settings);
        log.room = log.burst();
        log
    }

    /// As many are written down at once: what the log holds, and no fewer than [`BURST_MIN`] unless it holds none.
    fn burst(&self) -> usize {
        match self.settings.entries_max {
            0 => 0,
            max => max.max(BURST_MIN),
        }
    }

    pub(crate) fn set(&mut self, settings: SlowLogSettings) {
        self.settings = settings;
        self.settings.entries_max = settings.entries_max.min(ENTRIES_MAX);
        self.entries.truncate(self.settings.entries_max);
    }

    #[inline]
    pub(crate) fn ended(&mut self, operation: &ClientOperation, session: &Session) {
        let ran = &operation.ran;
        let took_us = ran.answered.0.saturating_sub(ran.launched.0);
        // As a number without a sign, what is below zero is more than any time.
        if took_us >= self.settings.slower_than_us as u64 && ran.answered != Time(0) && is_shown(ran) {
            self.log(operation, Duration::from_micros(took_us), session);
        }
    }

    fn log(&mut self, operation: &ClientOperation, took: Duration, session: &Session) {
        let ran = &operation.ran;
        let id = self.place.number(self.next);
        self.next += 1;
        if !self.has_room(ran.answered) {
            return;
        }
        self.entries.truncate(self.settings.entries_max - 1);
        let tally = ran.tally();
        self.entries.push_front(SlowEntry {
            id,
            at: ran.answered,
            took,
            waited: ran.launched.since(operation.received),
            asked: ran.last.map(|heard| heard.peer),
            hit: hit(tally),
            split_us: [ran.router_us(), tally.node_us, tally.shim_us],
            retries: ran.retries(),
            arguments: arguments(&ran.frame, self.settings.hides_arguments),
            address: session.known.as_ref().map_or_else(String::new, |known| known.0.clone()),
            name: session.labels.as_ref().map(|labels| labels.name.clone()).unwrap_or_default(),
        });
    }

    fn has_room(&mut self, now: Time) -> bool {
        let passed = now.since(self.room_at);
        if passed >= INTERVAL {
            let more = (passed.as_micros() / INTERVAL.as_micros()) as usize;
            (self.room, self.room_at) = (self.room.saturating_add(more), now);
        }
        self.room = self.room.min(self.burst());
        let has = self.room > 0;
        self.room -= usize::from(has);
        has
    }

    /// How many there have been, written down or not.
    pub(crate) fn total(&self) -> u64 {
        self.next
    }

    fn seconds(&self, at: Time) -> i64 {
        (self.settings.epoch + at.since(Time(0))).as_secs() as i64
    }
}

/// One that blocks takes as long as it was asked to, and passwords are no business of who reads the log.
fn is_shown(ran: &Ran) -> bool {
    let Some(spec) = ran.spec else { return false };
    !ran.blocks && spec.name != "acl|setuser" && !spec.has(Flag::SkipSlowlog)
}

/// Whether copies have answered it; nothing of a command that they never answer.
fn hit(tally: RequestTally) -> String {
    match (tally.hits, tally.reads) {
        (_, 0) => String::new(),
        (0, _) => "no".to_owned(),
        (hits, reads) if hits == reads => "yes".to_owned(),
        (hits, reads) => format!("{hits} of {reads}"),
    }
}

/// Cut as Redis cuts them, in buffers of their own: the command's would stay alive whole.
fn arguments(frame: &Bytes, hides: bool) -> Vec<Bytes> {
    let Ok(command) = Command::parse(frame.clone()) else {
        return vec![Bytes::from_static(b"EXEC")];
    };
    if hides {
        let hidden = format!("... ({} hidden arguments)", command.len() - 1);
        return vec![Bytes::copy_from_slice(command.name()), hidden.into()];
    }
    let count = command.len().min(ARGUMENTS_MAX);
    let shown = |index: usize| match command.arg(index) {
        _ if count != command.len() && index == count - 1 => {
            format!("... ({} more arguments)", command.len() - count + 1).into()
        }
        argument if argument.len() > ARGUMENT_BYTES_MAX => {
            let (start, rest) = argument.split_at(ARGUMENT_BYTES_MAX);
            [start, format!("... ({} more bytes)", rest.len()).as_bytes()].concat().into()
        }
        argument => Bytes::copy_from_slice(argument),
    };
    (0..count).map(shown).collect()
}

/// SLOWLOG, but for what [`share`] answers.
pub(crate) fn answer(command: &Command) -> Bytes {
    match words::is(command, 1, "HELP") {
        true => replies::lines(&HELP),
        false => replies::error("ERR wrong number of arguments for 'slowlog' command"),
    }
}

/// What a thread says to SLOWLOG GET, LEN and RESET, and to DISTCACHE SLOWLOG.
pub(crate) fn share(log: &mut SlowLog, command: &Command) -> Result<ThreadShare, Bytes> {
    if words::is(command, 1, "LEN") {
        return Ok(ThreadShare::Count(log.entries.len() as u64));
    }
    if words::is(command, 1, "RESET") {
        log.entries.clear();
        return Ok(ThreadShare::Done);
    }
    if command.len() > 3 && words::is(command, 1, "GET") {
        return Err(replies::error("ERR wrong number of arguments for 'slowlog|get' command"));
    }
    let count = count(command).filter(|_| command.len() <= 3);
    let count = count.ok_or_else(|| replies::error(COUNT_ERROR))?;
    Ok(ThreadShare::Slow(log.entries.iter().take(count).cloned().collect()))
}

/// The reply to SLOWLOG LEN, of so many entries of all threads.
pub(crate) fn length(log: &SlowLog, entries: u64) -> Bytes {
    replies::integer(entries.min(log.settings.entries_max as u64) as i64)
}

/// How many entries it asks for.
fn count(command: &Command) -> Option<usize> {
    let Some(argument) = command.get(2) else { return Some(COUNT) };
    match integer(argument)? {
        -1 => Some(usize::MAX),
        count => usize::try_from(count).ok(),
    }
}

/// The entries of all threads, the newest first, as the command wants them.
pub(crate) fn shown(log: &SlowLog, view: &SlowLogView<'_>, mut entries: Vec<SlowEntry>) -> Bytes {
    // Each thread has as many as the log may have.
    entries.truncate(count(view.command).unwrap_or(COUNT).min(log.settings.entries_max));
    match words::is(view.command, 0, "DISTCACHE") {
        true => explained(log, view, &entries),
        false => listed(log, &entries),
    }
}

fn listed(log: &SlowLog, entries: &[SlowEntry]) -> Bytes {
    let mut out = Vec::new();
    replies::array_header(entries.len(), &mut out);
    for entry in entries {
        replies::array_header(6, &mut out);
        reply::integer(entry.id as i64, &mut out);
        reply::integer(log.seconds(entry.at), &mut out);
        reply::integer(entry.took.as_micros() as i64, &mut out);
        words(&entry.arguments, &mut out);
        reply::bulk(entry.address.as_bytes(), &mut out);
        reply::bulk(&entry.name, &mut out);
    }
    out.into()
}

fn words(words: &[Bytes], out: &mut Vec<u8>) {
    replies::array_header(words.len(), out);
    words.iter().for_each(|word| reply::bulk(word, out));
}

/// DISTCACHE SLOWLOG: the same with where the time went.
fn explained(log: &SlowLog, view: &SlowLogView<'_>, entries: &[SlowEntry]) -> Bytes {
    let SlowLogView { config, resp3, .. } = *view;
    let mut out = Vec::new();
    replies::array_header(entries.len(), &mut out);
    for entry in entries {
        reply::map_header(13, resp3, &mut out);
        let [router_us, node_us, shim_us] = entry.split_us;
        let numbers = [
            ("id", entry.id as i64),
            ("time", log.seconds(entry.at)),
            ("duration-us", entry.took.as_micros() as i64),
            ("waited-us", entry.waited.as_micros() as i64),
            ("router-us", i64::from(router_us)),
            ("nodes-us", i64::from(node_us)),
            ("shims-us", i64::from(shim_us)),
            ("retries", i64::from(entry.retries)),
        ];
        for (name, number) in numbers {
            reply::bulk(name.as_bytes(), &mut out);
            reply::integer(number, &mut out);
        }
        let asked = match entry.asked {
            Some(Peer::Shim(shim)) => shim_name(config, shim),
            Some(Peer::Node(node)) => format!("node number {}", node.0),
            Some(Peer::Router(_)) | None => "several".to_owned(),
        };
        let texts = [
            ("asked", asked.as_bytes()),
            ("hit", entry.hit.as_bytes()),
            ("address", entry.address.as_bytes()),
            ("name", &entry.name),
        ];
        for (name, text) in texts {
            reply::bulk(name.as_bytes(), &mut out);
            reply::bulk(text, &mut out);
        }
        reply::bulk(b"arguments", &mut out);
        words(&entry.arguments, &mut out);
    }
    out.into()
}

/// CONFIG GET and SET of nothing but this log's parameters, which are the router's.
pub(crate) fn configuration(log: &mut SlowLog, resp3: bool, command: &Command) -> Option<Bytes> {
    let own = |index: usize| [SLOWER_THAN, MAX_LEN].into_iter().find(|name| words::is(command, index, name));
    let settings = &log.settings;
    if words::is(command, 1, "GET") {
        let names: Vec<&str> = (2..command.len()).map(own).collect::<Option<_>>()?;
        let mut out = Vec::new();
        reply::map_header(names.len(), resp3, &mut out);
        for name in names {
            let value = match name {
                SLOWER_THAN => settings.slower_than_us,
                _ => settings.entries_max as i64,
            };
            reply::bulk(name.as_bytes(), &mut out);
            reply::bulk(value.to_string().as_bytes(), &mut out);
        }
        return Some(out.into());
    }
    let pairs = (2..command.len()).step_by(2);
    let names: Vec<(usize, &str)> = pairs.map(|index| Some((index, own(index)?))).collect::<Option<_>>()?;
    let mut newer = *settings;
    for (index, name) in names {
        let (low, high) = if name == SLOWER_THAN { (-1, i64::MAX) } else { (0, ENTRIES_MAX as i64) };
        let problem = match command.get(index + 1).and_then(integer) {
            Some(value) if (low..=high).contains(&value) => {
                match name {
                    SLOWER_THAN => newer.slower_than_us = value,
                    _ => newer.entries_max = value as usize,
                }
                continue;
            }
            Some(_) => format!("argument must be between {low} and {high} inclusive"),
            None => "argument couldn't be parsed into an integer".to_owned(),
        };
        let what = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {problem}");
        return Some(replies::error(&what));
    }
    log.set(newer);
    Some(replies::OK)
}

#[cfg(test)]
mod tests {
    use wire::resp::Command;

    use super::{Ran, SlowLog, arguments, is_shown};
    use crate::router::settings::SlowLogSettings;
    use crate::router::siblings::ThreadPlace;
    use crate::time::Time;

    fn shown(args: &[&str], hides: bool) -> Vec<String> {
        let frame = Command::from_args(args).frame().clone();
        arguments(&frame, hides).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn arguments_are_cut_as_redis_cuts_them() {
        let long = "x".repeat(130);
        let expected = format!("{}... (2 more bytes)", "x".repeat(128));
        assert_eq!(shown(&["SET", "k", &long], false), ["SET", "k", &expected]);
        assert_eq!(shown(&["SET", "k", &long[..128]], false)[2].len(), 128);
        let many: Vec<String> = (0..40).map(|index| index.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cut = shown(&many, false);
        assert_eq!((cut.len(), cut[30].as_str(), cut[31].as_str()), (32, "30", "... (9 more arguments)"));
        assert_eq!(shown(&many[..32], false)[31], "31");
        assert_eq!(shown(&["SET", "k", "v"], true), ["SET", "... (2 hidden arguments)"]);
    }

    /// What comes at once is taken as far as the log holds it, and beyond that one for each millisecond.
    #[test]
    fn it_takes_no_more_than_it_has_time_for() {
        let mut log = SlowLog::new(
            SlowLogSettings { entries_max: 200, ..SlowLogSettings::default() },
            ThreadPlace::default(),
        );
        let mut taken = |times: &[u64]| times.iter().filter(|time| log.has_room(Time(**time))).count();
        assert_eq!(taken(&[50; 900]), 200);
        assert_eq!(taken(&[900, 999]), 0);
        assert_eq!(taken(&[2_100, 2_200, 2_300]), 2);
        assert_eq!(taken(&(0..5_000).map(|number| 3_000 + 100 * number).collect::<Vec<_>>()), 500);
        assert_eq!(taken(&[9_000_000; 900]), 200, "the room that there was meanwhile is not saved up");
        log.set(SlowLogSettings { entries_max: 2, ..SlowLogSettings::default() });
        assert_eq!(
            (0..900).filter(|_| log.has_room(Time(19_000_000))).count(),
            128,
            "the newest of a burst is shown"
        );
        log.set(SlowLogSettings::default());
        assert!(!log.has_room(Time(10_000_000)), "it holds none");
    }

    #[test]
    fn passwords_stay_out_of_it() {
        let kept = |args: &[&str]| {
            let classified = commands::classify(&Command::from_args(args)).expect("a known command");
            is_shown(&Ran::new(Time(0), &classified))
        };
        assert!(kept(&["GET", "k"]) && kept(&["ACL", "GENPASS"]));
        assert!(!kept(&["ACL", "SETUSER", "app", "on", ">secret"]));
    }
}
