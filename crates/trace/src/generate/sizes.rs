//! How large the objects of a synthetic trace are: each always the same, by its id and a distribution.

use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, StandardNormal};

use crate::generate::cachebench::{CacheBenchError, SizeTable};
use crate::permutation::mix;
use crate::unit::bytes_with_unit;

/// `B`, `uniform:MIN:MAX`, `lognormal:MEDIAN:SIGMA`, `pareto:MIN:ALPHA`, or `cachebench:FILE` (a sizes.json).
#[derive(Clone, Debug, PartialEq)]
pub enum SizeDistribution {
    Fixed(u64),
    Uniform { min: u64, max: u64 },
    LogNormal { median: f64, sigma: f64 },
    Pareto { min: f64, alpha: f64 },
    CacheBench(Arc<SizeTable>),
}

#[derive(Debug, thiserror::Error)]
pub enum SizesError {
    #[error(
        "{0:?} are no sizes; write bytes as in 4096 or 4KiB, uniform:MIN:MAX, lognormal:MEDIAN:SIGMA, pareto:MIN:ALPHA \
         or cachebench:FILE; a size is 1 to {BYTES_MAX} bytes"
    )]
    Unknown(String),
    #[error(transparent)]
    CacheBench(#[from] CacheBenchError),
}

/// What oracleGeneral can hold; also cuts off the endless tails of distributions.
const BYTES_MAX: u64 = u32::MAX as u64;
/// Sets sizes apart from the other numbers drawn from the seed.
const SIZES: u64 = 0x0073_697a_6573;

impl SizeDistribution {
    /// The size of an object, from 1 byte to 4 GiB.
    pub fn of(&self, object: u64, seed: u64) -> u64 {
        if let SizeDistribution::Fixed(bytes) = self {
            return *bytes;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(object ^ mix(seed ^ SIZES)));
        let bytes = match self {
            SizeDistribution::Fixed(bytes) => *bytes,
            SizeDistribution::Uniform { min, max } => random.random_range(*min..=*max),
            SizeDistribution::LogNormal { median, sigma } => {
                let normal: f64 = StandardNormal.sample(&mut random);
                (median * (sigma * normal).exp()) as u64
            }
            SizeDistribution::Pareto { min, alpha } => {
                let uniform: f64 = random.random();
                (min * (1.0 - uniform).powf(-1.0 / alpha)) as u64
            }
            SizeDistribution::CacheBench(table) => table.size(random.random(), random.random()),
        };
        bytes.clamp(1, BYTES_MAX)
    }
}

impl FromStr for SizeDistribution {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<SizeDistribution, SizesError> {
        if let Some(path) = text.strip_prefix("cachebench:") {
            return Ok(SizeDistribution::CacheBench(Arc::new(SizeTable::read(path.as_ref())?)));
        }
        let parts: Vec<&str> = text.split(':').collect();
        let with_unit = |text: &str| bytes_with_unit(text).map(|bytes| bytes as u64);
        let bytes = |text: &str| {
            let bytes = text.parse().ok().or_else(|| with_unit(text));
            bytes.filter(|bytes| (1..=BYTES_MAX).contains(bytes))
        };
        let sane = |number: &f64| *number > 0.0 && *number < 1e12;
        let number = |text: &str| text.parse().ok().filter(sane);
        let middle = |text: &str| text.parse().ok().or_else(|| bytes_with_unit(text)).filter(sane);
        let parsed = match parts[..] {
            [size] => bytes(size).map(SizeDistribution::Fixed),
            ["uniform", min, max] => bytes(min)
                .zip(bytes(max))
                .and_then(|(min, max)| (min <= max).then_some(SizeDistribution::Uniform { min, max })),
            ["lognormal", median, sigma] => middle(median)
                .zip(number(sigma))
                .map(|(median, sigma)| SizeDistribution::LogNormal { median, sigma }),
            ["pareto", min, alpha] => {
                middle(min).zip(number(alpha)).map(|(min, alpha)| SizeDistribution::Pareto { min, alpha })
            }
            _ => None,
        };
        parsed.ok_or_else(|| SizesError::Unknown(text.to_owned()))
    }
}
