//! How popularity changes while a trace goes on: objects replaced by new ones, and crowds that come and go.

use std::str::FromStr;

use crate::permutation::mix;

/// After each period, a share of the popularity ranks goes to objects that were never asked for before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Churn {
    pub share: f64,
    /// In requests.
    pub period: u64,
}

/// For some time, a share of all requests goes to a few new objects, equally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlashCrowd {
    /// In requests, as the length is.
    pub start: u64,
    pub length: u64,
    pub share: f64,
    pub objects: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a churn; write SHARE/REQUESTS with a share of the ranks above 0 and at most 1, as in 0.01/100000"
)]
pub struct ChurnError(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a flash crowd; write START:REQUESTS:SHARE[:OBJECTS] with a share above 0 and at most 1, \
     as in 500000:100000:0.3:5"
)]
pub struct FlashCrowdError(String);

/// More than a trace could tell apart from none at all.
const OBJECTS_MAX: u64 = 1 << 32;

impl Churn {
    /// How often the object at this place has been replaced before a request. Each place has its own phase, so that
    /// after each period the wanted share of them is due, and each after the same time again.
    pub(super) fn generation(&self, key: u64, request: u64, seed: u64) -> u64 {
        let phase = mix(key ^ mix(seed ^ PHASES)) as f64 / 2f64.powi(64);
        let periods = (request / self.period) as f64;
        (periods * self.share + phase) as u64
    }
}

/// Sets phases apart from the other numbers drawn from the seed.
const PHASES: u64 = 0x7068_6173_6573;

impl FlashCrowd {
    pub(super) fn is_there(&self, request: u64) -> bool {
        request.checked_sub(self.start).is_some_and(|since| since < self.length)
    }
}

fn share(text: &str) -> Option<f64> {
    text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0)
}

fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

impl FromStr for Churn {
    type Err = ChurnError;

    fn from_str(text: &str) -> Result<Churn, ChurnError> {
        let parsed = text
            .split_once('/')
            .and_then(|(part, period)| Some(Churn { share: share(part)?, period: positive(period)? }));
        parsed.ok_or_else(|| ChurnError(text.to_owned()))
    }
}

impl FromStr for FlashCrowd {
    type Err = FlashCrowdError;

    fn from_str(text: &str) -> Result<FlashCrowd, FlashCrowdError> {
        let parts: Vec<&str> = text.split(':').collect();
        let parsed = match parts[..] {
            [start, length, part] => crowd(start, length, part, "1"),
            [start, length, part, objects] => crowd(start, length, part, objects),
            _ => None,
        };
        parsed.ok_or_else(|| FlashCrowdError(text.to_owned()))
    }
}

fn crowd(start: &str, length: &str, part: &str, objects: &str) -> Option<FlashCrowd> {
    Some(FlashCrowd {
        start: start.parse().ok()?,
        length: positive(length)?,
        share: share(part)?,
        objects: positive(objects).filter(|objects| *objects <= OBJECTS_MAX)?,
    })
}
