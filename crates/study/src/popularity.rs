//! The probability of every object by rank, for hundreds of millions of them without a list. Not how they are sampled.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use trace::{Distribution, DistributionError};

/// Ranks whose weights are added up one by one; for what lies behind, the Euler-Maclaurin formula is exact to rounding.
const HEAD: u64 = 1 << 12;
/// Most objects, so that ranks are exact as floating point numbers.
pub const OBJECTS_MAX: u64 = 1 << 52;

/// How popularity is written: `uniform`, `zipf:A`, `adversary:X` or `file:F`, one weight per line.
#[derive(Clone, Debug, PartialEq)]
pub enum PopularitySpec {
    Law(Distribution),
    File(PathBuf),
}

/// Why there is no such popularity.
#[derive(Debug, thiserror::Error)]
pub enum PopularityError {
    #[error(transparent)]
    Law(#[from] DistributionError),
    #[error("{0} objects; there must be 1 to {OBJECTS_MAX}")]
    Objects(u64),
    #[error("adversary:{wanted} needs at least {wanted} objects, but there are {objects}")]
    FewObjects { wanted: u64, objects: u64 },
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{}: line {line}: {text:?} is no weight; write one number from 0 per line", path.display())]
    Weight { path: PathBuf, line: usize, text: String },
    #[error("no object has a weight above 0")]
    NoWeight,
    #[error("{}: no line is a weight above 0", path.display())]
    NoWeightIn { path: PathBuf },
}

/// Probabilities by rank, from the most popular object on. They add up to one.
#[derive(Clone, Debug)]
pub struct Popularity {
    objects: u64,
    law: PopularityLaw,
}

#[derive(Clone, Debug)]
enum PopularityLaw {
    Equal,
    Zipf {
        exponent: f64,
        /// Weight of all objects together.
        weight: f64,
        /// Sums of the weights before each rank, from rank 0 to HEAD.
        sums: Arc<[f64]>,
    },
    /// Probabilities and their sums before each rank.
    List {
        probabilities: Arc<[f64]>,
        sums: Arc<[f64]>,
    },
}

impl Popularity {
    /// `objects` there are in all; an adversary asks for some of them only.
    pub fn new(law: Distribution, objects: u64) -> Result<Popularity, PopularityError> {
        if objects == 0 || objects > OBJECTS_MAX {
            return Err(PopularityError::Objects(objects));
        }
        match law {
            Distribution::Uniform => Ok(Popularity { objects, law: PopularityLaw::Equal }),
            Distribution::Adversary(wanted) if wanted > objects => {
                Err(PopularityError::FewObjects { wanted, objects })
            }
            Distribution::Adversary(wanted) => Ok(Popularity { objects: wanted, law: PopularityLaw::Equal }),
            Distribution::Zipf(exponent) => {
                let head = (1..=objects.min(HEAD)).map(|rank| (rank as f64).powf(-exponent));
                let sums: Arc<[f64]> = sums(head).into();
                let weight = sums[sums.len() - 1] + zipf_sum(exponent, HEAD, objects);
                Ok(Popularity { objects, law: PopularityLaw::Zipf { exponent, weight, sums } })
            }
        }
    }

    /// In any order; objects without weight are left out.
    pub fn from_weights(mut weights: Vec<f64>) -> Result<Popularity, PopularityError> {
        weights.retain(|weight| *weight > 0.0);
        weights.sort_by(|a, b| b.total_cmp(a));
        let whole: f64 = weights.iter().rev().sum();
        if weights.is_empty() || !whole.is_finite() {
            return Err(PopularityError::NoWeight);
        }
        weights.iter_mut().for_each(|weight| *weight /= whole);
        let sums = sums(weights.iter().copied()).into();
        let objects = weights.len() as u64;
        Ok(Popularity { objects, law: PopularityLaw::List { probabilities: weights.into(), sums } })
    }

    /// Objects that are asked for at all.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// The probability of one rank, counted from 0; 0 beyond the last.
    pub fn of(&self, rank: u64) -> f64 {
        if rank >= self.objects {
            return 0.0;
        }
        match &self.law {
            PopularityLaw::Equal => 1.0 / self.objects as f64,
            PopularityLaw::Zipf { exponent, weight, .. } => ((rank + 1) as f64).powf(-exponent) / weight,
            PopularityLaw::List { probabilities, .. } => probabilities[rank as usize],
        }
    }

    /// What the ranks from `first` up to but not including `end` have together.
    pub fn mass(&self, first: u64, end: u64) -> f64 {
        let end = end.min(self.objects);
        if first >= end {
            return 0.0;
        }
        match &self.law {
            PopularityLaw::Equal => (end - first) as f64 / self.objects as f64,
            PopularityLaw::Zipf { exponent, weight, sums } => {
                let head = sums[end.min(HEAD) as usize] - sums[first.min(HEAD) as usize];
                (head + zipf_sum(*exponent, first.max(HEAD), end)) / weight
            }
            PopularityLaw::List { sums, .. } => sums[end as usize] - sums[first as usize],
        }
    }

    /// The sum of the probabilities' `power`th powers over the same ranks; `mass` is that of the first power.
    pub fn power_sum(&self, first: u64, end: u64, power: i32) -> f64 {
        let end = end.min(self.objects);
        if first >= end {
            return 0.0;
        }
        match &self.law {
            PopularityLaw::Equal => (end - first) as f64 * (self.objects as f64).powi(-power),
            PopularityLaw::Zipf { exponent, weight, .. } => {
                let head = (first..end.min(HEAD)).map(|rank| self.of(rank).powi(power)).sum::<f64>();
                let tail = zipf_sum(exponent * f64::from(power), first.max(HEAD), end);
                head + tail / weight.powi(power)
            }
            PopularityLaw::List { probabilities, .. } => {
                probabilities[first as usize..end as usize].iter().map(|p| p.powi(power)).sum()
            }
        }
    }

    /// The probabilities of the first ranks, as many as there are up to `count`.
    pub fn head(&self, count: u64) -> Vec<f64> {
        (0..count.min(self.objects)).map(|rank| self.of(rank)).collect()
    }
}

impl PopularitySpec {
    /// The popularity of `objects` in all; a file has its own number.
    pub fn popularity(&self, objects: u64) -> Result<Popularity, PopularityError> {
        match self {
            PopularitySpec::Law(law) => Popularity::new(*law, objects),
            PopularitySpec::File(path) => {
                Popularity::from_weights(weights(path)?).map_err(|error| match error {
                    PopularityError::NoWeight => PopularityError::NoWeightIn { path: path.clone() },
                    error => error,
                })
            }
        }
    }
}

impl FromStr for PopularitySpec {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<PopularitySpec, DistributionError> {
        match text.strip_prefix("file:") {
            Some(path) => Ok(PopularitySpec::File(path.into())),
            None => text.parse().map(PopularitySpec::Law),
        }
    }
}

impl fmt::Display for PopularitySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PopularitySpec::Law(law) => law.fmt(f),
            PopularitySpec::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

fn weights(path: &PathBuf) -> Result<Vec<f64>, PopularityError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| PopularityError::Unreadable { path: path.clone(), error })?;
    let lines = text.lines().zip(1..).filter(|(text, _)| !text.trim().is_empty());
    let weight = |(text, line): (&str, usize)| {
        let weight = text.trim().parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
        let text = text.chars().take(40).collect();
        weight.ok_or_else(|| PopularityError::Weight { path: path.clone(), line, text })
    };
    lines.map(weight).collect()
}

fn sums(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let before = values.map(|value| {
        sum += value;
        sum
    });
    std::iter::once(0.0).chain(before).collect()
}

/// The sum of rank^-exponent for ranks (from 1) above `first` up to `last`, both at least HEAD.
fn zipf_sum(exponent: f64, first: u64, last: u64) -> f64 {
    if first >= last {
        return 0.0;
    }
    let (a, b, s) = (first as f64, last as f64, exponent);
    // (b^(1-s) - a^(1-s)) / (1-s) without its 0/0 at s = 1.
    let (ln, power) = ((b / a).ln(), (1.0 - s) * (b / a).ln());
    let quotient = if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 };
    let integral = a.powf(1.0 - s) * ln * quotient;
    let (fa, fb) = (a.powf(-s), b.powf(-s));
    let slopes = s * (fa / a - fb / b) / 12.0;
    let third = s * (s + 1.0) * (s + 2.0) * (fa / a.powi(3) - fb / b.powi(3)) / 720.0;
    integral + (fb - fa) / 2.0 + slopes - third
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every weight, added up from the smallest.
    fn enumerated(exponent: f64, first: u64, end: u64) -> f64 {
        (first..end).rev().map(|rank| ((rank + 1) as f64).powf(-exponent)).sum()
    }

    #[test]
    fn masses_are_those_of_a_full_enumeration() {
        const OBJECTS: u64 = 3_000_000;
        for exponent in [0.01, 0.5, 0.9, 0.99, 1.0, 1.0 + 1e-10, 1.2, 2.0] {
            let popularity = Popularity::new(Distribution::Zipf(exponent), OBJECTS).unwrap();
            let whole = enumerated(exponent, 0, OBJECTS);
            for (first, end) in
                [(0, OBJECTS), (0, 1), (5, 4096), (4000, 4100), (4096, 4097), (9_999, 2_000_000)]
            {
                let (own, due) = (popularity.mass(first, end), enumerated(exponent, first, end) / whole);
                assert!((own / due - 1.0).abs() < 1e-10, "{exponent}, {first}..{end}: {own}, not {due}");
            }
            let of = popularity.of(12_345);
            assert!((of * whole / 12_346f64.powf(-exponent) - 1.0).abs() < 1e-10, "{exponent}");
        }
    }

    #[test]
    fn power_sums_are_those_of_a_full_enumeration() {
        let weights = (1..=20_000).map(|weight| f64::from(weight).sqrt()).collect();
        let zipf = Popularity::new(Distribution::Zipf(0.9), 20_000).unwrap();
        let uniform = Popularity::new(Distribution::Uniform, 20_000).unwrap();
        for popularity in [zipf, uniform, Popularity::from_weights(weights).unwrap()] {
            for (first, end, power) in [(0, 20_000, 1), (0, 20_000, 2), (7, 9_999, 3), (5_000, 6_000, 2)] {
                let own = popularity.power_sum(first, end, power);
                let due: f64 = (first..end).rev().map(|rank| popularity.of(rank).powi(power)).sum();
                assert!((own / due - 1.0).abs() < 1e-10, "{first}..{end}^{power}: {own}, not {due}");
            }
        }
    }

    #[test]
    fn few_objects_and_equal_ones_add_up_too() {
        let one = Popularity::new(Distribution::Zipf(0.99), 1).unwrap();
        assert_eq!((one.of(0), one.of(1), one.mass(0, 10)), (1.0, 0.0, 1.0));
        let adversary = Popularity::new(Distribution::Adversary(4), 100_000_000).unwrap();
        assert_eq!((adversary.objects(), adversary.of(3), adversary.of(4)), (4, 0.25, 0.0));
        let uniform = Popularity::new(Distribution::Uniform, 1_000).unwrap();
        assert_eq!(
            (uniform.mass(0, 1000), uniform.mass(10, 20), uniform.head(3)),
            (1.0, 0.01, vec![0.001; 3])
        );
    }

    #[test]
    fn weights_are_sorted_and_normalised() {
        let listed = Popularity::from_weights(vec![1.0, 0.0, 5.0, 2.0]).unwrap();
        assert_eq!((listed.objects(), listed.head(9)), (3, vec![0.625, 0.25, 0.125]));
        assert_eq!((listed.mass(1, 3), listed.mass(2, 9)), (0.375, 0.125));
        for nothing in [vec![], vec![0.0, 0.0], vec![f64::MAX, f64::MAX]] {
            assert!(Popularity::from_weights(nothing).is_err());
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let folder = std::env::temp_dir().join(format!("popularity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let check = |text: &str, part: &str| {
            let path = folder.join("weights");
            std::fs::write(&path, text).unwrap();
            let spec: PopularitySpec = format!("file:{}", path.display()).parse().unwrap();
            match spec.popularity(1) {
                Ok(popularity) => assert_eq!(popularity.objects().to_string(), part, "{text:?}"),
                Err(error) => assert!(error.to_string().contains(part), "{text:?}: {error}"),
            }
        };
        check("3\n1\n\n 2e3 \n", "3");
        check("3\nx\n", "line 2: \"x\" is no weight");
        check("3\n\n-1\n", "line 3: \"-1\" is no weight");
        check("inf", "line 1");
        check("", "weights: no line is a weight above 0");
        check("0\n0\n", "weights: no line is a weight above 0");
        std::fs::remove_dir_all(&folder).unwrap();
        let error = PopularitySpec::File(folder.join("weights")).popularity(1).unwrap_err().to_string();
        assert!(error.contains("weights: No such file"), "{error}");
    }

    #[test]
    fn objects_are_counted_and_laws_checked() {
        let error = |law, objects| Popularity::new(law, objects).unwrap_err().to_string();
        assert!(error(Distribution::Uniform, 0).contains("0 objects; there must be 1 to"));
        assert!(error(Distribution::Adversary(9), 8).contains("adversary:9 needs at least 9 objects"));
        for wrong in ["zipf:0", "zipf:-1", "zipf:x", "adversary:0", "normal"] {
            assert!(wrong.parse::<PopularitySpec>().is_err(), "{wrong}");
        }
        for text in ["uniform", "zipf:0.99", "adversary:7", "file:/tmp/x"] {
            assert_eq!(text.parse::<PopularitySpec>().unwrap().to_string(), text);
        }
    }
}
