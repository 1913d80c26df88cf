//! What storage's reply says, whichever commands it understands. Not how a client gets to read it.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::Value;

use super::content_unique;
use super::shape::ExpectedReply;

/// The outcome of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemcachedOutcome {
    Done(Item),
    NotStored,
    Exists,
    NotFound,
    /// A line of storage's own, whole.
    Line(Bytes),
    /// The error as a client reads it.
    Failed(Vec<u8>),
}

/// What is known of the value that a command concerned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) value: Option<Bytes>,
    /// A letter and what follows it, each.
    tokens: SmallVec<[Bytes; 4]>,
}

impl Item {
    pub(super) fn token(&self, letter: u8) -> Option<&[u8]> {
        self.tokens.iter().find(|token| token.first() == Some(&letter)).map(|token| &token[1..])
    }

    /// Zero where storage keeps none.
    pub(super) fn client_flags(&self) -> &[u8] {
        self.token(b'f').unwrap_or(b"0")
    }

    /// The unique that storage gives the value, or the one that is made of it.
    pub(super) fn unique(&self, written: Option<&[u8]>) -> u64 {
        if let Some(text) = self.token(b'c').and_then(|text| std::str::from_utf8(text).ok()) {
            return text.parse().unwrap_or(0);
        }
        if let Some(text) = self.token(b'x').and_then(|text| std::str::from_utf8(text).ok()) {
            return u64::from_str_radix(text, 16).unwrap_or(0);
        }
        self.value.as_deref().or(written).map_or(0, content_unique)
    }

    /// Marks of an item that is stale or being made anew: `W`, `X`, `Z`.
    pub(super) fn marks(&self) -> impl Iterator<Item = &[u8]> {
        self.tokens.iter().map(|token| &token[..]).filter(|token| matches!(token, [b'W' | b'X' | b'Z']))
    }
}

/// Reads a complete RESP reply.
pub(super) fn outcome(asked: ExpectedReply, reply: &Bytes) -> MemcachedOutcome {
    if let Some(text) = reply.strip_prefix(b"-") {
        return MemcachedOutcome::Failed(error(text));
    }
    let Ok(value) = Value::parse(reply) else { return unexpected() };
    match (asked, value) {
        (ExpectedReply::Value, Value::Bulk(value)) => {
            MemcachedOutcome::Done(Item { value: Some(value), ..Item::default() })
        }
        (ExpectedReply::Value, Value::Null) => MemcachedOutcome::NotFound,
        (ExpectedReply::Stored, Value::Null) => MemcachedOutcome::NotStored,
        (ExpectedReply::Stored, Value::Simple(_)) => MemcachedOutcome::Done(Item::default()),
        (ExpectedReply::Counted, Value::Integer(0)) => MemcachedOutcome::NotFound,
        (ExpectedReply::Counted, Value::Integer(_)) => MemcachedOutcome::Done(Item::default()),
        (ExpectedReply::Meta, Value::Null) => MemcachedOutcome::NotFound,
        (ExpectedReply::Meta, Value::Bulk(text)) => native(&text),
        _ => unexpected(),
    }
}

/// A meta command's reply without its last line end.
fn native(text: &Bytes) -> MemcachedOutcome {
    let end = text.windows(2).position(|pair| pair == b"\r\n").unwrap_or(text.len());
    let mut words = Words { line: text.slice(..end) };
    let head = words.next().unwrap_or_default();
    match &head[..] {
        b"VA" if end + 2 <= text.len() => {
            let _length = words.next();
            MemcachedOutcome::Done(Item { value: Some(text.slice(end + 2..)), tokens: words.collect() })
        }
        b"HD" => MemcachedOutcome::Done(Item { value: None, tokens: words.collect() }),
        b"NS" => MemcachedOutcome::NotStored,
        b"EX" => MemcachedOutcome::Exists,
        b"NF" | b"EN" => MemcachedOutcome::NotFound,
        b"CLIENT_ERROR" | b"SERVER_ERROR" => MemcachedOutcome::Failed(text.to_vec()),
        b"ME" => MemcachedOutcome::Line(text.clone()),
        _ => unexpected(),
    }
}

struct Words {
    line: Bytes,
}

impl Iterator for Words {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let blanks = self.line.iter().take_while(|&&byte| byte == b' ').count();
        let _ = self.line.split_to(blanks);
        let end = self.line.iter().position(|&byte| byte == b' ').unwrap_or(self.line.len());
        (end > 0).then(|| self.line.split_to(end))
    }
}

/// memcached's own errors as they are, any other as one of the server's.
fn error(text: &[u8]) -> Vec<u8> {
    let text = text.trim_ascii_end();
    let own = [&b"CLIENT_ERROR "[..], b"SERVER_ERROR ", b"ERROR"].iter().any(|head| text.starts_with(head));
    match own {
        true => text.to_vec(),
        false => [b"SERVER_ERROR ", text].concat(),
    }
}

fn unexpected() -> MemcachedOutcome {
    MemcachedOutcome::Failed(
        b"SERVER_ERROR DistCache: storage gave a reply that does not fit the command".to_vec(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: ExpectedReply, reply: &'static str) -> MemcachedOutcome {
        outcome(asked, &Bytes::from_static(reply.as_bytes()))
    }

    #[test]
    fn a_value_comes_with_what_storage_says_of_it() {
        let MemcachedOutcome::Done(item) = check(ExpectedReply::Meta, "$21\r\nVA 5 f30 c17 W\r\nhello\r\n")
        else {
            panic!("it is there")
        };
        assert_eq!(item.value.as_deref(), Some(&b"hello"[..]));
        assert_eq!((item.client_flags(), item.unique(None)), (&b"30"[..], 17));
        assert_eq!(item.marks().collect::<Vec<_>>(), [b"W"]);
    }

    #[test]
    fn a_bare_value_has_no_flags_and_a_unique_of_its_content() {
        let MemcachedOutcome::Done(item) = check(ExpectedReply::Value, "$5\r\nhello\r\n") else {
            panic!("it is there")
        };
        assert_eq!((item.client_flags(), item.unique(None)), (&b"0"[..], 0x0aaf_4c61_ddcc_5e8a));
    }

    #[test]
    fn outcomes_and_errors_are_told_apart() {
        assert_eq!(check(ExpectedReply::Stored, "$-1\r\n"), MemcachedOutcome::NotStored);
        assert_eq!(check(ExpectedReply::Counted, ":0\r\n"), MemcachedOutcome::NotFound);
        assert_eq!(check(ExpectedReply::Meta, "$2\r\nEX\r\n"), MemcachedOutcome::Exists);
        assert_eq!(
            check(ExpectedReply::Meta, "-SERVER_ERROR out of memory\r\n"),
            MemcachedOutcome::Failed(b"SERVER_ERROR out of memory".to_vec())
        );
        assert_eq!(
            check(ExpectedReply::Value, "-BUSY try again\r\n"),
            MemcachedOutcome::Failed(b"SERVER_ERROR BUSY try again".to_vec())
        );
        assert!(matches!(check(ExpectedReply::Value, ":1\r\n"), MemcachedOutcome::Failed(_)));
        assert!(matches!(check(ExpectedReply::Meta, "$4\r\nwhat\r\n"), MemcachedOutcome::Failed(_)));
    }
}
