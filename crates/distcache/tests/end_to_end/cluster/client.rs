//! A RESP connection that shows the bytes of every reply. Not a client library: nothing is retried or hidden.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use wire::resp::{Command, ReplyScanner, Value};

/// Ends a client's replies: what comes later is another line's.
const MARK: &str = "the-end-of-a-line";

/// Longer than anything here may take; a reply that never comes fails the test by then.
pub(crate) const REPLY_MAX: Duration = Duration::from_secs(120);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub(crate) struct Client {
    stream: Stream,
    received: Vec<u8>,
    /// Where the next reply starts.
    at: usize,
}

impl Client {
    pub(crate) fn tcp(address: SocketAddr) -> Client {
        Client::try_tcp(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    pub(crate) fn try_tcp(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_MAX))?;
        Ok(Client { stream: Stream::Tcp(stream), received: Vec::new(), at: 0 })
    }

    pub(crate) fn unix(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(REPLY_MAX))?;
        Ok(Client { stream: Stream::Unix(stream), received: Vec::new(), at: 0 })
    }

    /// Says HELLO 3.
    pub(crate) fn resp3(mut self) -> Client {
        let reply = self.call(&["HELLO", "3"]);
        assert!(matches!(reply, Value::Map(_)), "{reply:?}");
        self
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Another handle of the connection, for another thread.
    pub(crate) fn twin(&self) -> io::Result<Client> {
        let stream = match &self.stream {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
        };
        Ok(Client { stream, received: Vec::new(), at: 0 })
    }

    /// Says that nothing more will be sent, once `bytes` are.
    pub(crate) fn write_and_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)?;
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn reader(&mut self) -> &mut dyn Read {
        match &mut self.stream {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }

    /// All bytes that it gets up to the answer to a PING, which a subscriber of RESP2 gets in a form of its own.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        self.write(format!("PING {MARK}\r\n").as_bytes()).expect("written");
        let mut frames = Vec::new();
        loop {
            let frame = self.frame().expect("a reply");
            if frame.windows(MARK.len()).any(|part| part == MARK.as_bytes()) {
                return frames;
            }
            // HELLO tells a number that is each server's own.
            let greets = frame.windows(7).any(|part| part == b"modules");
            frames.push(if greets { "greeting".to_owned() } else { frame.escape_ascii().to_string() });
        }
    }

    /// The bytes of the next reply.
    pub(crate) fn frame(&mut self) -> io::Result<Bytes> {
        let mut scanner = ReplyScanner::new();
        loop {
            let scanned = scanner.scan(&self.received[self.at..]).map_err(io::Error::other)?;
            if let Some(length) = scanned {
                let frame = Bytes::copy_from_slice(&self.received[self.at..self.at + length]);
                self.at += length;
                if self.at == self.received.len() {
                    self.received.clear();
                    self.at = 0;
                }
                return Ok(frame);
            }
            let mut chunk = [0; 16 << 10];
            match self.reader().read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.received.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// The bytes of the reply to one command.
    pub(crate) fn ask(&mut self, arguments: &[&str]) -> io::Result<Bytes> {
        self.write(Command::from_args(arguments).frame())?;
        self.frame()
    }

    /// The reply to one command, which must come.
    pub(crate) fn call(&mut self, arguments: &[&str]) -> Value {
        let frame = self.ask(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        Value::parse(&frame).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {frame:?}"))
    }

    /// Everything until the other side closes.
    pub(crate) fn rest(&mut self) -> io::Result<String> {
        let mut bytes = self.received.split_off(self.at);
        self.reader().read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Calls a command that must be answered OK.
pub(crate) fn ok(client: &mut Client, arguments: &[&str]) {
    let reply = client.call(arguments);
    assert_eq!(text(&reply), "OK", "{arguments:?}");
}

/// A string or error reply as text, anything else as `Debug` shows it.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => match other.bytes() {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => format!("{other:?}"),
        },
    }
}
