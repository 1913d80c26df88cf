//! The clients' commands in memcached's words, and its answers as the models tell them. Not what comes of them.

use bytes::Bytes;
use wire::resp::Value;

use super::operation::JepsenAction;

/// A request; none for what memcached does not have.
pub(super) fn request(what: &JepsenAction, key: &str) -> Option<Vec<u8>> {
    let store = |command: &str, value: &str| format!("{command} {key} 0 0 {}\r\n{value}\r\n", value.len());
    let text = match what {
        // Classic `get` ends with a line of its own, even behind an error.
        JepsenAction::Get => format!("mg {key} v\r\n"),
        JepsenAction::Set(value, None) => store("set", value),
        JepsenAction::Add(value) => store("add", value),
        JepsenAction::Extend(value) => store("append", value),
        // Made with 1 if it is not there, and without a time to live.
        JepsenAction::Incr => format!("ma {key} N0 J1 D1 v\r\n"),
        JepsenAction::Del => format!("delete {key}\r\n"),
        _ => return None,
    };
    Some(text.into_bytes())
}

/// The answer at the start of `received` and its length, once it is complete.
pub(super) fn reply(received: &[u8]) -> Option<(usize, Value)> {
    let end = received.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, length) = (&received[..end], end + 2);
    let text = String::from_utf8_lossy(line);
    let mut words = text.split(' ');
    let value = match words.next().unwrap_or_default() {
        "VA" => {
            let bytes: usize = words.next()?.parse().ok()?;
            let value = received.get(length..length + bytes)?;
            received.get(length + bytes..length + bytes + 2)?;
            let value = Value::Bulk(Bytes::copy_from_slice(value));
            return Some((length + bytes + 2, value));
        }
        "EN" => Value::Null,
        "STORED" => Value::Simple(Bytes::from_static(b"OK")),
        "NOT_STORED" => Value::Simple(Bytes::from_static(b"no")),
        "DELETED" => Value::Integer(1),
        "NOT_FOUND" => Value::Integer(0),
        _ => Value::Error(Bytes::copy_from_slice(line)),
    };
    Some((length, value))
}

#[cfg(test)]
mod tests {
    use super::{Value, reply, request};
    use crate::jepsen::operation::JepsenAction;
    use bytes::Bytes;

    #[test]
    fn requests_are_memcacheds() {
        let text = |what| String::from_utf8(request(&what, "k").unwrap()).unwrap();
        assert_eq!(text(JepsenAction::Set("ab".into(), None)), "set k 0 0 2\r\nab\r\n");
        assert_eq!(text(JepsenAction::Incr), "ma k N0 J1 D1 v\r\n");
        assert_eq!(request(&JepsenAction::Hlen, "k"), None);
        assert_eq!(request(&JepsenAction::Set("ab".into(), Some(100)), "k"), None);
    }

    #[test]
    fn answers_are_taken_once_they_are_whole() {
        for part in ["", "VA", "VA 3\r\nab", "VA 3\r\nabc\r", "STORED\r"] {
            assert_eq!(reply(part.as_bytes()), None, "{part:?}");
        }
        let abc = Value::Bulk(Bytes::from_static(b"abc"));
        assert_eq!(reply(b"VA 3\r\nabc\r\nEN\r\n"), Some((11, abc)));
        assert_eq!(reply(b"EN\r\nEN\r\n"), Some((4, Value::Null)));
        assert_eq!(reply(b"NOT_FOUND\r\n"), Some((11, Value::Integer(0))));
        assert!(matches!(reply(b"SERVER_ERROR busy\r\n"), Some((19, Value::Error(_)))));
    }
}
