//! A transaction as it travels: the frames from MULTI to EXEC in a row. Not which commands may be in one.

use bytes::{BufMut, Bytes, BytesMut};

use super::command::{Command, Spans};
use super::error::ProtocolError;

/// The frame that a transaction starts with.
pub const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
/// The frame that it ends with.
pub const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
/// Where EXEC's name is in its frame.
const EXEC_NAME: std::ops::Range<usize> = 8..12;

/// Commands being collected into one frame.
#[derive(Debug)]
pub struct Transaction {
    frame: BytesMut,
    keys: Spans,
    len: usize,
}

impl Default for Transaction {
    fn default() -> Transaction {
        Transaction { frame: BytesMut::from(MULTI), keys: Spans::new(), len: 0 }
    }
}

impl Transaction {
    /// How many commands there are.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> usize {
        self.frame.len()
    }

    /// Adds a command, of which the arguments `keys` are keys. It is copied.
    pub fn push(&mut self, command: &Command, keys: &[usize]) {
        let base = self.frame.len() as u32;
        self.frame.put_slice(command.frame());
        let spans = keys.iter().map(|&index| command.span(index));
        self.keys.extend(spans.map(|(start, end)| (base + start, base + end)));
        self.len += 1;
    }

    /// The whole as one command: its name is EXEC, its arguments are the keys, each once, and its frame is all frames.
    pub fn finish(mut self) -> Command {
        let exec = self.frame.len();
        self.frame.put_slice(EXEC);
        let frame = self.frame.freeze();
        let bytes = |&(start, end): &(u32, u32)| &frame[start as usize..end as usize];
        self.keys.sort_by(|one, other| bytes(one).cmp(bytes(other)));
        self.keys.dedup_by(|one, other| bytes(one) == bytes(other));
        self.keys.insert(0, ((exec + EXEC_NAME.start) as u32, (exec + EXEC_NAME.end) as u32));
        Command::assemble(frame, self.keys)
    }
}

/// The commands between MULTI and EXEC, of a frame that is nothing but these.
pub fn split(frame: &Bytes) -> Result<Vec<Command>, ProtocolError> {
    let inner = frame.strip_prefix(MULTI).and_then(|rest| rest.strip_suffix(EXEC));
    let inner = inner.ok_or(ProtocolError::FrameEnd)?;
    let mut rest = frame.slice_ref(inner);
    let mut commands = Vec::new();
    while !rest.is_empty() {
        commands.push(Command::parse_first(&mut rest)?);
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{EXEC, MULTI, Transaction, split};
    use crate::resp::Command;

    #[test]
    fn what_was_collected_is_found_again() {
        let commands =
            [Command::from_args(&["MSET", "b", "1", "a", "2"]), Command::from_args(&["INCR", "b"])];
        let mut transaction = Transaction::default();
        transaction.push(&commands[0], &[1, 3]);
        transaction.push(&commands[1], &[1]);
        assert_eq!((transaction.len(), transaction.is_empty()), (2, false));
        let whole = transaction.finish();
        assert_eq!(whole.args().collect::<Vec<_>>(), [&b"EXEC"[..], b"a", b"b"]);
        assert_eq!(split(whole.frame()).expect("well formed"), commands);
        assert!(split(Transaction::default().finish().frame()).expect("well formed").is_empty());
    }

    #[test]
    fn anything_else_is_no_transaction() {
        let join = |frames: &[&[u8]]| Bytes::from(frames.concat());
        let get: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        for frame in [
            join(&[]),
            join(&[MULTI]),
            join(&[EXEC]),
            join(&[MULTI, get]),
            join(&[get, EXEC]),
            join(&[MULTI, get, EXEC, get]),
            join(&[MULTI, b"GET k\r\n", EXEC]),
            join(&[MULTI, b"*0\r\n", EXEC]),
            join(&[MULTI, &get[..10], EXEC]),
            join(&[MULTI, get, b"*9\r\n", EXEC]),
        ] {
            assert!(split(&frame).is_err(), "{}", frame.escape_ascii());
        }
    }
}
