//! Until when a certificate is valid, read from its DER. No other field, and no verification.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Seconds since 1970 between which the certificate holds; `None` if this is no certificate.
pub(super) fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate, _) = element(certificate)?;
    let (tag, mut fields, _) = element(certificate)?;
    if tag != SEQUENCE {
        return None;
    }
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (tag, validity, _) = element(fields)?;
    let (first_tag, first, rest) = element(validity)?;
    let (last_tag, last, _) = element(rest)?;
    (tag == SEQUENCE).then_some((time(first_tag, first)?, time(last_tag, last)?))
}

/// Tag, content and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let digits = usize::from(first & 0x7f);
        if digits == 0 || digits > 4 {
            return None;
        }
        let (number, after) = rest.split_at_checked(digits)?;
        length = number.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// `YYMMDDhhmmssZ` (until 2049) or `YYYYMMDDhhmmssZ`.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        Some(digits.get(range)?.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    };
    let (year, at) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(0..2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, 2)
        }
        (GENERALIZED_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let two = |index: usize| number(at + index * 2..at + index * 2 + 2);
    let days = days(year, two(0)?, two(1)?)?;
    Some(((days * 24 + two(2)?) * 60 + two(3)?) * 60 + two(4)?)
}

/// Days from 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day last.
    let year = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(
        year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468,
    )
}

#[cfg(test)]
mod tests {
    use super::{GENERALIZED_TIME, UTC_TIME, time, validity};

    #[test]
    fn times_are_seconds_since_1970() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "240229235959Z", 1_709_251_199),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20000301000000Z", 951_868_800),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(time(tag, text.as_bytes()), Some(seconds), "{text}");
        }
        for text in ["", "Z", "2402292359Z", "240229235959", "241329235959Z", "24x229235959Z"] {
            assert_eq!(time(UTC_TIME, text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_validity_of_a_certificate_is_found_and_no_prefix_of_it_confuses() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2024, 2, 29);
        parameters.not_after = rcgen::date_time_ymd(2051, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap();
        let der = certificate.der();
        assert_eq!(validity(der), Some((1_709_164_800, 2_556_144_000)));
        for length in 0..der.len() {
            assert_eq!(validity(&der[..length]), None, "{length}");
        }
    }
}
