//! Keys as people write and read them, in configurations, requests and replies. Not what a key means.

/// A key as text: printable ASCII as it is, everything else and the backslash as `\xNN`.
pub fn key_text(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        if (byte.is_ascii_graphic() || byte == b' ') && byte != b'\\' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The key that [`key_text`] wrote as `text`; a backslash that starts no `\xNN` stands for itself.
pub fn key_bytes(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digit = |index: usize| tail.get(index).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, tail.first(), digit(1), digit(2)) {
            (b'\\', Some(b'x'), Some(high), Some(low)) => {
                key.push((high << 4 | low) as u8);
                rest = &tail[3..];
            }
            _ => {
                key.push(byte);
                rest = tail;
            }
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::{key_bytes, key_text};

    #[test]
    fn keys_become_text_without_ambiguity() {
        assert_eq!(key_text(b"key:1 {a}"), "key:1 {a}");
        assert_eq!(key_text(b"\\\x00\xff"), "\\x5c\\x00\\xff");
        for key in [&b"\\x41"[..], b"\\", b"\\x", b"a\xffb", "caf\u{e9}".as_bytes(), b""] {
            assert_eq!(key_bytes(&key_text(key)), key);
        }
        assert_eq!(key_bytes("a\\b\\x4"), b"a\\b\\x4");
    }
}
