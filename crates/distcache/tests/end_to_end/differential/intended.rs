//! Where DistCache answers otherwise than a redis-server and means it. Everything else that differs is a mistake.

use wire::resp::{Command, Value};

/// Two replies to one command that are not the same; `None` where the connection ended instead.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The command; `None` where the bytes are no command.
    pub(crate) command: Option<Command>,
    pub(crate) redis: Option<Vec<u8>>,
    pub(crate) ours: Option<Vec<u8>>,
    /// All that was sent.
    pub(crate) stream: Vec<u8>,
}

/// A kind of difference, with its reason.
pub(crate) struct Intended {
    pub(crate) reason: &'static str,
    /// A stream that shows it.
    pub(crate) example: &'static [u8],
    /// What follows cannot be compared.
    pub(crate) ends: bool,
    pub(crate) fits: fn(&Difference) -> bool,
}

pub(crate) const INTENDED: [Intended; 12] = [
    Intended {
        reason: "the error for an unknown command says which commands are known",
        example: b"NOSUCH a\r\n",
        ends: false,
        fits: |difference| {
            let Some((redis, ours)) = difference.errors() else { return false };
            redis.starts_with("-ERR unknown command ") && ours.starts_with(redis.trim_end())
        },
    },
    Intended {
        reason: "HELLO tells of a router, not of a storage server",
        example: b"HELLO 3\r\n",
        ends: false,
        fits: |difference| difference.is("hello") && difference.looks_alike(),
    },
    Intended {
        reason: "Redis skips two bytes behind a bulk string unread; a proxy that passes frames on cannot",
        example: b"*1\r\n$4\r\nPINGxx",
        ends: true,
        fits: |difference| difference.is_protocol_error("expected CRLF after bulk"),
    },
    Intended {
        reason: "Redis skips the byte behind the CR of a length unread; a proxy that passes frames on cannot",
        example: b"*1\rx$4\r\nPING\r\n",
        ends: true,
        fits: |difference| {
            let lengths = ["invalid multibulk length", "invalid bulk length"];
            let bare = |pair: &[u8]| pair[0] == b'\r' && pair[1] != b'\n';
            difference.stream.windows(2).any(bare)
                && lengths.iter().any(|text| difference.is_protocol_error(text))
        },
    },
    Intended {
        reason: "Redis looks for the `$` of an argument only when the line has ended",
        example: b"*2\r\n+",
        ends: true,
        fits: |difference| {
            let ours = difference.ours.as_deref().unwrap_or_default();
            difference.redis.is_none() && ours.starts_with(b"-ERR Protocol error: expected '$', got '")
        },
    },
    Intended {
        reason: "errors are text: what is no UTF-8 in them is shown as such, and a NUL does not cut them off",
        example: b"\xff\r\n",
        ends: false,
        fits: |difference| {
            let (Some(redis), Some(ours)) = (&difference.redis, &difference.ours) else { return false };
            let text = std::str::from_utf8(redis).is_ok() && !ours.contains(&0);
            let begin = |reply: &[u8]| {
                reply.starts_with(b"-").then(|| reply.iter().position(|byte| *byte == b'\'')).flatten()
            };
            !text && begin(redis).is_some_and(|end| ours.starts_with(&redis[..end]))
        },
    },
    Intended {
        reason: "of several mistakes in one command, that in its keys is told first: nothing goes on without them",
        example: b"XREAD COUNT x y z\r\n",
        ends: false,
        fits: |difference| difference.errors().is_some_and(|(_, ours)| KEY_ERRORS.contains(&ours.trim_end())),
    },
    Intended {
        reason: "a command has at most `arguments_max` arguments",
        example: b"*1048577\r\n",
        ends: true,
        fits: |difference| {
            let many = |count: &[u8]| count.iter().take_while(|byte| byte.is_ascii_digit()).count() >= 7;
            difference.is_protocol_error("invalid multibulk length")
                && difference.stream.split(|byte| *byte == b'*').any(many)
        },
    },
    Intended {
        reason: "a command has at most `command_bytes_max` bytes",
        example: b"*1\r\n$400000000\r\n",
        ends: true,
        fits: |difference| {
            let large = |length: &[u8]| length.iter().take_while(|byte| byte.is_ascii_digit()).count() >= 8;
            difference.is_protocol_error("invalid bulk length")
                && difference.stream.split(|byte| *byte == b'$').any(large)
        },
    },
    Intended {
        reason: "COMMAND lists in the order of a server's hash table; Redis cuts long replies off when its client ends",
        example: b"COMMAND\r\n",
        ends: true,
        fits: |difference| {
            let count =
                |reply: &Option<Vec<u8>>| reply.as_ref().and_then(|reply| reply.first_chunk::<6>().copied());
            difference.is("command") && count(&difference.redis) == count(&difference.ours)
        },
    },
    Intended {
        reason: "there is one database",
        example: b"SELECT 1\r\n",
        ends: true,
        fits: |difference| {
            let refused = difference.ours.as_deref() == Some(b"-ERR DB index is out of range\r\n");
            refused && difference.is("select") && difference.redis.as_deref() == Some(b"+OK\r\n")
        },
    },
    Intended {
        reason: "Redis does not see the end of a line behind a NUL, and so waits for ever",
        example: b"PI\0NG\r\n",
        ends: true,
        fits: |difference| difference.redis.is_none() && difference.stream.contains(&0),
    },
];

/// Errors of commands whose keys cannot be found.
pub(crate) const KEY_ERRORS: [&str; 9] = [
    "-ERR syntax error",
    "-ERR value is not an integer or out of range",
    "-ERR Bad number of keys provided",
    "-ERR Number of keys can't be negative",
    "-ERR Number of keys can't be greater than number of args",
    "-ERR numkeys should be greater than 0",
    "-ERR at least 1 input key is needed for 'zunionstore' command",
    "-ERR at least 1 input key is needed for 'zinterstore' command",
    "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
];

/// Sets are hash tables, seeded anew by each server.
const UNORDERED: [&str; 4] = ["smembers", "sinter", "sunion", "sdiff"];

impl Difference {
    fn is(&self, name: &str) -> bool {
        self.command.as_ref().is_some_and(|command| command.name().eq_ignore_ascii_case(name.as_bytes()))
    }

    fn is_protocol_error(&self, text: &str) -> bool {
        self.ours.as_deref() == Some(format!("-ERR Protocol error: {text}\r\n").as_bytes())
    }

    fn errors(&self) -> Option<(&str, &str)> {
        let redis = std::str::from_utf8(self.redis.as_deref()?).ok()?;
        let ours = std::str::from_utf8(self.ours.as_deref()?).ok()?;
        (redis.starts_with('-') && ours.starts_with('-')).then_some((redis, ours))
    }

    fn values(&self) -> Option<(Value, Value)> {
        let parse = |reply: &Option<Vec<u8>>| Value::parse(&reply.clone()?.into()).ok();
        Some((parse(&self.redis)?, parse(&self.ours)?))
    }

    fn looks_alike(&self) -> bool {
        match self.values() {
            Some((Value::Map(redis), Value::Map(ours))) => {
                redis.iter().map(|(field, _)| field).eq(ours.iter().map(|(field, _)| field))
            }
            Some((Value::Array(redis), Value::Array(ours))) => redis.len() == ours.len(),
            _ => false,
        }
    }

    /// Whether it is none: the same elements in another order where order means nothing.
    pub(crate) fn is_none(&self) -> bool {
        if self.redis == self.ours {
            return true;
        }
        let (redis, ours) = match self.values() {
            Some((Value::Array(redis), Value::Array(ours)) | (Value::Set(redis), Value::Set(ours))) => {
                (redis, ours)
            }
            _ => return false,
        };
        let sorted = |values: &[Value]| {
            let mut texts: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            texts.sort();
            texts
        };
        let same_elements = sorted(&redis) == sorted(&ours);
        same_elements && (UNORDERED.iter().any(|name| self.is(name)) || self.ties_are_sorted(&redis, &ours))
    }

    /// Whether both are sorted by text, which ends at a NUL for SORT: what is the same up to there stays in the order of
    /// the set.
    fn ties_are_sorted(&self, redis: &[Value], ours: &[Value]) -> bool {
        let by_text = |command: &Command| {
            (1..command.len()).any(|index| command.arg(index).eq_ignore_ascii_case(b"alpha"))
        };
        let sorts = ["sort", "sort_ro"].iter().any(|name| self.is(name));
        let text = |value: &Value| {
            let bytes = value.bytes().map(AsRef::as_ref).unwrap_or_default();
            bytes.split(|byte: &u8| *byte == 0).next().map(<[u8]>::to_vec)
        };
        sorts
            && self.command.as_ref().is_some_and(by_text)
            && redis.iter().map(text).eq(ours.iter().map(text))
    }
}

#[test]
fn what_a_sort_takes_for_the_same_may_have_any_order() {
    let is_none = |words: &[&str], redis: &[u8], ours: &[u8]| {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (redis, ours) = (Some(redis.to_vec()), Some(ours.to_vec()));
        Difference { command: Some(Command::from_args(&words)), redis, ours, stream: Vec::new() }.is_none()
    };
    let alpha = ["SORT", "a", "alpha"];
    assert!(is_none(&alpha, b"*2\r\n$0\r\n\r\n$1\r\n\0\r\n", b"*2\r\n$1\r\n\0\r\n$0\r\n\r\n"));
    assert!(!is_none(&alpha, b"*2\r\n$1\r\na\r\n$1\r\n\0\r\n", b"*2\r\n$1\r\n\0\r\n$1\r\na\r\n"));
    assert!(!is_none(&alpha, b"*1\r\n$0\r\n\r\n", b"*1\r\n$1\r\n\0\r\n"));
    assert!(!is_none(&["SORT", "a"], b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n", b"*2\r\n$1\r\n2\r\n$1\r\n1\r\n"));
    assert!(is_none(&["SMEMBERS", "a"], b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n", b"*2\r\n$1\r\n2\r\n$1\r\n1\r\n"));
}
