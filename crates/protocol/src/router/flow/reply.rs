//! The answer to one request, as it came. Not what is made of it.

use bytes::Bytes;
use wire::Status;

/// What was answered to one part.
#[derive(Debug)]
pub(crate) struct PartReply {
    pub(crate) status: Status,
    pub(crate) value: Bytes,
}

impl PartReply {
    pub(crate) fn is_error(&self) -> bool {
        self.status == Status::Error || matches!(self.value.first(), Some(b'-' | b'!'))
    }

    /// Whether it says that there is nothing.
    pub(crate) fn is_nil(&self) -> bool {
        self.status == Status::Nil || matches!(self.value.as_ref(), b"$-1\r\n" | b"_\r\n" | b"*-1\r\n")
    }
}
