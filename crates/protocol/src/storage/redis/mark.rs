//! What a Redis server keeps of whose keys it holds: a library of functions that nobody calls, because those are persisted and
//! replicated with the data, outlive FLUSHALL, and no command about keys shows them. Not how commands get there.

use std::time::Duration;

use bytes::Bytes;
use wire::resp::{Command, Value};

use super::server;
use crate::coherence::lease::{EarlierIncarnations, Unrecorded};
use crate::storage::{MarkedPart, REMEDY};
use crate::time::Time;

/// The library, and its only function.
const LIBRARY: &str = "distcache";
/// How long the time in the mark may lag: leases of incarnations that it knows nothing of may be a sixtieth of that.
const RENEW: Duration = Duration::from_secs(60);

/// What there is to see of a mark that is in nobody's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkSeen {
    Fits,
    Absent,
    /// The server does not tell.
    Untold,
}

/// The mark as it stands at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    part: MarkedPart,
    /// How long leases may run of whoever has written it.
    wait: Duration,
    /// When it was written: seconds on the server's clock.
    seen: u64,
    /// Keys that were to leave have left, and are asked for elsewhere.
    left: bool,
}

/// The mark of one server, as it was found and as it ought to be.
pub(super) struct ServerMark {
    part: MarkedPart,
    /// Seconds on the server's clock, and when they were told.
    clock: Option<(u64, Time)>,
    /// What `INFO keyspace` said, if anything.
    keyspace: Value,
    found: Option<Mark>,
    /// For which incarnation it was written, when, and what.
    written: Option<(u64, Time, Duration)>,
    /// It is on its way.
    is_asked: bool,
    /// The server takes none, which people were told.
    is_refused: bool,
    /// It names the shims of after keys have been divided anew.
    divided: bool,
    left: bool,
}

impl MarkedPart {
    /// What asks a server for its mark.
    pub const QUESTION: [&str; 5] = ["FUNCTION", "LIST", "LIBRARYNAME", LIBRARY, "WITHCODE"];

    /// Whether a server that answers this may be used for this part. One that has no functions, or does not let them be listed, has
    /// no mark; one that has no keys, as `INFO keyspace` says, holds nothing. The error says what it holds instead.
    pub fn check(&self, list: &Value, keyspace: &Value) -> Result<MarkSeen, String> {
        let Some(code) = code(list) else {
            return Ok(if matches!(list, Value::Error(_)) { MarkSeen::Untold } else { MarkSeen::Absent });
        };
        // One that does not tell whether it has keys has some.
        let is_empty = |info: &Bytes| !String::from_utf8_lossy(info).contains(":keys=");
        if keyspace.bytes().is_some_and(is_empty) {
            return Ok(MarkSeen::Absent);
        }
        let Some(mark) = Mark::parse(&String::from_utf8_lossy(&code)) else {
            return Err(format!("the server's function library {LIBRARY:?} says nothing that is known here"));
        };
        match self.difference(&mark.part, "the server") {
            Some(difference) => Err(difference),
            None => Ok(MarkSeen::Fits),
        }
    }
}

impl Mark {
    fn code(&self) -> String {
        let left = if self.left { "-- keys left\n" } else { "" };
        let [cluster, shims, shim] = self.part.lines().map(|(key, value)| format!("-- {key} {value}"));
        format!(
            "#!lua name={LIBRARY}\n\
             -- Whose keys this server holds. DistCache reads it before it serves them, and writes it again if it is deleted.\n\
             {cluster}\n{shims}\n{shim}\n-- wait {}\n-- seen {}\n{left}\
             redis.register_function('{LIBRARY}', function() return redis.status_reply('OK') end)\n",
            self.wait.as_micros().div_ceil(1000),
            self.seen
        )
    }

    fn parse(code: &str) -> Option<Mark> {
        let line = |key: &str| {
            code.lines().find_map(|line| line.strip_prefix("-- ")?.strip_prefix(key)?.strip_prefix(' '))
        };
        let part = MarkedPart::parse(line)?;
        let wait = Duration::from_millis(line("wait")?.parse().ok()?);
        Some(Mark { part, wait, seen: line("seen")?.parse().ok()?, left: line("keys") == Some("left") })
    }
}

/// The code of the library, from the reply to FUNCTION LIST; none if there is no such library.
fn code(list: &Value) -> Option<Bytes> {
    let fields = list.elements()?.first()?.elements()?;
    let at = fields.iter().position(|field| field.bytes().is_some_and(|name| name == "library_code"))?;
    fields.get(at + 1)?.bytes().cloned()
}

impl ServerMark {
    pub(super) fn new(part: MarkedPart) -> ServerMark {
        ServerMark {
            part,
            clock: None,
            keyspace: Value::Null,
            found: None,
            written: None,
            is_asked: false,
            is_refused: false,
            divided: false,
            left: false,
        }
    }

    /// Keys are about to leave, so that whoever does not know of it must not have the server any more.
    pub(super) fn divide(&mut self) {
        if !self.part.next.is_empty() {
            self.rewrite(|mark| &mut mark.divided);
        }
    }

    /// Keys that were to leave have left.
    pub(super) fn leave(&mut self) {
        self.rewrite(|mark| &mut mark.left);
    }

    fn rewrite(&mut self, of: fn(&mut ServerMark) -> &mut bool) {
        if !std::mem::replace(of(self), true) {
            self.written = None;
        }
    }

    pub(super) fn is_divided(&self) -> bool {
        self.divided
    }

    pub(super) fn has_left(&self) -> bool {
        self.left
    }

    /// Takes the server's clock from INFO.
    pub(super) fn hear_clock(&mut self, now: Time, info: &str) {
        let micros = server::field(info, "server_time_usec").and_then(|micros| micros.parse::<u64>().ok());
        self.clock = micros.map(|micros| (micros / 1_000_000, now));
    }

    /// The same from TIME.
    pub(super) fn hear_time(&mut self, now: Time, seconds: u64) {
        self.clock = Some((seconds, now));
    }

    pub(super) fn hear_keyspace(&mut self, info: Value) {
        self.keyspace = info;
    }

    /// Whether the server had one that can be read.
    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Takes the answer to the question for it. The error says why the server must not be used, unless somebody `adopts` it.
    pub(super) fn found(&mut self, list: &Value, adopts: bool) -> Result<(), String> {
        self.found = code(list).and_then(|code| Mark::parse(&String::from_utf8_lossy(&code)));
        self.divided = self.found.as_ref().is_some_and(|mark| self.part.is_next(&mark.part));
        self.left = self.divided && self.found.as_ref().is_some_and(|mark| mark.left);
        match self.part.check(list, &self.keyspace) {
            Err(difference) if !adopts => Err(format!("{difference}: {REMEDY}")),
            _ => Ok(()),
        }
    }

    /// What is known of earlier incarnations where their users are gone.
    pub(super) fn earlier(&self, now: Time, is_first: bool) -> EarlierIncarnations {
        let Some(mark) = &self.found else {
            return match is_first {
                true => EarlierIncarnations::NONE,
                false => EarlierIncarnations::unrecorded(Unrecorded::Unknown),
            };
        };
        // What was written after it may be lost, but not for how long.
        let age = self.server_time(now).and_then(|time| time.checked_sub(mark.seen));
        let unrecorded =
            age.map_or(Unrecorded::Unknown, |age| Unrecorded::Within(Duration::from_secs(age + 1)));
        EarlierIncarnations { recorded: mark.wait, ..EarlierIncarnations::unrecorded(unrecorded) }
    }

    fn server_time(&self, now: Time) -> Option<u64> {
        let (seconds, at) = self.clock?;
        Some(seconds + now.since(at).as_secs())
    }

    /// What writes it, if that is due: `incarnation` has not yet, or not for so long a wait, or a while ago.
    pub(super) fn command(&mut self, now: Time, incarnation: u64, wait: Duration) -> Option<Command> {
        let fresh = |(number, at, waited): (u64, Time, Duration)| {
            number == incarnation && waited == wait && now.since(at) < RENEW
        };
        if self.is_asked || self.written.is_some_and(fresh) {
            return None;
        }
        (self.written, self.is_asked) = (Some((incarnation, now, wait)), true);
        // Without a clock nobody can tell how old it is, which is as good as very old.
        let seen = self.server_time(now).unwrap_or(0);
        let shims = if self.divided { self.part.next.clone() } else { self.part.shims.clone() };
        let part = MarkedPart { shims, ..self.part.clone() };
        let mark = Mark { part, wait, seen, left: self.left };
        Some(Command::from_args(&["FUNCTION", "LOAD", "REPLACE", &mark.code()]))
    }

    /// Whether what was written last is what it is to say.
    pub(super) fn is_current(&self) -> bool {
        self.written.is_some()
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// The server has answered it; what to tell people, who are not told again.
    pub(super) fn answered(&mut self, reply: &[u8]) -> Option<String> {
        self.is_asked = false;
        let error = String::from_utf8_lossy(reply.strip_prefix(b"-")?.trim_ascii_end());
        // Of what it does not know it shows what it was told.
        let error = error.split(", with args").next().unwrap_or_default();
        (!std::mem::replace(&mut self.is_refused, true)).then(|| {
            format!(
                "the server keeps no mark of whose keys it holds ({error}): members that are started with other shims or another \
                 secret are only told from a sample of the keys. Marks take Redis 7 or Valkey, and +function for the storage user"
            )
        })
    }

    /// It did not get there, or nobody knows.
    pub(super) fn lost(&mut self) {
        (self.written, self.is_asked) = (None, false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use wire::resp::Value;

    use super::{Mark, ServerMark};
    use crate::coherence::lease::{EarlierIncarnations, LeaseLimits, Unrecorded};
    use crate::storage::MarkedPart;
    use crate::time::Time;

    fn part(id: &str, shims: &[&str], shim: &str) -> MarkedPart {
        MarkedPart {
            id: id.to_owned(),
            cluster: "prod d".to_owned(),
            shims: shims.iter().map(|name| (*name).to_owned()).collect(),
            shim: shim.to_owned(),
            next: Vec::new(),
        }
    }

    fn keyspace(info: &'static str) -> Value {
        Value::Bulk(Bytes::from_static(info.as_bytes()))
    }

    fn keeper(part: MarkedPart) -> ServerMark {
        let mut mark = ServerMark::new(part);
        mark.hear_keyspace(keyspace("# Keyspace\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n"));
        mark
    }

    /// The reply to FUNCTION LIST once this has been written.
    fn listed(code: &str) -> Value {
        let bulk = |text: &str| Value::Bulk(Bytes::copy_from_slice(text.as_bytes()));
        Value::Array(vec![Value::Array(vec![
            bulk("library_name"),
            bulk("distcache"),
            bulk("functions"),
            Value::Array(vec![]),
            bulk("library_code"),
            bulk(code),
        ])])
    }

    fn mark(part: MarkedPart) -> Value {
        listed(&Mark { part, wait: Duration::from_millis(203), seen: 100, left: false }.code())
    }

    const TWO: [&str; 2] = ["shim-1", "shim-2"];

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for part in [part("1f", &TWO, "shim-2"), part("", &["100%:a b", "%41", "\u{fc}\n-- shim x"], "%41")] {
            let mark = Mark { part, wait: Duration::from_micros(1_020_001), seen: 1_764_100_000, left: true };
            let later = mark.code().replace("-- wait", "-- colour blue\n-- wait");
            let read = Mark::parse(&mark.code()).expect("a mark");
            assert_eq!(Mark::parse(&later).as_ref(), Some(&read), "a later release may say more");
            assert_eq!(read, Mark { wait: Duration::from_millis(1021), ..mark });
        }
        for code in
            ["", "#!lua name=distcache\n-- cluster a b\n-- shims s\n-- shim s\n-- wait -1\n-- seen 1\n"]
        {
            assert_eq!(Mark::parse(code), None);
        }
    }

    #[test]
    fn what_another_part_holds_is_refused_in_words() {
        let check = |theirs: MarkedPart, expected: Option<&str>| {
            let own = part("1f", &TWO, "shim-1");
            let found = keeper(own.clone()).found(&mark(theirs.clone()), false);
            match expected {
                None => assert_eq!(found, Ok(())),
                Some(expected) => {
                    assert!(found.as_ref().is_err_and(|text| text.contains(expected)), "{found:?}")
                }
            }
            assert_eq!(keeper(own).found(&mark(theirs), true), Ok(()), "a person has said so");
        };
        check(part("1f", &TWO, "shim-1"), None);
        check(part("2f", &TWO, "shim-1"), Some("keys of cluster \"prod d\" with another secret"));
        check(part("1f", &TWO, "shim-2"), Some("the keys of shim-2, and is `storage` of shim-1 now"));
        let three = ["shim-1", "shim-2", "shim-3"];
        let told = "[[shim]] entries shim-1, shim-2, shim-3, and they are shim-1, shim-2 now";
        check(part("1f", &three, "shim-1"), Some(told));
        check(
            part("1f", &["shim-1"], "shim-1"),
            Some("[[shim]] entries shim-1, and they are shim-1, shim-2 now"),
        );
        let mut own = keeper(part("1f", &TWO, "shim-1"));
        assert!(
            own.found(&listed("#!lua name=distcache\n"), false)
                .is_err_and(|text| text.contains("nothing that is known"))
        );
        assert_eq!(own.found(&Value::Array(vec![]), false), Ok(()));
        assert_eq!(own.found(&Value::Error(Bytes::from_static(b"ERR unknown command")), false), Ok(()));
        own.hear_keyspace(keyspace("# Keyspace\r\n"));
        assert_eq!(own.found(&mark(part("2f", &TWO, "shim-2")), false), Ok(()), "it is empty");
        assert_eq!(
            own.earlier(Time(0), true).recorded,
            Duration::from_millis(203),
            "copies of what it had may be there"
        );
        own.hear_keyspace(Value::Error(Bytes::from_static(b"NOPERM no")));
        assert!(
            own.found(&mark(part("2f", &TWO, "shim-2")), false).is_err(),
            "nobody knows whether it is empty"
        );
        // One server alone has all keys.
        let mut alone = keeper(part("1f", &["a"], "a"));
        assert_eq!(alone.found(&mark(part("2f", &["b"], "b")), false), Ok(()));
    }

    #[test]
    fn earlier_leases_are_those_of_the_mark_and_of_whoever_came_after_it() {
        let mut own = keeper(part("1f", &TWO, "shim-1"));
        let limits = LeaseLimits::default();
        let wait =
            |own: &ServerMark, now, is_first| limits.wait(own.earlier(now, is_first), None).as_millis();
        own.hear_clock(Time(0), "server_time_usec:160999999\r\n");
        assert_eq!(own.earlier(Time(0), true), EarlierIncarnations::NONE);
        assert_eq!(own.earlier(Time(0), false), EarlierIncarnations::unrecorded(Unrecorded::Unknown));
        own.found(&mark(part("1f", &TWO, "shim-1")), false).expect("it fits");
        let earlier = own.earlier(Time(0), true);
        assert_eq!(
            earlier.unrecorded,
            Unrecorded::Within(Duration::from_secs(61)),
            "160 less 100, and a part"
        );
        assert!(!earlier.same_data && earlier.recorded == Duration::from_millis(203));
        assert_eq!(wait(&own, Time(0), false), 1026);
        assert_eq!(wait(&own, Time(539_000_000), false), 10_100, "nine minutes later");
        own.hear_clock(Time(0), "server_time_usec:99000000\r\n");
        assert_eq!(wait(&own, Time(0), false), 60_600, "a clock that went back");
        own.hear_clock(Time(0), "");
        assert_eq!(wait(&own, Time(0), false), 60_600);
    }

    #[test]
    fn what_people_are_told_is_the_server_s_error_and_not_the_mark_again() {
        let reply =
            b"-ERR unknown command 'FUNCTION', with args beginning with: 'LOAD' 'REPLACE' '#!lua'\r\n";
        let told = keeper(part("1f", &TWO, "shim-1")).answered(reply).expect("people are told");
        assert!(told.contains("holds (ERR unknown command 'FUNCTION'): members"), "{told}");
    }

    #[test]
    fn it_is_written_once_for_each_incarnation_and_every_minute() {
        let mut own = keeper(part("1f", &TWO, "shim-1"));
        let ms = Duration::from_millis;
        let minute = 60_000_000;
        let mut write = |now, number, wait| {
            let command = own.command(Time(now), number, ms(wait));
            assert!(own.command(Time(now), number, ms(wait)).is_none(), "it is on its way, or there");
            own.answered(b"+OK\r\n");
            command.is_some()
        };
        assert!(write(0, 1, 1020) && !write(minute - 1, 1, 1020) && write(minute, 1, 1020));
        assert!(write(minute, 2, 1020) && write(minute, 2, 20) && !write(minute, 2, 20));
        own.command(Time(2 * minute), 2, ms(20));
        assert!(own.is_asked());
        own.lost();
        assert!(!own.is_asked());
        assert!(own.command(Time(2 * minute), 2, ms(20)).is_some(), "nobody knows whether it is there");
        let told = own.answered(b"-NOPERM no\r\n").expect("people are told");
        assert!(told.contains("(NOPERM no)") && own.command(Time(2 * minute), 2, ms(20)).is_none());
        own.command(Time(3 * minute), 2, ms(20)).expect("it may be allowed now");
        assert_eq!(own.answered(b"-NOPERM no\r\n"), None, "they know");
    }
}
