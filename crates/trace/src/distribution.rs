//! How popular keys are, and how that is written: `uniform`, `zipf:A`, `adversary:X`. Not how it is sampled.

use std::fmt;
use std::str::FromStr;

/// Largest exponent. Beyond it one key draws nearly everything, and `adversary:1` says that better.
const EXPONENT_MAX: f64 = 2.0;

/// The popularity of keys by rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Uniform,
    /// The key of rank r is asked for in proportion to r^-exponent; exponents in (0, 2].
    Zipf(f64),
    /// So many keys at an equal rate, and no others (Small Cache Big Effect, section 3).
    Adversary(u64),
}

/// Why a text is not a distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DistributionError {
    #[error("unknown distribution {0:?}; use uniform, zipf:A or adversary:X")]
    Unknown(String),
    #[error(
        "{0:?} is not an exponent; use zipf:A with A above 0 and at most {EXPONENT_MAX}, as in zipf:0.99"
    )]
    Exponent(String),
    #[error("{0:?} is not a number of keys; use adversary:X with X at least 1, as in adversary:64")]
    Keys(String),
}

impl Distribution {
    /// Whether the numbers make sense by themselves; parsing guarantees it.
    pub(crate) fn check(self) -> Result<(), DistributionError> {
        match self {
            Distribution::Zipf(exponent) if !(exponent > 0.0 && exponent <= EXPONENT_MAX) => {
                Err(DistributionError::Exponent(exponent.to_string()))
            }
            Distribution::Adversary(0) => Err(DistributionError::Keys("0".to_owned())),
            _ => Ok(()),
        }
    }
}

impl FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Distribution, DistributionError> {
        let distribution = match text.split_once(':') {
            None if text == "uniform" => Distribution::Uniform,
            None if text == "zipf" => return Err(DistributionError::Exponent(String::new())),
            None if text == "adversary" => return Err(DistributionError::Keys(String::new())),
            Some(("zipf", exponent)) => {
                let number =
                    exponent.parse().map_err(|_| DistributionError::Exponent(exponent.to_owned()))?;
                Distribution::Zipf(number)
            }
            Some(("adversary", keys)) => {
                Distribution::Adversary(keys.parse().map_err(|_| DistributionError::Keys(keys.to_owned()))?)
            }
            _ => return Err(DistributionError::Unknown(text.to_owned())),
        };
        distribution.check()?;
        Ok(distribution)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Distribution::Adversary(keys) => write!(f, "adversary:{keys}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_back() {
        for text in
            ["uniform", "zipf:0.99", "zipf:1", "zipf:2", "zipf:0.01", "adversary:1", "adversary:100000"]
        {
            let distribution: Distribution = text.parse().unwrap();
            assert_eq!(distribution.to_string(), text);
        }
        assert_eq!("zipf:1.0".parse(), Ok(Distribution::Zipf(1.0)));
    }

    #[test]
    fn errors_say_what_to_write_instead() {
        let check = |text: &str, part: &str| {
            let error = text.parse::<Distribution>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        };
        check("", "use uniform, zipf:A or adversary:X");
        check("Uniform", "unknown distribution \"Uniform\"");
        check("uniform:3", "unknown distribution");
        check("normal:1", "unknown distribution \"normal:1\"");
        for wrong in ["zipf", "zipf:", "zipf:x", "zipf:0", "zipf:-1", "zipf:2.1", "zipf:NaN", "zipf:inf"] {
            check(wrong, "as in zipf:0.99");
        }
        for wrong in ["adversary", "adversary:", "adversary:0", "adversary:-1", "adversary:1.5"] {
            check(wrong, "as in adversary:64");
        }
    }
}
