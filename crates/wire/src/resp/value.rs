//! A reply as a tree, for merging replies, for tools and for tests. Not on the path of a hit.

use bytes::Bytes;

use super::error::ProtocolError;
use super::number::parse_integer;
use super::reply;

/// Deeper than any reply of Redis; bounds the stack that a hostile one can take.
const DEPTH_MAX: usize = 128;
/// Most elements that room is made for before they are seen: nested headers may each promise the whole frame.
const RESERVED_MAX: usize = 1024;

/// One reply. Nulls of all kinds are one, and attributes are dropped.
///
/// ```
/// use bytes::Bytes;
/// use wire::resp::Value;
///
/// let reply = Value::parse(&Bytes::from_static(b"*2\r\n:7\r\n$-1\r\n"))?;
/// assert_eq!(reply, Value::Array(vec![Value::Integer(7), Value::Null]));
///
/// let (mut resp2, mut resp3) = (Vec::new(), Vec::new());
/// reply.write(false, &mut resp2);
/// reply.write(true, &mut resp3);
/// assert_eq!(resp2, b"*2\r\n:7\r\n$-1\r\n");
/// assert_eq!(resp3, b"*2\r\n:7\r\n_\r\n");
/// # Ok::<(), wire::resp::ProtocolError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(Bytes),
    Error(Bytes),
    Integer(i64),
    Bulk(Bytes),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Double(f64),
    Boolean(bool),
    Big(Bytes),
    /// The text with its three-letter format and a colon in front.
    Verbatim(Bytes),
    Push(Vec<Value>),
}

impl Value {
    /// Reads `frame`, which holds exactly one complete reply; strings share its buffer.
    pub fn parse(frame: &Bytes) -> Result<Value, ProtocolError> {
        let mut reader = ValueReader { frame, at: 0 };
        let value = reader.value(0)?;
        if reader.at == frame.len() { Ok(value) } else { Err(ProtocolError::FrameEnd) }
    }

    /// Appends the reply as a client of this protocol version gets it.
    pub fn write(&self, resp3: bool, out: &mut Vec<u8>) {
        match self {
            Value::Simple(text) => reply::simple(text, out),
            Value::Error(text) => reply::error(text, out),
            Value::Integer(number) => reply::integer(*number, out),
            Value::Bulk(bytes) => reply::bulk(bytes, out),
            Value::Null => reply::null(resp3, out),
            Value::Double(number) => reply::double(*number, resp3, out),
            Value::Boolean(value) => reply::boolean(*value, resp3, out),
            Value::Big(digits) if resp3 => reply::line(b'(', digits, out),
            Value::Big(digits) => reply::bulk(digits, out),
            Value::Verbatim(text) if resp3 => {
                reply::header(b'=', text.len(), out);
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Value::Verbatim(text) => reply::bulk(text.get(4..).unwrap_or_default(), out),
            Value::Array(values) => {
                reply::array_header(values.len(), out);
                values.iter().for_each(|value| value.write(resp3, out));
            }
            Value::Set(values) => {
                reply::set_header(values.len(), resp3, out);
                values.iter().for_each(|value| value.write(resp3, out));
            }
            Value::Push(values) => {
                reply::push_header(values.len(), resp3, out);
                values.iter().for_each(|value| value.write(resp3, out));
            }
            Value::Map(pairs) => {
                reply::map_header(pairs.len(), resp3, out);
                for (key, value) in pairs {
                    key.write(resp3, out);
                    value.write(resp3, out);
                }
            }
        }
    }

    /// The bytes of a string of any kind.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim(bytes) | Value::Big(bytes) => {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// The elements of an array, a set or a push.
    pub fn elements(&self) -> Option<&[Value]> {
        match self {
            Value::Array(values) | Value::Set(values) | Value::Push(values) => Some(values),
            _ => None,
        }
    }
}

struct ValueReader<'a> {
    frame: &'a Bytes,
    at: usize,
}

impl ValueReader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, ProtocolError> {
        if depth > DEPTH_MAX {
            return Err(ProtocolError::ReplyDepth(DEPTH_MAX));
        }
        let kind = *self.frame.get(self.at).ok_or(ProtocolError::FrameEnd)?;
        let line = self.line()?;
        Ok(match kind {
            b'+' => Value::Simple(line),
            b'-' => Value::Error(line),
            b':' => Value::Integer(parse_integer(&line).ok_or(ProtocolError::ReplyMalformed)?),
            b'_' if line.is_empty() => Value::Null,
            b'#' if line == "t" => Value::Boolean(true),
            b'#' if line == "f" => Value::Boolean(false),
            b',' => Value::Double(parse_double(&line).ok_or(ProtocolError::ReplyMalformed)?),
            b'(' => Value::Big(line),
            b'$' => self.string(&line)?.map_or(Value::Null, Value::Bulk),
            b'!' => Value::Error(self.string(&line)?.ok_or(ProtocolError::ReplyMalformed)?),
            b'=' => {
                let text = self.string(&line)?.filter(|text| text.get(3) == Some(&b':'));
                Value::Verbatim(text.ok_or(ProtocolError::ReplyMalformed)?)
            }
            b'*' if line == "-1" => Value::Null,
            b'*' => Value::Array(self.values(&line, depth)?),
            b'~' => Value::Set(self.values(&line, depth)?),
            b'>' => Value::Push(self.values(&line, depth)?),
            b'%' => Value::Map(self.pairs(&line, depth)?),
            b'|' => {
                self.pairs(&line, depth)?;
                return self.value(depth + 1);
            }
            b'_' | b'#' => return Err(ProtocolError::ReplyMalformed),
            other => return Err(ProtocolError::ReplyType(other)),
        })
    }

    fn line(&mut self) -> Result<Bytes, ProtocolError> {
        let start = self.at + 1;
        let rest = &self.frame[start..];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or(ProtocolError::FrameEnd)?;
        if length == 0 || rest[length - 1] != b'\r' {
            return Err(ProtocolError::ReplyMalformed);
        }
        self.at = start + length + 1;
        Ok(self.frame.slice(start..start + length - 1))
    }

    fn string(&mut self, line: &[u8]) -> Result<Option<Bytes>, ProtocolError> {
        let length = match parse_integer(line) {
            Some(-1) => return Ok(None),
            Some(length) => usize::try_from(length).map_err(|_| ProtocolError::ReplyMalformed)?,
            None => return Err(ProtocolError::ReplyMalformed),
        };
        let end = self.at.checked_add(length).ok_or(ProtocolError::ReplyMalformed)?;
        match self.frame.get(end..).and_then(|rest| rest.get(..2)) {
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::ReplyMalformed),
            None => return Err(ProtocolError::FrameEnd),
        }
        let string = self.frame.slice(self.at..end);
        self.at = end + 2;
        Ok(Some(string))
    }

    fn values(&mut self, line: &[u8], depth: usize) -> Result<Vec<Value>, ProtocolError> {
        let count = self.count(line)?;
        let mut values = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn pairs(&mut self, line: &[u8], depth: usize) -> Result<Vec<(Value, Value)>, ProtocolError> {
        let count = self.count(line)?;
        let mut pairs = Vec::with_capacity(count.min(RESERVED_MAX));
        for _ in 0..count {
            pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
        }
        Ok(pairs)
    }

    /// A count that the rest of the frame can hold, three bytes being the least of any element.
    fn count(&self, line: &[u8]) -> Result<usize, ProtocolError> {
        let count = parse_integer(line).and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or(ProtocolError::ReplyMalformed)?;
        if count > (self.frame.len() - self.at) / 3 { Err(ProtocolError::FrameEnd) } else { Ok(count) }
    }
}

fn parse_double(line: &[u8]) -> Option<f64> {
    std::str::from_utf8(line).ok()?.parse().ok()
}
