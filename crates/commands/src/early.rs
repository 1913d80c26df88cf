//! Values that are known before storage has them: they ride on the invalidation (design, section 6).

use bytes::Bytes;
use wire::resp::Command;

use super::keys::integer;

/// Storage adds the time to live to its clock; nothing near the limit is worth a guess about overflow.
const TTL_MS_MAX: i64 = i64::MAX / 2;

/// The value that an unconditional write will leave, and its time to live in milliseconds (`None`: for ever).
///
/// Only SET without any option or with a valid EX or PX, SETEX and PSETEX; `None` for everything else and
/// for whatever storage will refuse. `Command::bulk` gives the same value as the reply to GET.
pub fn early_value(command: &Command) -> Option<(Bytes, Option<u64>)> {
    let named = |name: &[u8]| command.name().eq_ignore_ascii_case(name);
    match command.len() {
        3 if named(b"set") => Some((command.arg_bytes(2), None)),
        4 if named(b"setex") => Some((command.arg_bytes(3), Some(ttl_ms(command.arg(2), 1000)?))),
        4 if named(b"psetex") => Some((command.arg_bytes(3), Some(ttl_ms(command.arg(2), 1)?))),
        5 if named(b"set") => {
            let unit = match command.arg(3) {
                option if option.eq_ignore_ascii_case(b"ex") => 1000,
                option if option.eq_ignore_ascii_case(b"px") => 1,
                _ => return None,
            };
            Some((command.arg_bytes(2), Some(ttl_ms(command.arg(4), unit)?)))
        }
        _ => None,
    }
}

fn ttl_ms(text: &[u8], unit_ms: i64) -> Option<u64> {
    let ttl = integer(text)?.checked_mul(unit_ms)?;
    if (1..=TTL_MS_MAX).contains(&ttl) { Some(ttl as u64) } else { None }
}

#[cfg(test)]
mod tests {
    use wire::resp::Command;

    use super::early_value;

    fn check(line: &str, expected: Option<(&str, Option<u64>)>) {
        let args: Vec<&str> = line.split(' ').collect();
        let got = early_value(&Command::from_args(&args));
        assert_eq!(got, expected.map(|(value, ttl)| (value.to_owned().into(), ttl)), "{line}");
    }

    #[test]
    fn unconditional_sets_have_an_early_value() {
        check("SET k v", Some(("v", None)));
        check("set k v ex 10", Some(("v", Some(10_000))));
        check("SET k v PX 10", Some(("v", Some(10))));
        check("SetEx k 7 v", Some(("v", Some(7_000))));
        check("PSETEX k 7 v", Some(("v", Some(7))));
        check("SET k nx", Some(("nx", None)));
    }

    #[test]
    fn conditional_and_unclear_sets_have_none() {
        for options in
            ["NX", "XX", "GET", "KEEPTTL", "EXAT 9999999999", "PXAT 9999999999999", "EX 10 NX", "EX"]
        {
            check(&format!("SET k v {options}"), None);
        }
        for line in ["SET k", "SETNX k v", "GETSET k v", "MSET k v", "APPEND k v", "GETEX k EX 10", "DEL k"] {
            check(line, None);
        }
    }

    #[test]
    fn times_that_storage_refuses_give_none() {
        for ttl in ["0", "-1", "", "x", "1.5", "+1", "01", " 1", "9223372036854775807", "9223372036854775808"]
        {
            check(&format!("SET k v EX {}", ttl.replace(' ', "_")), None);
            check(&format!("SETEX k {} v", ttl.replace(' ', "_")), None);
        }
        check("SET k v PX 9223372036854775807", None);
        check("PSETEX k 9223372036854775807 v", None);
        check("SET k v EX 9223372036854776", None);
    }
}
