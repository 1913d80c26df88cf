//! Policies by name, as people write them: `lru`, `slru:3`. Not what a policy does.

use std::fmt;
use std::str::FromStr;

use super::slru::{Insertion, SEGMENTS_MAX};
use super::{
    Arc, Clairvoyant, Clock, Fifo, Gdsf, Infinite, Lfu, Lirs, Lru, Random, S3Fifo, Sieve, Simulation, Slru,
    TwoQ, WTinyLfu,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Spec {
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

/// Those without a parameter.
const NAMES: [(&str, Spec); 16] = [
    ("fifo", Spec::Fifo),
    ("lru", Spec::Lru),
    ("lfu", Spec::Lfu),
    ("s4lru", Spec::S4Lru),
    ("s4lru-fill", Spec::S4LruFill),
    ("gdsf", Spec::Gdsf { frequency_max: None }),
    ("clairvoyant", Spec::Clairvoyant),
    ("infinite", Spec::Infinite),
    ("random", Spec::Random),
    ("clock", Spec::Clock),
    ("arc", Spec::Arc),
    ("lirs", Spec::Lirs),
    ("2q", Spec::TwoQ),
    ("s3fifo", Spec::S3Fifo),
    ("sieve", Spec::Sieve),
    ("wtinylfu", Spec::WTinyLfu),
];

const S4LRU_SEGMENTS: u32 = 4;

impl Spec {
    /// Whether it looks at [`super::Request::next`].
    pub fn needs_future(self) -> bool {
        self == Spec::Clairvoyant
    }

    /// An empty cache of this many bytes.
    pub fn simulation(self, capacity: u64) -> Box<dyn Simulation> {
        let slru = |segments, insertion| Box::new(Slru::new(capacity, segments, insertion));
        match self {
            Spec::Fifo => Box::new(Fifo::new(capacity)),
            Spec::Lru => Box::new(Lru::new(capacity)),
            Spec::Lfu => Box::new(Lfu::new(capacity)),
            Spec::S4Lru => slru(S4LRU_SEGMENTS, Insertion::Lowest),
            Spec::S4LruFill => slru(S4LRU_SEGMENTS, Insertion::LowestWithRoom),
            Spec::Slru { segments } => slru(segments, Insertion::Lowest),
            Spec::SlruBorrow { segments } => slru(segments, Insertion::LowestBorrowing),
            Spec::Gdsf { frequency_max } => Box::new(Gdsf::new(capacity, frequency_max)),
            Spec::Clairvoyant => Box::new(Clairvoyant::new(capacity)),
            Spec::Infinite => Box::new(Infinite::default()),
            Spec::Random => Box::new(Random::new(capacity)),
            Spec::Clock => Box::new(Clock::new(capacity)),
            Spec::Arc => Box::new(Arc::new(capacity)),
            Spec::Lirs => Box::new(Lirs::new(capacity)),
            Spec::TwoQ => Box::new(TwoQ::new(capacity)),
            Spec::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Spec::Sieve => Box::new(Sieve::new(capacity)),
            Spec::WTinyLfu => Box::new(WTinyLfu::new(capacity)),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Slru { segments } => write!(f, "slru:{segments}"),
            Spec::SlruBorrow { segments } => write!(f, "slru-borrow:{segments}"),
            Spec::Gdsf { frequency_max: Some(frequency) } => write!(f, "gdsf:{frequency}"),
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

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Spec, SpecError> {
        if let Some((_, spec)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*spec);
        }
        let number = |digits: &str| digits.parse().ok().filter(|number: &u32| *number >= 1);
        let segments = |digits: &str| {
            let segments = number(digits).filter(|segments| *segments <= SEGMENTS_MAX);
            segments.ok_or_else(|| SpecError::Segments(text.to_owned()))
        };
        match text.split_once(':') {
            Some(("slru", digits)) => Ok(Spec::Slru { segments: segments(digits)? }),
            Some(("slru-borrow", digits)) => Ok(Spec::SlruBorrow { segments: segments(digits)? }),
            Some(("gdsf", frequency)) => {
                let frequency = number(frequency).ok_or_else(|| SpecError::Frequency(text.to_owned()))?;
                Ok(Spec::Gdsf { frequency_max: Some(frequency) })
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
            assert_eq!(name.parse::<Spec>().map(|spec| spec.to_string()), Ok(name.to_owned()));
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
            let error = text.parse::<Spec>().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(part)), "{text}: {error:?}");
        }
    }
}
