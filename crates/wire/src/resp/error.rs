//! Why bytes are not RESP, in the words of Redis where Redis has words for it.

/// A stream of bytes that cannot be followed any further; its connection is closed after the text is sent.
///
/// `Display` is the text of Redis' error reply without the leading `-ERR `.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLine,
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    #[error("Protocol error: too big inline request")]
    InlineLine,
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("Protocol error: expected '$', got '{}'", shown(*.0))]
    BulkExpected(u8),
    /// Redis skips these two bytes unread; a proxy that passes frames on cannot.
    #[error("Protocol error: expected CRLF after bulk")]
    LineEnd,
    /// A client that wants TLS of a plain port: it waits for an answer in its own language.
    #[error("Protocol error: this port does not speak TLS")]
    TlsHello,
    /// A client of memcached's binary protocol, which would wait for ever for the end of a line.
    #[error("Protocol error: this port speaks Redis' protocol, not memcached's")]
    MemcachedBinary,
    /// A browser, and whoever had it send this: no line after it is to be believed.
    #[error("Protocol error: this port speaks Redis' protocol, not HTTP")]
    Http,
    #[error("Protocol error: request of more than {0} bytes")]
    FrameBytes(usize),
    #[error("Protocol error: incomplete or trailing bytes in frame")]
    FrameEnd,
    #[error("Protocol error: unknown reply type '{}'", shown(*.0))]
    ReplyType(u8),
    #[error("Protocol error: malformed reply")]
    ReplyMalformed,
    #[error("Protocol error: reply nested deeper than {0}")]
    ReplyDepth(usize),
}

/// An error reply is one line, so line breaks become blanks, as in Redis.
fn shown(byte: u8) -> char {
    if matches!(byte, b'\r' | b'\n') { ' ' } else { char::from(byte) }
}
