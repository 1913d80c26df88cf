//! A connection that speaks memcached's text and shows the bytes of every answer. Not a client library.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything here may take; an answer that never comes fails the test by then.
const REPLY_MAX: Duration = Duration::from_secs(120);
/// Ends an answer, however many lines it has: the answers to these two, one behind the other. Either may be part of one.
const BARRIER: &[u8] = b"mn\r\nversion\r\n";
const BARRIER_BEGINS: &[u8] = b"MN\r\nVERSION ";

pub(crate) struct MemcachedClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl MemcachedClient {
    pub(crate) fn connect(address: SocketAddr) -> MemcachedClient {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(REPLY_MAX)).expect("a socket option");
        MemcachedClient { stream, received: Vec::new() }
    }

    /// Everything that is answered to `request`, up to the answer to a barrier behind it.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.stream.write_all(&[request, BARRIER].concat()).expect("it takes the request");
        loop {
            let begins = |part: &[u8]| part == BARRIER_BEGINS;
            let barrier = self.received.windows(BARRIER_BEGINS.len()).rposition(begins);
            if let Some(at) = barrier.filter(|_| self.received.ends_with(b"\r\n")) {
                let mut answer = std::mem::take(&mut self.received);
                answer.truncate(at);
                return answer;
            }
            let mut chunk = [0; 64 << 10];
            let count = self.stream.read(&mut chunk);
            let count = count.unwrap_or_else(|error| panic!("{}: {error}", request.escape_ascii()));
            assert!(count > 0, "{}: the connection was closed", request.escape_ascii());
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    /// As with a memcached that has a file of passwords.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) -> String {
        let shown = format!("{user} {password}");
        self.text(&format!("set login 0 0 {}\r\n{shown}\r\n", shown.len()))
    }

    pub(crate) fn text(&mut self, request: &str) -> String {
        String::from_utf8_lossy(&self.ask(request.as_bytes())).into_owned()
    }

    /// Sends and reads until the other side closes.
    pub(crate) fn last_words(mut self, request: &[u8]) -> Vec<u8> {
        self.stream.write_all(request).expect("it takes the request");
        let mut answer = Vec::new();
        self.stream.read_to_end(&mut answer).expect("it closes");
        answer
    }
}
