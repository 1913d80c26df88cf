//! Popularity and sizes as CacheBench's configurations give them (pop.json, sizes.json). Not its other settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Debug, thiserror::Error)]
pub enum CacheBenchError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

/// Keys in buckets of equal popularity, the most popular bucket first.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Shares of all requests up to the end of each bucket.
    shares: Vec<f64>,
    /// Keys before each bucket, and in all.
    firsts: Vec<u64>,
    one_hits: f64,
}

/// Sizes in bytes and how often each occurs.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeTable {
    /// Shares of all objects up to each size.
    shares: Vec<f64>,
    /// As many as there are shares: the sizes themselves. One more: bounds, between which sizes are spread evenly.
    sizes: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PopularityFile {
    popularity_buckets: Vec<u64>,
    popularity_weights: Vec<f64>,
    #[serde(default)]
    one_hits: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SizesFile {
    val_size_range: Vec<f64>,
    val_size_range_probability: Vec<f64>,
}

/// More keys have no exact shares.
const KEYS_MAX: u64 = 1 << 52;

impl Buckets {
    pub(super) fn read(path: &Path) -> Result<Buckets, CacheBenchError> {
        let PopularityFile { popularity_buckets, popularity_weights, one_hits } = read(path)?;
        let content =
            |problem: &str| CacheBenchError::Content { path: path.to_owned(), problem: problem.to_owned() };
        if popularity_buckets.len() != popularity_weights.len() {
            return Err(content("popularityBuckets and popularityWeights are of different lengths"));
        }
        if !(0.0..1.0).contains(&one_hits) {
            return Err(content("oneHits is not a share from 0 to below 1"));
        }
        let mut firsts = vec![0u64];
        for keys in popularity_buckets {
            let end = firsts.last().and_then(|first| first.checked_add(keys)).filter(|end| *end <= KEYS_MAX);
            firsts.push(end.ok_or_else(|| content("popularityBuckets are too many keys"))?);
        }
        let shares = shares(&popularity_weights)
            .ok_or_else(|| content("popularityWeights are not numbers from 0 with one above it"))?;
        // A bucket without keys cannot be asked for, whatever its weight.
        let empty = |(keys, weight): (&[u64], &f64)| keys[0] == keys[1] && *weight > 0.0;
        if firsts.windows(2).zip(&popularity_weights).any(empty) {
            return Err(content("a bucket of popularityBuckets has a weight but no keys"));
        }
        Ok(Buckets { shares, firsts, one_hits })
    }

    pub(super) fn keys(&self) -> u64 {
        self.firsts[self.shares.len()]
    }

    /// The share of requests for keys that are asked for once.
    pub(super) fn one_hits(&self) -> f64 {
        self.one_hits
    }

    /// The rank that two numbers from 0 to below 1 stand for.
    pub(super) fn rank(&self, bucket: f64, within: f64) -> u64 {
        let bucket = place(&self.shares, bucket);
        let (first, end) = (self.firsts[bucket], self.firsts[bucket + 1]);
        (first + (within * (end - first) as f64) as u64).min(end - 1)
    }
}

impl SizeTable {
    pub(super) fn read(path: &Path) -> Result<SizeTable, CacheBenchError> {
        let SizesFile { val_size_range, val_size_range_probability } = read(path)?;
        let content =
            |problem: &str| CacheBenchError::Content { path: path.to_owned(), problem: problem.to_owned() };
        let extra = val_size_range.len().checked_sub(val_size_range_probability.len());
        if !matches!(extra, Some(0 | 1)) {
            return Err(content(
                "valSizeRange has neither as many numbers as valSizeRangeProbability nor one more",
            ));
        }
        if !val_size_range.iter().all(|size| (0.0..1e15).contains(size)) {
            return Err(content("valSizeRange has a number that is not a size in bytes"));
        }
        let shares = shares(&val_size_range_probability)
            .ok_or_else(|| content("valSizeRangeProbability has no number above 0, or one below it"))?;
        let sizes: Vec<u64> = val_size_range.into_iter().map(|size| size as u64).collect();
        if sizes.len() > shares.len() && !sizes.is_sorted() {
            return Err(content("valSizeRange is not in order"));
        }
        Ok(SizeTable { shares, sizes })
    }

    /// The size that two numbers from 0 to below 1 stand for.
    pub(super) fn size(&self, range: f64, within: f64) -> u64 {
        let at = place(&self.shares, range);
        match self.sizes.len() > self.shares.len() {
            true => self.sizes[at] + (within * (self.sizes[at + 1] - self.sizes[at]) as f64) as u64,
            false => self.sizes[at],
        }
    }
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, CacheBenchError> {
    let text = fs::read(path).map_err(|error| CacheBenchError::File { path: path.to_owned(), error })?;
    serde_json::from_slice(&text)
        .map_err(|error| CacheBenchError::Content { path: path.to_owned(), problem: error.to_string() })
}

/// What the weights add up to, from one to the next, as shares of the whole; None if that is nothing.
fn shares(weights: &[f64]) -> Option<Vec<f64>> {
    let sums = weights.iter().scan(0.0, |sum, weight| {
        *sum += weight;
        Some(*sum)
    });
    let sums: Vec<f64> = sums.collect();
    let whole = *sums.last()?;
    let good = weights.iter().all(|weight| *weight >= 0.0) && whole > 0.0 && whole.is_finite();
    good.then(|| sums.iter().map(|sum| sum / whole).collect())
}

/// Where a number from 0 to below 1 falls.
fn place(shares: &[f64], number: f64) -> usize {
    shares.partition_point(|share| *share <= number).min(shares.len() - 1)
}
