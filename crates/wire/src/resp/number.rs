//! Decimal integers as RESP writes them. Not floating point.

/// Reads an integer as strictly as Redis' `string2ll`: no blanks, no `+`, no leading zeros, no overflow.
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => {}
    }
    let mut magnitude: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Appends `number` in decimal.
pub(super) fn write_integer(number: i64, out: &mut Vec<u8>) {
    if number < 0 {
        out.push(b'-');
    }
    write_unsigned(number.unsigned_abs(), out);
}

pub(super) fn write_unsigned(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// How many characters `write_unsigned` takes.
pub(super) fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::{decimal_digits, parse_integer, write_integer};

    #[test]
    fn integers_are_read_as_strictly_as_redis_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("10", Some(10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn integers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 1, -1, 9, 10, 99, 100, 12345, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_integer(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
            let unsigned = number.unsigned_abs();
            assert_eq!(decimal_digits(unsigned), unsigned.to_string().len());
        }
    }
}
