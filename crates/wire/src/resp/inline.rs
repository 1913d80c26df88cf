//! Inline commands: a line of words, with Redis' quoting. What people type into `nc`.

use super::error::ProtocolError;

pub(super) enum InlineLine {
    /// The line has not ended yet.
    Partial,
    /// `end` is where the next command starts; a blank line has no arguments.
    Whole { args: Vec<Vec<u8>>, end: usize },
}

/// Splits the first line of `bytes` into words.
pub(super) fn split(bytes: &[u8], line_bytes_max: usize) -> Result<InlineLine, ProtocolError> {
    let window = &bytes[..bytes.len().min(line_bytes_max + 1)];
    let Some(newline) = window.iter().position(|&byte| byte == b'\n') else {
        return if bytes.len() > line_bytes_max {
            Err(ProtocolError::InlineLine)
        } else {
            Ok(InlineLine::Partial)
        };
    };
    let line = &bytes[..newline];
    // Redis reads the line as a C string.
    let line = line.split(|&byte| byte == 0).next().unwrap_or(line);
    let args = words(line.strip_suffix(b"\r").unwrap_or(line)).ok_or(ProtocolError::Quotes)?;
    Ok(InlineLine::Whole { args, end: newline + 1 })
}

/// The words of a line; `None` when its quotes do not balance.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// The first word of `rest`, unquoted, and what follows it. A quoted part may follow an unquoted one.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [b'"', after @ ..] => rest = ending(double_quoted(after, &mut word)?)?,
            [b'\'', after @ ..] => rest = ending(single_quoted(after, &mut word)?)?,
            [b' ' | b'\t' | b'\r' | b'\n', ..] => return Some((word, &rest[1..])),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
                continue;
            }
        }
        return Some((word, rest));
    }
}

/// A closing quote ends its word.
fn ending(after: &[u8]) -> Option<&[u8]> {
    after.first().is_none_or(|byte| is_blank(*byte)).then_some(after)
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// C's `isspace`. Redis skips all of these between words, though not all of them end a word.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::words;

    fn check(line: &str, expected: Option<&[&[u8]]>) {
        let got = words(line.as_bytes());
        assert_eq!(
            got.as_deref().map(|words| words.iter().map(Vec::as_slice).collect()),
            expected.map(<[_]>::to_vec)
        );
    }

    #[test]
    fn lines_are_split_as_redis_splits_them() {
        check("", Some(&[]));
        check("  \t ", Some(&[]));
        check("PING", Some(&[b"PING"]));
        check("  SET  k\tv  ", Some(&[b"SET", b"k", b"v"]));
        check(r#"SET k "a b""#, Some(&[b"SET", b"k", b"a b"]));
        check(r#"SET k "" ''"#, Some(&[b"SET", b"k", b"", b""]));
        check(r#"ECHO "\x41\xff\n\r\t\b\a\q\"""#, Some(&[b"ECHO", b"A\xff\n\r\t\x08\x07q\""]));
        check(r#"ECHO "\xg1""#, Some(&[b"ECHO", b"xg1"]));
        check(r"ECHO 'it\'s \n'", Some(&[b"ECHO", br"it's \n"]));
        check(r#"ECHO a"b c""#, Some(&[b"ECHO", b"ab c"]));
    }

    #[test]
    fn unbalanced_quotes_are_an_error() {
        for line in [r#"ECHO "a"#, "ECHO 'a", r#"ECHO "a"b"#, "ECHO 'a'b", r#"ECHO "a\"#, r#"""""#] {
            check(line, None);
        }
    }
}
