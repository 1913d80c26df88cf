//! The flags of `distcache sim`, and what they ask for. Runs nothing.

use std::ops::Range;
use std::path::PathBuf;

use ::sim::{FaultSet, SimSettings};

/// Run whole clusters in virtual time, with faults, and check them
///
/// Each seed draws a cluster of routers, nodes, shims, storage servers and controllers, its traffic and its faults. The
/// machines are those of production; time, network and storage are virtual, and the same seed always does the same.
/// Exit code 1 says that a seed failed; the line printed for it runs it again.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct SimArguments {
    /// The seed to run
    #[arg(long, value_name = "N", conflicts_with = "seeds", required_unless_present = "seeds")]
    seed: Option<u64>,

    /// Seeds to run: from A up to but not including B
    #[arg(long, value_name = "A..B")]
    seeds: Option<String>,

    /// Simulated seconds of traffic and faults per seed
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// Faults to switch on, with commas between them. By default each seed draws its own; `none` has none
    #[arg(long, value_name = "LIST", default_value = "all")]
    faults: String,

    /// Seeds that run at the same time [default: one per core]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: Option<u64>,

    /// Run every N-th seed twice and compare the traces
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    repeat: Option<u64>,

    /// Print one JSON object per seed and one for the whole
    #[arg(long)]
    pub(crate) json: bool,

    /// Write every event of the first seed to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct SimPlan {
    pub(crate) seeds: Range<u64>,
    pub(crate) settings: SimSettings,
    pub(crate) threads: usize,
    pub(crate) repeat: Option<u64>,
}

impl SimArguments {
    pub(crate) fn plan(&self) -> anyhow::Result<SimPlan> {
        let seeds = match (&self.seeds, self.seed) {
            (Some(text), _) => range(text)?,
            (None, Some(seed)) if seed < u64::MAX => seed..seed + 1,
            (None, _) => anyhow::bail!("--seed: give a number below {}", u64::MAX),
        };
        let faults: FaultSet = self.faults.parse().map_err(|error| anyhow::anyhow!("--faults: {error}"))?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(SimPlan {
            seeds,
            settings: SimSettings { seconds: self.seconds, faults, with_text: false },
            threads: self.threads.map_or(cores, |threads| threads as usize),
            repeat: self.repeat,
        })
    }
}

impl SimPlan {
    /// What a person types to see a seed's run again.
    pub(crate) fn again(&self, seed: u64) -> String {
        let SimSettings { seconds, faults, .. } = self.settings;
        format!("distcache sim --seed {seed} --seconds {seconds} --faults {faults}")
    }
}

fn range(text: &str) -> anyhow::Result<Range<u64>> {
    let bounds = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let Some((start, end)) = bounds.filter(|(start, end): &(u64, u64)| start < end) else {
        anyhow::bail!("--seeds {text:?}: write A..B with A below B, for example 0..1000");
    };
    Ok(start..end)
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ranges_have_a_start_below_their_end() {
        assert_eq!(range("3..10").unwrap(), 3..10);
        for wrong in ["", "5", "5..5", "9..3", "a..b", "1...3"] {
            assert!(range(wrong).unwrap_err().to_string().contains("A..B"), "{wrong}");
        }
    }
}
