//! Which protocol the first bytes of a server are of, where they are not of the one that was expected. Not how to speak it.

use std::fmt;

/// A protocol as people call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    Http,
    Memcached,
    Redis,
    Ssh,
    /// An alert or a handshake.
    Tls,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Foreign::Http => "HTTP",
            Foreign::Memcached => "memcached",
            Foreign::Redis => "RESP (Redis)",
            Foreign::Ssh => "SSH",
            Foreign::Tls => "TLS",
        })
    }
}

/// What speaks so, when it was asked for something in RESP or in memcached's text. `None`: too little to tell.
pub fn speaks(first: &[u8]) -> Option<Foreign> {
    let starts = |words: &[&str]| words.iter().any(|word| first.starts_with(word.as_bytes()));
    match first {
        // A record: an alert (21) or a handshake (22) of some version 3.
        [0x15 | 0x16, 3, ..] => Some(Foreign::Tls),
        // Servers answer with a page alone to what is too garbled for them.
        _ if starts(&["HTTP/", "<!DOCTYPE", "<!doctype", "<html", "<HTML"]) => Some(Foreign::Http),
        _ if starts(&["ERROR", "CLIENT_ERROR", "SERVER_ERROR"]) => Some(Foreign::Memcached),
        _ if starts(&["SSH-"]) => Some(Foreign::Ssh),
        _ if starts(&["-ERR ", "-NOAUTH ", "-NOPERM ", "-DENIED ", "-LOADING ", "-WRONGPASS "]) => {
            Some(Foreign::Redis)
        }
        _ => None,
    }
}

/// Whether a client's line of these words is HTTP: the line of a request, or the header that every one has. A web page can have a
/// browser send such to any port, with lines of its own after them.
pub fn is_http_request<'a>(mut words: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
    const METHODS: [&[u8]; 8] =
        [b"CONNECT", b"DELETE", b"GET", b"HEAD", b"OPTIONS", b"PATCH", b"POST", b"PUT"];
    let three = words.len() == 3;
    let Some(first) = words.next() else { return false };
    let version = words.nth(1).filter(|_| three);
    first.eq_ignore_ascii_case(b"host:")
        || METHODS.contains(&first) && version.is_some_and(|version| version.starts_with(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::{Foreign, is_http_request, speaks};

    #[test]
    fn requests_of_browsers_are_known_by_a_line() {
        let check = |line: &str, expected: bool| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(is_http_request(words.into_iter()), expected, "{line}");
        };
        for line in ["POST / HTTP/1.1", "PUT /x HTTP/2", "Host: a", "host:", "HOST: a b c"] {
            check(line, true);
        }
        for line in [
            "",
            "POST",
            "POST /",
            "get / HTTP/1.1",
            "SET / HTTP/1.1",
            "GET a b",
            "GET / HTTP/1.1 x",
            "Hosts: a",
        ] {
            check(line, false);
        }
    }

    #[test]
    fn servers_are_known_by_their_first_bytes() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Some(Foreign::Http)),
            (b"<!DOCTYPE HTML>", Some(Foreign::Http)),
            (b"ERROR\r\n", Some(Foreign::Memcached)),
            (b"CLIENT_ERROR bad command line format\r\n", Some(Foreign::Memcached)),
            (b"-ERR unknown command 'stats'", Some(Foreign::Redis)),
            (b"-NOAUTH Authentication required.\r\n", Some(Foreign::Redis)),
            (b"SSH-2.0-OpenSSH_9.2", Some(Foreign::Ssh)),
            (b"\x15\x03\x01\x00\x02\x02\x46", Some(Foreign::Tls)),
            (b"", None),
            (b"$5\r\nredis", None),
            (b"STAT pid 1\r\n", None),
        ] {
            assert_eq!(speaks(bytes), expected, "{}", bytes.escape_ascii());
        }
    }
}
