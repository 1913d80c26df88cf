//! A server's replies: where each ends and what it says at once. Not which request it answers.

use bytes::Bytes;

use super::line::uint64;

/// No line of a server is longer: the longest that is asked for has a key and a few flags.
const LINE_BYTES_MAX: usize = 8192;

/// The first word of a reply's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHead {
    /// `VA`, with its data block behind the line.
    Value,
    /// `HD`, `NS`, `EX`, `NF`, `EN`, `ME`: a meta command's answer without a value.
    Status,
    /// `MN`.
    Noop,
    /// `STAT`: more lines follow, up to an `End`.
    Stat,
    End,
    /// `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`.
    Error,
    /// `OK`, `VERSION` and whatever else is one line.
    Other,
}

/// Takes the first whole reply off `buffer`: its first word and all of it without the last line end. `Ok(None)` until it
/// is whole.
///
/// # Errors
/// What no server sends: a line without end, a length that is none, a data block that does not end where it should.
pub fn next_reply(
    buffer: &mut Bytes,
    value_bytes_max: usize,
) -> Result<Option<(ReplyHead, Bytes)>, &'static str> {
    let Some(end) = buffer.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') else {
        return if buffer.len() < LINE_BYTES_MAX { Ok(None) } else { Err("a line without an end") };
    };
    if end == 0 || buffer[end - 1] != b'\r' {
        return Err("a line that does not end in CR LF");
    }
    let head = head(&buffer[..end - 1]);
    let whole = match head {
        ReplyHead::Value => {
            let length = buffer[3..end - 1].split(|&byte| byte == b' ').next().unwrap_or_default();
            let bytes = uint64(length).and_then(|bytes| usize::try_from(bytes).ok());
            let bytes = bytes.filter(|bytes| *bytes <= value_bytes_max).ok_or("a value of no sane length")?;
            end + 1 + bytes + 2
        }
        _ => end + 1,
    };
    if buffer.len() < whole {
        return Ok(None);
    }
    let mut reply = buffer.split_to(whole);
    if !reply.ends_with(b"\r\n") {
        return Err("a value that does not end where it says");
    }
    reply.truncate(whole - 2);
    Ok(Some((head, reply)))
}

fn head(line: &[u8]) -> ReplyHead {
    match line.split(|&byte| byte == b' ').next().unwrap_or_default() {
        b"VA" if line.len() > 3 => ReplyHead::Value,
        b"HD" | b"NS" | b"EX" | b"NF" | b"EN" | b"ME" => ReplyHead::Status,
        b"MN" => ReplyHead::Noop,
        b"STAT" => ReplyHead::Stat,
        b"END" => ReplyHead::End,
        b"CLIENT_ERROR" | b"SERVER_ERROR" => ReplyHead::Error,
        word if word.starts_with(b"ERROR") => ReplyHead::Error,
        _ => ReplyHead::Other,
    }
}
