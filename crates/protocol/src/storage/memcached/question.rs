//! Commands for storage as requests of the meta protocol, and memcached's replies as storage's. No sockets.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::memcached::{KEY_BYTES_MAX, ReplyHead, write_key};
use wire::resp::{Command, reply};

use super::mark;
use crate::storage::Store;

/// More flags than any command needs; with more, memcached would take a data block for commands.
const FLAGS_MAX: usize = 15;
/// Answers a fill whose value must not be kept: one that is stale or being made anew is read by everyone for himself.
const MARKED: &[u8] = b"-ERR DistCache: the item is marked as stale or being made anew\r\n";

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// PTTL and GET at once.
    Fill,
    Get,
    Touch,
    Ping,
    Flush,
    /// The mark behind it, of which the command knows nothing.
    Mark,
    /// What may set an item, and counts as that whatever is answered.
    Set,
    /// What changes an item that is there.
    Change,
    Native,
}

impl Question {
    /// Whether the server may count a change for it.
    pub(super) fn changes(self) -> bool {
        matches!(self, Question::Flush | Question::Mark | Question::Set | Question::Change)
    }

    /// Whether the server may have counted a change, now that it has answered this.
    pub(super) fn has_changed(self, text: &[u8]) -> bool {
        let missed = text.starts_with(b"EN") || text.starts_with(b"NF");
        self.changes() && !(self == Question::Change && missed)
    }
}

/// The replies to a command; a fill has two.
pub(super) type Replies = SmallVec<[Bytes; 2]>;

/// What became of a store: questions that were written, or replies at once.
pub(super) enum Written {
    Asked(SmallVec<[Question; 2]>),
    Refused(Replies),
}

/// Writes the requests of a store, and that for the mark behind whatever takes it away. Nothing is written if any of its commands is none that memcached could carry out.
pub(super) fn write(store: &Store, mark: &[u8], out: &mut Vec<u8>) -> Written {
    let commands: Result<SmallVec<[Command; 2]>, _> =
        store.commands.iter().map(|frame| Command::parse(frame.clone())).collect();
    let Ok(commands) = commands else { return refused(store, "this is no command") };
    let is = |command: &Command, name: &str| command.name().eq_ignore_ascii_case(name.as_bytes());
    if let [ttl, get] = &commands[..]
        && is(ttl, "PTTL")
        && is(get, "GET")
        && ttl.get(1) == get.get(1)
    {
        let start = out.len();
        return match write_line("mg", get.get(1), None, &[b"v", b"f", b"c", b"t"], out) {
            Ok(()) => Written::Asked(SmallVec::from_elem(Question::Fill, 1)),
            Err(error) => {
                out.truncate(start);
                refused(store, error)
            }
        };
    }
    let start = out.len();
    let mut questions = SmallVec::new();
    for command in &commands {
        match write_one(command, out) {
            Ok(Question::Flush) => {
                out.extend_from_slice(mark);
                questions.extend([Question::Flush, Question::Mark]);
            }
            Ok(question) => questions.push(question),
            Err(error) => {
                out.truncate(start);
                return refused(store, error);
            }
        }
    }
    Written::Asked(questions)
}

fn refused(store: &Store, error: &str) -> Written {
    let text = Bytes::from(format!("-CLIENT_ERROR DistCache: {error}\r\n"));
    Written::Refused(store.commands.iter().map(|_| text.clone()).collect())
}

fn write_one(command: &Command, out: &mut Vec<u8>) -> Result<Question, &'static str> {
    let key = command.get(1);
    let flags: SmallVec<[&[u8]; 8]> = command.args().skip(2).collect();
    match command.name().to_ascii_uppercase().as_slice() {
        b"GET" => write_line("mg", key, None, &[b"v", b"f", b"c"], out).map(|()| Question::Get),
        b"TOUCH" => write_line("mg", key, None, &[], out).map(|()| Question::Touch),
        b"PING" => {
            out.extend_from_slice(b"mn\r\n");
            Ok(Question::Ping)
        }
        b"FLUSHALL" => {
            out.extend_from_slice(b"flush_all\r\n");
            Ok(Question::Flush)
        }
        b".MG" | b".MGT" => {
            // It touches the item, or makes one.
            let changes = flags.iter().any(|flag| matches!(flag.first(), Some(b'T' | b'N')));
            let question = if changes { Question::Change } else { Question::Native };
            write_line("mg", key, None, &flags, out).map(|()| question)
        }
        b".MD" => write_line("md", key, None, &flags, out).map(|()| Question::Change),
        b".MA" => write_line("ma", key, None, &flags, out).map(|()| Question::Change),
        b".ME" => write_line("me", key, None, &[], out).map(|()| Question::Native),
        b".MS" => {
            let (value, flags) = flags.split_first().ok_or("a value is missing")?;
            write_line("ms", key, Some(value), flags, out).map(|()| Question::Set)
        }
        _ => Err("memcached storage knows no such command"),
    }
}

/// A line that memcached is sure to read to its end: after some errors it takes what follows for commands.
fn write_line(
    name: &str,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    flags: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let key = key.filter(|key| !key.is_empty()).ok_or("a key is missing")?;
    if key == mark::KEY {
        return Err("this key is DistCache's own: it says whose keys the server holds");
    }
    let legal = |flag: &&[u8]| !flag.is_empty() && flag.len() <= 64 && flag.iter().all(u8::is_ascii_graphic);
    if flags.len() > FLAGS_MAX || !flags.iter().all(legal) {
        return Err("flags that memcached would not read");
    }
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    let start = out.len();
    let base64 = write_key(key, out);
    if out.len() - start > KEY_BYTES_MAX {
        return Err("the key is too long for memcached");
    }
    if let Some(value) = value {
        out.extend_from_slice(format!(" {}", value.len()).as_bytes());
    }
    for flag in flags {
        out.push(b' ');
        out.extend_from_slice(flag);
    }
    if base64 {
        out.extend_from_slice(b" b");
    }
    out.extend_from_slice(b"\r\n");
    if let Some(value) = value {
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

/// memcached's answer to a question as storage's replies. `Err`: it answers something else.
pub(super) fn read(question: Question, head: ReplyHead, text: &Bytes) -> Result<Replies, ()> {
    if question == Question::Mark {
        return Ok(SmallVec::new());
    }
    if head == ReplyHead::Error {
        let mut error = Vec::with_capacity(text.len() + 3);
        reply::error(text, &mut error);
        let error = Bytes::from(error);
        let count = if question == Question::Fill { 2 } else { 1 };
        return Ok(SmallVec::from_elem(error, count));
    }
    let found = head == ReplyHead::Value || text.starts_with(b"HD");
    let one = |bytes: &'static [u8]| Ok(SmallVec::from_elem(Bytes::from_static(bytes), 1));
    match (question, head) {
        (Question::Ping, ReplyHead::Noop) => one(reply::PONG),
        (Question::Flush, ReplyHead::Other) if &text[..] == b"OK" => one(reply::OK),
        (Question::Touch, ReplyHead::Status) => one(if found { b":1\r\n" } else { b":0\r\n" }),
        (Question::Get, ReplyHead::Value | ReplyHead::Status) => {
            Ok(SmallVec::from_elem(value(found, text), 1))
        }
        (Question::Fill, ReplyHead::Value | ReplyHead::Status) => {
            Ok(SmallVec::from_buf([remaining(found, text), value(found, text)]))
        }
        (Question::Native | Question::Set | Question::Change, ReplyHead::Value | ReplyHead::Status) => {
            Ok(SmallVec::from_elem(bulk(text), 1))
        }
        _ => Err(()),
    }
}

fn bulk(text: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 16);
    reply::bulk(text, &mut out);
    out.into()
}

fn value(found: bool, text: &[u8]) -> Bytes {
    if found { bulk(text) } else { Bytes::from_static(b"$-1\r\n") }
}

/// As PTTL has it. memcached's clock ticks once a second, so that of the last second nothing may be left.
fn remaining(found: bool, text: &[u8]) -> Bytes {
    if !found {
        return Bytes::from_static(b":-2\r\n");
    }
    let line = text.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut seconds = None;
    for token in line.split(|&byte| byte == b' ').skip(2) {
        match token {
            b"W" | b"X" | b"Z" => return Bytes::from_static(MARKED),
            [b't', digits @ ..] => {
                seconds = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok())
            }
            _ => {}
        }
    }
    match seconds {
        Some(-1i64) => Bytes::from_static(b":-1\r\n"),
        Some(seconds) => Bytes::from(format!(":{}\r\n", (seconds - 1).max(0).saturating_mul(1000))),
        None => Bytes::from_static(MARKED),
    }
}

#[cfg(test)]
mod tests {
    use crate::storage::{Lane, Reach};

    use super::*;

    fn store(commands: &[&[&str]]) -> Store {
        let commands = commands.iter().map(|args| Command::from_args(args).frame().clone()).collect();
        Store { ticket: 1, lane: Lane::Shared { resp3: false }, reach: Reach::Whole, commands }
    }

    fn check(commands: &[&[&str]], expected: &str) {
        let mut out = Vec::new();
        let Written::Asked(_) = write(&store(commands), b"ms mark 0\r\n\r\n", &mut out) else {
            panic!("{commands:?} is refused")
        };
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn commands_become_requests() {
        check(&[&["PTTL", "k"], &["GET", "k"]], "mg k v f c t\r\n");
        check(&[&["GET", "k with blank"]], "mg ayB3aXRoIGJsYW5r v f c b\r\n");
        check(&[&["TOUCH", "k"], &["PING"]], "mg k\r\nmn\r\n");
        check(&[&["FLUSHALL"]], "flush_all\r\nms mark 0\r\n\r\n");
        check(&[&[".ms", "k", "a\r\nb", "T0", "MA"]], "ms k 4 T0 MA\r\na\r\nb\r\n");
        check(&[&[".ma", "k", "D5", "v"]], "ma k D5 v\r\n");
    }

    #[test]
    fn nothing_is_written_that_memcached_would_not_read_to_its_end() {
        let long = "k".repeat(251);
        for commands in [
            &[&["GET", &long][..]][..],
            &[&[".ms", "k", "v", "T0 \r\nflush_all"]],
            &[&[".ms", "k", "v", ""]],
            &[&[".ms", "k"]],
            &[&["GET", ""]],
            &[&["HGETALL", "k"]],
            &[&["GET", "distcache:mark"]],
            &[&[".md", "distcache:mark"]],
            &[&["PING"], &["HGETALL", "k"]],
        ] {
            let mut out = Vec::new();
            let Written::Refused(replies) = write(&store(commands), b"ms mark 0\r\n\r\n", &mut out) else {
                panic!("{commands:?} is written")
            };
            assert_eq!((replies.len(), out.len()), (commands.len(), 0));
            assert!(replies[0].starts_with(b"-CLIENT_ERROR DistCache: "), "{:?}", replies[0]);
        }
    }

    #[test]
    fn replies_become_storages() {
        let replies = |question, head, text: &'static str| {
            let replies = read(question, head, &Bytes::from_static(text.as_bytes())).expect("an answer");
            replies.iter().map(|reply| String::from_utf8_lossy(reply).into_owned()).collect::<Vec<_>>()
        };
        use ReplyHead::{Error, Noop, Status, Value};
        assert_eq!(replies(Question::Fill, Status, "EN"), [":-2\r\n", "$-1\r\n"]);
        let whole = "VA 1 f0 c7 t-1\r\nx";
        assert_eq!(replies(Question::Fill, Value, whole), [":-1\r\n", "$17\r\nVA 1 f0 c7 t-1\r\nx\r\n"]);
        assert_eq!(replies(Question::Fill, Value, "VA 1 f0 c7 t3\r\nx")[0], ":2000\r\n");
        assert_eq!(replies(Question::Fill, Value, "VA 1 f0 c7 t1\r\nx")[0], ":0\r\n");
        let marked = &replies(Question::Fill, Value, "VA 1 f0 c7 t1 X W\r\nx")[0];
        assert!(marked.starts_with('-'), "{marked}");
        assert_eq!(replies(Question::Touch, Status, "EN"), [":0\r\n"]);
        assert_eq!(replies(Question::Ping, Noop, "MN"), ["+PONG\r\n"]);
        let error = "SERVER_ERROR out of memory";
        assert_eq!(replies(Question::Fill, Error, error), vec![format!("-{error}\r\n"); 2]);
        assert!(read(Question::Ping, Status, &Bytes::from_static(b"HD")).is_err());
    }
}
