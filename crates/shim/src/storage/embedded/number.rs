//! Integers and floats as Redis reads and prints them. Not which command takes which.

/// Redis' `string2ll`: no sign but `-`, no leading zeros, no spaces.
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    if text == b"0" {
        return Some(0);
    }
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        let shifted = value.checked_mul(10)?;
        value = if negative { shifted.checked_sub(digit)? } else { shifted.checked_add(digit)? };
    }
    Some(value)
}

/// The x87 `long double` that Redis computes INCRBYFLOAT with: `mantissa * 2^exponent`, bit 63 of the mantissa
/// set unless the value is zero. An `f64` would print other digits than Redis does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extended {
    Finite { negative: bool, mantissa: u64, exponent: i32 },
    Infinite { negative: bool },
}

const EXPONENT_MAX: i32 = 16383 - 63;
const EXPONENT_MIN: i32 = -16445;
/// Redis' `MAX_LONG_DOUBLE_CHARS`.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// Above every exponent of a finite number other than zero, in either base.
const EXPONENT_TEXT_MAX: i32 = 20_000;
const ZERO: Extended = Extended::Finite { negative: false, mantissa: 0, exponent: 0 };

impl Extended {
    /// Redis' `string2ld`, which also takes hexadecimal. `None`: not a valid float.
    pub(super) fn parse(text: &[u8]) -> Option<Extended> {
        if text.is_empty() || text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, rest) = match text[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some(Extended::Infinite { negative });
        }
        let (numerator, denominator, exponent) = match rest {
            [b'0', b'x' | b'X', hexadecimal @ ..] => {
                let (digits, exponent) = split(hexadecimal, 16, 4, b'p')?;
                (Big::of_digits(&digits, 16), Big::from(1), exponent)
            }
            _ => {
                let (digits, exponent) = split(rest, 10, 1, b'e')?;
                let (mut numerator, mut denominator) = (Big::of_digits(&digits, 10), Big::from(1));
                let scaled = if exponent >= 0 { &mut numerator } else { &mut denominator };
                (0..exponent.unsigned_abs()).for_each(|_| scaled.multiply_add(10, 0));
                (numerator, denominator, 0)
            }
        };
        if numerator.is_zero() {
            return Some(ZERO);
        }
        let (quotient, shift, inexact) = divide(numerator, denominator);
        round(negative, quotient, exponent - shift, inexact)
    }

    /// `None`: the sum is not a number or not finite.
    pub(super) fn add(self, other: Extended) -> Option<Extended> {
        let (Extended::Finite { negative, mantissa, exponent }, Extended::Finite { .. }) = (self, other)
        else {
            return None;
        };
        let Extended::Finite { negative: other_negative, mantissa: other_mantissa, exponent: other_exponent } =
            other
        else {
            return None;
        };
        if mantissa == 0 {
            return Some(other);
        }
        if other_mantissa == 0 {
            return Some(self);
        }
        if (exponent, mantissa) < (other_exponent, other_mantissa) {
            return other.add(self);
        }
        let gap = (exponent - other_exponent) as u32;
        let large = u128::from(mantissa) << 62;
        let unshifted = u128::from(other_mantissa) << 62;
        let small = if gap >= 126 { 0 } else { unshifted >> gap };
        let inexact = gap >= 126 || small << gap != unshifted;
        let sum =
            if negative == other_negative { large + small } else { large - small - u128::from(inexact) };
        if sum == 0 {
            return Some(ZERO);
        }
        round(negative, sum, exponent - 62, inexact)
    }

    /// `%.17Lf` without the zeros at the end.
    pub(super) fn print(self) -> Vec<u8> {
        let Extended::Finite { negative, mantissa, exponent } = self else { return b"inf".to_vec() };
        let mut text = if exponent >= 0 {
            let mut whole = Big::from(mantissa);
            whole.shift_left(exponent as u32);
            whole.decimal()
        } else {
            let scaled = u128::from(mantissa) * FRACTION;
            let shift = exponent.unsigned_abs();
            let rounded = if shift >= 128 { 0 } else { shift_right_to_even(scaled, shift) };
            let text = format!("{}.{:017}", rounded / FRACTION, rounded % FRACTION);
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        };
        if negative && text != "0" {
            text.insert(0, '-');
        }
        text.into_bytes()
    }
}

const FRACTION: u128 = 100_000_000_000_000_000;

/// Digits without the point, and the exponent that they are to be taken with: of the number itself, after
/// `mark`, less `per_digit` for each digit of the fraction.
fn split(text: &[u8], radix: u32, per_digit: i32, mark: u8) -> Option<(Vec<u32>, i32)> {
    let mut digits = Vec::new();
    let mut fraction = 0;
    let mut point = false;
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match char::from(byte).to_digit(radix) {
            Some(digit) => {
                digits.push(digit);
                fraction += if point { per_digit } else { 0 };
            }
            None if byte == b'.' && !point => point = true,
            None => break,
        }
        rest = tail;
    }
    if digits.is_empty() {
        return None;
    }
    let exponent: i32 = match rest.split_first() {
        None => 0,
        Some((byte, tail)) if byte.eq_ignore_ascii_case(&mark) => {
            std::str::from_utf8(tail).ok()?.parse().ok()?
        }
        Some(_) => return None,
    };
    (exponent.abs() <= EXPONENT_TEXT_MAX).then_some((digits, exponent - fraction))
}

/// `numerator * 2^shift / denominator` as a quotient of 66 or 67 bits, that shift, and whether a rest was left.
fn divide(mut numerator: Big, mut denominator: Big) -> (u128, i32, bool) {
    let shift = 66 + denominator.bits() as i32 - numerator.bits() as i32;
    if shift >= 0 {
        numerator.shift_left(shift as u32);
    } else {
        denominator.shift_left(shift.unsigned_abs());
    }
    let mut quotient = 0u128;
    denominator.shift_left(67);
    for _ in 0..68 {
        quotient <<= 1;
        if numerator.at_least(&denominator) {
            numerator.subtract(&denominator);
            quotient |= 1;
        }
        denominator.halve();
    }
    (quotient, shift, !numerator.is_zero())
}

fn round(negative: bool, value: u128, exponent: i32, inexact: bool) -> Option<Extended> {
    let bits = 128 - value.leading_zeros();
    let (mut mantissa, mut exponent) = if bits <= 64 {
        (value << (64 - bits), exponent - (64 - bits) as i32)
    } else {
        let dropped = bits - 64;
        let low = value & ((1 << dropped) - 1);
        let half = 1u128 << (dropped - 1);
        let high = value >> dropped;
        let up = low > half || (low == half && (inexact || high & 1 == 1));
        (high + u128::from(up), exponent + dropped as i32)
    };
    if mantissa >> 64 != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    let in_range = (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
    in_range.then_some(Extended::Finite { negative, mantissa: mantissa as u64, exponent })
}

fn shift_right_to_even(value: u128, shift: u32) -> u128 {
    let high = value >> shift;
    let low = value & ((1 << shift) - 1);
    let half = 1u128 << (shift - 1);
    high + u128::from(low > half || (low == half && high & 1 == 1))
}

/// An unsigned integer of any size, least significant word first, without zero words at the end.
#[derive(Clone, Default)]
struct Big(Vec<u32>);

impl From<u64> for Big {
    fn from(value: u64) -> Big {
        let mut big = Big(vec![value as u32, (value >> 32) as u32]);
        big.trim();
        big
    }
}

impl Big {
    fn of_digits(digits: &[u32], radix: u32) -> Big {
        let mut big = Big::default();
        digits.iter().for_each(|&digit| big.multiply_add(radix, digit));
        big
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        self.0.last().map_or(0, |last| self.0.len() as u32 * 32 - last.leading_zeros())
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u32) {
        if self.is_zero() {
            return;
        }
        self.multiply_add(1 << (bits % 32), 0);
        self.0.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for word in self.0.iter_mut().rev() {
            let low = *word & 1;
            *word = (*word >> 1) | (carry << 31);
            carry = low;
        }
        self.trim();
    }

    fn at_least(&self, other: &Big) -> bool {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_ge()
    }

    fn subtract(&mut self, other: &Big) {
        let mut borrow = 0i64;
        for (at, word) in self.0.iter_mut().enumerate() {
            let difference = i64::from(*word) - i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            *word = difference as u32;
            borrow = difference >> 32;
        }
        self.trim();
    }

    fn decimal(mut self) -> String {
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0u64;
            for word in self.0.iter_mut().rev() {
                rest = (rest << 32) | u64::from(*word);
                *word = (rest / 1_000_000_000) as u32;
                rest %= 1_000_000_000;
            }
            self.trim();
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:09}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Extended, parse_integer};

    #[test]
    fn integers_are_strict() {
        let check = |text: &str, expected| assert_eq!(parse_integer(text.as_bytes()), expected, "{text}");
        check("0", Some(0));
        check("-9223372036854775808", Some(i64::MIN));
        check("9223372036854775807", Some(i64::MAX));
        for text in
            ["", "-", "-0", "+1", "01", " 1", "1 ", "9223372036854775808", "-9223372036854775809", "1.0"]
        {
            check(text, None);
        }
    }

    fn sum(left: &str, right: &str) -> Option<String> {
        let sum = Extended::parse(left.as_bytes())?.add(Extended::parse(right.as_bytes())?)?;
        Some(String::from_utf8(sum.print()).expect("digits"))
    }

    #[test]
    fn floats_print_as_long_double() {
        assert_eq!(sum("10.50", "0.1").as_deref(), Some("10.6"));
        assert_eq!(sum("5.0e3", "2.0e2").as_deref(), Some("5200"));
        assert_eq!(sum("3.0", "-3.0").as_deref(), Some("0"));
        assert_eq!(sum("-1.5", "0.25").as_deref(), Some("-1.25"));
        assert_eq!(sum("1e30", "1").as_deref(), Some("1000000000000000000024696061952"));
        assert_eq!(sum("0x1.8p1", "-0X2").as_deref(), Some("1"));
        assert_eq!(sum("0", "1e-18").as_deref(), Some("0"));
        assert_eq!(sum("inf", "1"), None);
        for text in ["", "abc", "1e", " 1", "1 ", "nan", "1.2.3", "1e99999", "."] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
    }
}
