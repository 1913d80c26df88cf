//! Values that a configuration writes in a form of their own: sizes in bytes, counts of shims, the secret. Not where they are used.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// A number of bytes, written `65536`, `"64KiB"`, `"64MiB"`, `"1.5GiB"`, `"10MB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let error =
            || format!("{text:?} is not a size: write bytes (65536) or a number with a unit (\"64MiB\")");
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, unit)| text.strip_suffix(name).map(|number| (number.trim_end(), *unit)))
            .unwrap_or((text, 1));
        let digits = number.starts_with(|c: char| c.is_ascii_digit());
        let value: f64 = number.parse().ok().filter(|_| digits).ok_or_else(error)?;
        let bytes = value * unit as f64;
        // Above 2^53 a float no longer counts single bytes, and no machine has that many.
        let most = ByteSize(1 << 53);
        if bytes.is_finite() && bytes > most.0 as f64 {
            return Err(format!("{text:?} is too large: {most} is the most"));
        }
        if bytes.fract() != 0.0 {
            return Err(error());
        }
        Ok(ByteSize(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary =
            UNITS[..4].iter().rev().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match binary {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size: bytes (65536) or a number with a unit (\"64MiB\")")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ByteSize, E> {
                u64::try_from(value).map(ByteSize).map_err(|_| E::custom(format!("{value} is below zero")))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(value))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// How many shims a router must reach to be ready, written `"any"`, `"all"` or as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyShims {
    AtLeast(u64),
    All,
}

impl Default for ReadyShims {
    fn default() -> ReadyShims {
        ReadyShims::AtLeast(1)
    }
}

impl<'de> Deserialize<'de> for ReadyShims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ReadyShims, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ReadyShims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"any\", \"all\" or a number of shims, at least 1")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<ReadyShims, E> {
                let count = u64::try_from(value).ok().filter(|count| *count > 0);
                let wrong = || E::invalid_value(de::Unexpected::Signed(value), &self);
                count.map(ReadyShims::AtLeast).ok_or_else(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ReadyShims, E> {
                match text {
                    "any" => Ok(ReadyShims::default()),
                    "all" => Ok(ReadyShims::All),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The cluster's 128-bit secret, written as 32 hexadecimal digits. It never shows in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Secret, String> {
        let wrong = |what: &str| {
            format!("{what}; the secret is 32 hexadecimal digits, for example from `openssl rand -hex 16`")
        };
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong("it has a character that is no hexadecimal digit"));
        }
        if text.len() != 32 {
            return Err(wrong(&format!("it has {} digits", text.len())));
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| wrong("it is not a number"))?;
        Ok(Secret(number.to_be_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteSize, ReadyShims, Secret};

    #[test]
    fn shims_that_make_ready_are_counted_or_all() {
        let read = |value: &str| {
            let table: toml::Table = toml::from_str(&format!("value = {value}")).unwrap();
            table["value"].clone().try_into::<ReadyShims>().map_err(|error| error.message().to_owned())
        };
        assert_eq!(read("\"any\""), Ok(ReadyShims::AtLeast(1)));
        assert_eq!(read("\"all\""), Ok(ReadyShims::All));
        assert_eq!(read("3"), Ok(ReadyShims::AtLeast(3)));
        for wrong in ["0", "-1", "\"some\"", "true"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("expected \"any\", \"all\" or a number of shims, at least 1"), "{error}");
        }
    }

    #[test]
    fn sizes_are_read_in_bytes_and_units() {
        let good = [("0", 0), ("65536", 65536), ("64MiB", 64 << 20), ("1.5 KiB", 1536), ("10MB", 10_000_000)];
        for (text, bytes) in good {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1.3B", "64 megabytes", "inf", "nan", "1e30GiB", "+5"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(ByteSize(64 << 20).to_string(), "64MiB");
        assert_eq!(ByteSize(1025).to_string(), "1025B");
    }

    #[test]
    fn secrets_are_hexadecimal_and_stay_out_of_logs() {
        let secret: Secret = "00112233445566778899aabbccddeeff".parse().unwrap();
        assert_eq!(secret.0[..3], [0x00, 0x11, 0x22]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        for text in ["", "0011", "zz112233445566778899aabbccddeeff", "+0112233445566778899aabbccddeeff"] {
            assert!(text.parse::<Secret>().is_err(), "{text}");
        }
    }
}
