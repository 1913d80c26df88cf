//! One command as its RESP frame, with its arguments found. Not its meaning: that is `commands`.

use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use smallvec::SmallVec;

use super::error::ProtocolError;
use super::number::{decimal_digits, write_unsigned};
use super::take::{self, RespLimits, ScanStep};

/// Start and end of each argument within the frame.
pub(super) type Spans = SmallVec<[(u32, u32); 8]>;

/// A well-formed RESP array of one or more bulk strings; or a transaction, which is several of them and has its keys
/// for arguments. Clones and slices share the frame's buffer.
///
/// ```
/// use wire::resp::Command;
///
/// let command = Command::from_args(&["SET", "greeting", "hello"]);
/// assert_eq!(command.name(), b"SET");
/// assert_eq!(command.arg(1), b"greeting");
/// assert_eq!(command.get(3), None);
/// assert_eq!(&command.frame()[..], b"*3\r\n$3\r\nSET\r\n$8\r\ngreeting\r\n$5\r\nhello\r\n");
///
/// let read = Command::parse(command.frame().clone())?;
/// assert!(read.args().eq(command.args()));
/// # Ok::<(), wire::resp::ProtocolError>(())
/// ```
#[derive(Clone)]
pub struct Command {
    frame: Bytes,
    args: Spans,
}

#[expect(clippy::len_without_is_empty, reason = "a command has at least its name")]
impl Command {
    pub(super) fn assemble(frame: Bytes, args: Spans) -> Command {
        debug_assert!(!args.is_empty(), "an empty array is no command");
        Command { frame, args }
    }

    /// Reads a frame that holds exactly one command, as it travels between the roles.
    pub fn parse(frame: Bytes) -> Result<Command, ProtocolError> {
        if frame.first() != Some(&b'*') {
            return Err(ProtocolError::MultibulkLength);
        }
        match take::multibulk(&frame, &RespLimits::UNLIMITED)? {
            ScanStep::Whole { args, end } if end == frame.len() => Ok(Command { frame, args }),
            _ => Err(ProtocolError::FrameEnd),
        }
    }

    /// Takes the command off that `frames` start with.
    pub(super) fn parse_first(frames: &mut Bytes) -> Result<Command, ProtocolError> {
        if frames.first() != Some(&b'*') {
            return Err(ProtocolError::MultibulkLength);
        }
        match take::multibulk(frames, &RespLimits::UNLIMITED)? {
            ScanStep::Whole { args, end } => Ok(Command { frame: frames.split_to(end), args }),
            _ => Err(ProtocolError::FrameEnd),
        }
    }

    /// Builds the frame of `args`; the first is the command's name.
    ///
    /// # Panics
    /// When `args` is empty.
    pub fn from_args<A: AsRef<[u8]>>(args: &[A]) -> Command {
        assert!(!args.is_empty(), "a command has at least its name");
        let payload: usize =
            args.iter().map(|arg| arg.as_ref().len() + decimal_digits(arg.as_ref().len() as u64) + 5).sum();
        let mut frame = Vec::with_capacity(payload + decimal_digits(args.len() as u64) + 3);
        frame.push(b'*');
        write_unsigned(args.len() as u64, &mut frame);
        frame.extend_from_slice(b"\r\n");
        let mut spans = Spans::with_capacity(args.len());
        for arg in args {
            let arg = arg.as_ref();
            super::reply::bulk(arg, &mut frame);
            let end = frame.len() - 2;
            spans.push(((end - arg.len()) as u32, end as u32));
        }
        Command { frame: frame.into(), args: spans }
    }

    /// Number of arguments, the name included; at least one.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Argument `index`; 0 is the name.
    pub fn arg(&self, index: usize) -> &[u8] {
        let (start, end) = self.args[index];
        &self.frame[start as usize..end as usize]
    }

    /// Argument `index`, if there are that many.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let &(start, end) = self.args.get(index)?;
        Some(&self.frame[start as usize..end as usize])
    }

    /// Where argument `index` is in the frame.
    pub(super) fn span(&self, index: usize) -> (u32, u32) {
        self.args[index]
    }

    pub fn arg_bytes(&self, index: usize) -> Bytes {
        let (start, end) = self.args[index];
        self.frame.slice(start as usize..end as usize)
    }

    /// Argument `index` with its RESP header: what `GET` replies when the argument is the value.
    pub fn bulk(&self, index: usize) -> Bytes {
        let (start, end) = self.args[index];
        let header = decimal_digits(u64::from(end - start)) + 3;
        self.frame.slice(start as usize - header..end as usize + 2)
    }

    pub fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.args.iter().map(|&(start, end)| &self.frame[start as usize..end as usize])
    }

    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    pub fn into_frame(self) -> Bytes {
        self.frame
    }

    /// The first argument, in whatever case the client wrote it.
    pub fn name(&self) -> &[u8] {
        self.arg(0)
    }
}

// Lengths are written in one way only, so equal frames and equal arguments are the same thing.
impl PartialEq for Command {
    fn eq(&self, other: &Command) -> bool {
        self.frame == other.frame
    }
}

impl Eq for Command {}

impl Hash for Command {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.frame.hash(state);
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Command(")?;
        for (index, arg) in self.args().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{}", arg[..arg.len().min(64)].escape_ascii())?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Command;
    use crate::resp::ProtocolError;

    #[test]
    fn built_commands_are_read_back_with_the_same_arguments() {
        let args: [&[u8]; 4] = [b"SET", b"", b"a value of more than nine bytes", b"\r\n\0"];
        let built = Command::from_args(&args);
        let parsed = Command::parse(built.frame().clone()).expect("well formed");
        assert_eq!(parsed, built);
        assert_eq!(parsed.len(), 4);
        assert_eq!(parsed.args().collect::<Vec<_>>(), args);
        assert_eq!(parsed.name(), b"SET");
        assert_eq!(parsed.get(3), Some(&b"\r\n\0"[..]));
        assert_eq!(parsed.get(4), None);
        assert_eq!(parsed.bulk(1), "$0\r\n\r\n");
        assert_eq!(parsed.bulk(2), "$31\r\na value of more than nine bytes\r\n");
        assert_eq!(format!("{parsed:?}"), "Command(SET  a value of more than nine bytes \\r\\n\\x00)");
    }

    #[test]
    fn arguments_share_the_frame() {
        let command = Command::from_args(&["GET", "key"]);
        let key = command.arg_bytes(1);
        assert_eq!(key.as_ptr(), command.frame()[17..].as_ptr());
    }

    #[test]
    fn a_frame_is_exactly_one_command() {
        for (frame, error) in [
            (&b"*1\r\n$4\r\nPING\r\n*1\r\n"[..], ProtocolError::FrameEnd),
            (b"*1\r\n$4\r\nPING\r", ProtocolError::FrameEnd),
            (b"*0\r\n", ProtocolError::FrameEnd),
            (b"*-1\r\n", ProtocolError::FrameEnd),
            (b"", ProtocolError::MultibulkLength),
            (b"PING\r\n", ProtocolError::MultibulkLength),
            (b"*1\r\n$4\r\nPINGxy", ProtocolError::LineEnd),
            (b"*1\r\n:4\r\nPING\r\n", ProtocolError::BulkExpected(b':')),
        ] {
            assert_eq!(Command::parse(Bytes::from_static(frame)), Err(error), "{}", frame.escape_ascii());
        }
    }
}
