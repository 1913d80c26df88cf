//! Policies by name, as people write them: `lru`, `slru:3`. Not what a policy does.

use std::fmt;
use std::str::FromStr;

use super::slru::{Insertion, SEGMENTS_MAX};
use super::{
    Arc, Clairvoyant, Clock, Fifo, Gdsf, Infinite, Lfu, Lirs, Lru, Random, S3Fifo, Sieve, Simulation, Slru,
    TwoQ, WTinyLfu,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicySpec {
    Fifo,
    Lru,
    Lfu,
    S4Lru,
    S4LruFill,
    Slru { segments: u32 },
    SlruBorrow { segments: u32 },
    Gdsf { frequency_max: Option<u32> },
    Clairvoyant,
    Infinite,
    Random,
    Clock,
    Arc,
    Lirs,
    TwoQ,
    S3Fifo,
    Sieve,
    WTinyLfu,
}

/// Policies without a parameter, by their names.
const NAMES: [(&str, PolicySpec); 16] = [
    ("fifo", PolicySpec::Fifo),
    ("lru", PolicySpec::Lru),
    ("lfu", PolicySpec::Lfu),
    ("s4lru", PolicySpec::S4Lru),
    ("s4lru-fill", PolicySpec::S4LruFill),
    ("gdsf", PolicySpec::Gdsf { frequency_max: None }),
    ("clairvoyant", PolicySpec::Clairvoyant),
    ("infinite", PolicySpec::Infinite),
    ("random", PolicySpec::Random),
    ("clock", PolicySpec::Clock),
    ("arc", PolicySpec::Arc),
    ("lirs", PolicySpec::Lirs),
    ("2q", PolicySpec::TwoQ),
    ("s3fifo", PolicySpec::S3Fifo),
    ("sieve", PolicySpec::Sieve),
    ("wtinylfu", PolicySpec::WTinyLfu),
];

const S4LRU_SEGMENTS: u32 = 4;

impl PolicySpec {
    /// Whether it looks at [`super::ObjectRequest::next`].
    pub fn needs_future(self) -> bool {
        self == PolicySpec::Clairvoyant
    }

    /// An empty cache of this many bytes.
    pub fn simulation(self, capacity: u64) -> Box<dyn Simulation> {
        let slru = |segments, insertion| Box::new(Slru::new(capacity, segments, insertion));
        match self {
            PolicySpec::Fifo => Box::new(Fifo::new(capacity)),
            PolicySpec::Lru => Box::new(Lru::new(capacity)),
            PolicySpec::Lfu => Box::new(Lfu::new(capacity)),
            PolicySpec::S4Lru => slru(S4LRU_SEGMENTS, Insertion::Lowest),
            PolicySpec::S4LruFill => slru(S4LRU_SEGMENTS, Insertion::LowestWithRoom),
            PolicySpec::Slru { segments } => slru(segments, Insertion::Lowest),
            PolicySpec::SlruBorrow { segments } => slru(segments, Insertion::LowestBorrowing),
            PolicySpec::Gdsf { frequency_max } => Box::new(Gdsf::new(capacity, frequency_max)),
            PolicySpec::Clairvoyant => Box::new(Clairvoyant::new(capacity)),
            PolicySpec::Infinite => Box::new(Infinite::default()),
            PolicySpec::Random => Box::new(Random::new(capacity)),
            PolicySpec::Clock => Box::new(Clock::new(capacity)),
            PolicySpec::Arc => Box::new(Arc::new(capacity)),
            PolicySpec::Lirs => Box::new(Lirs::new(capacity)),
            PolicySpec::TwoQ => Box::new(TwoQ::new(capacity)),
            PolicySpec::S3Fifo => Box::new(S3Fifo::new(capacity)),
            PolicySpec::Sieve => Box::new(Sieve::new(capacity)),
            PolicySpec::WTinyLfu => Box::new(WTinyLfu::new(capacity)),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicySpec::Slru { segments } => write!(f, "slru:{segments}"),
            PolicySpec::SlruBorrow { segments } => write!(f, "slru-borrow:{segments}"),
            PolicySpec::Gdsf { frequency_max: Some(frequency) } => write!(f, "gdsf:{frequency}"),
            plain => {
                let name = NAMES.iter().find(|(_, spec)| spec == plain);
                f.write_str(name.map_or("", |(name, _)| name))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{0:?} is no policy; write one of {names}, slru:L, slru-borrow:L or gdsf:L", names = names())]
    Unknown(String),
    #[error("{0:?}: write a number of segments from 1 to {SEGMENTS_MAX} after the colon")]
    Segments(String),
    #[error("{0:?}: write the greatest frequency that counts, 1 or more, after gdsf:")]
    Frequency(String),
}

fn names() -> String {
    NAMES.map(|(name, _)| name).join(", ")
}

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PolicySpec, SpecError> {
        if let Some((_, spec)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*spec);
        }
        let number = |digits: &str| digits.parse().ok().filter(|number: &u32| *number >= 1);
        let segments = |digits: &str| {
            let segments = number(digits).filter(|segments| *segments <= SEGMENTS_MAX);
            segments.ok_or_else(|| SpecError::Segments(text.to_owned()))
        };
        match text.split_once(':') {
            Some(("slru", digits)) => Ok(PolicySpec::Slru { segments: segments(digits)? }),
            Some(("slru-borrow", digits)) => Ok(PolicySpec::SlruBorrow { segments: segments(digits)? }),
            Some(("gdsf", frequency)) => {
                let frequency = number(frequency).ok_or_else(|| SpecError::Frequency(text.to_owned()))?;
                Ok(PolicySpec::Gdsf { frequency_max: Some(frequency) })
            }
            _ => Err(SpecError::Unknown(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let plain = NAMES.iter().map(|(name, _)| *name);
        for name in plain.chain(["slru:1", "slru:15", "slru-borrow:3", "gdsf:1", "gdsf:3"]) {
            assert_eq!(name.parse::<PolicySpec>().map(|spec| spec.to_string()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        for (text, part) in [
            ("lruu", "\"lruu\" is no policy; write one of fifo, lru,"),
            ("", "is no policy"),
            ("slru", "is no policy"),
            ("slru:0", "segments from 1 to 15"),
            ("slru:16", "segments from 1 to 15"),
            ("slru:x", "segments from 1 to 15"),
            ("slru-borrow:0", "segments from 1 to 15"),
            ("gdsf:0", "1 or more"),
            ("lru:2", "is no policy"),
        ] {
            let error = text.parse::<PolicySpec>().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(part)), "{text}: {error:?}");
        }
    }
}
