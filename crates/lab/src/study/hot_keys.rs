//! `distcache study hot-keys`: how even keys of Zipf's law load servers, and what copies of hot keys change. It computes nothing itself.

use serde::Serialize;
use study::hot_keys::{Balance, HOT_SEARCHED_MAX, HotKeysOutcome, HotKeysPlacing, HotKeysSetting};
use study::{Popularity, PopularitySpec};

use super::{bad_input, positive, print_json};
use crate::terminal::print;

/// Show how unevenly hot keys load memcached servers, and what copies of them change (MBalancer)
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct HotKeysArguments {
    /// Servers: n (section III)
    #[arg(long, value_name = "N", default_value_t = 10)]
    servers: u32,

    /// Keys in all: N (section III)
    #[arg(long, value_name = "N", default_value_t = 1000)]
    keys: u64,

    /// Exponent of the keys' popularity, without unit, above 0 and at most 2: alpha (section III)
    #[arg(long, value_name = "ALPHA", default_value = "1", value_parser = zipf)]
    zipf: PopularitySpec,

    /// Hot keys, which all servers of a group hold: H (section IV)
    #[arg(long, value_name = "H", default_value_t = 10)]
    hot: u64,

    /// Groups that the servers form: G (section IV-D)
    #[arg(long, value_name = "G", default_value_t = 1)]
    groups: u32,

    /// Imbalance factor, 0 to 1, to reach with the fewest hot keys (figure 7)
    #[arg(long, value_name = "FACTOR", default_value_t = 0.8, value_parser = positive)]
    threshold: f64,

    /// Placements of all keys to take the mean of (section III: 100)
    #[arg(long, value_name = "RUNS", default_value_t = 100)]
    runs: u32,

    /// First seed of everything random: the same seed gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Keys on servers uniformly at random (section III), or as memcached's clients place them
    #[arg(long, value_name = "P", value_enum, default_value_t = HotKeysPlacementName::Uniform)]
    placement: HotKeysPlacementName,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum HotKeysPlacementName {
    Uniform,
    Ketama,
}

#[derive(Serialize)]
struct HotKeysRow {
    imbalance_factor: f64,
    imbalance_factor_sd: f64,
    jain: f64,
    cv: f64,
    hot_share: f64,
    /// The fewest hot keys that are enough; `None` where no number is.
    hot_min: Option<u64>,
    /// For the same throughput; none where servers never do what copies do.
    servers_to_add: Option<f64>,
    imbalance_factor_moved: f64,
    servers_to_add_for_factor: Option<f64>,
    imbalance_factor_plain: f64,
    jain_plain: f64,
    cv_plain: f64,
}

pub(crate) fn run(arguments: &HotKeysArguments) -> anyhow::Result<()> {
    let popularity: Popularity = arguments.zipf.popularity(arguments.keys).map_err(bad_input)?;
    let setting = HotKeysSetting {
        servers: arguments.servers,
        popularity,
        hot: arguments.hot,
        groups: arguments.groups,
        threshold: arguments.threshold,
        placing: match arguments.placement {
            HotKeysPlacementName::Uniform => HotKeysPlacing::Uniform,
            HotKeysPlacementName::Ketama => HotKeysPlacing::Ketama,
        },
        runs: arguments.runs,
        seed: arguments.seed,
    };
    let outcome = setting.evaluate().map_err(bad_input)?;
    if arguments.json {
        return print_json(&row(&outcome));
    }
    print_outcome(arguments, &outcome);
    Ok(())
}

fn row(outcome: &HotKeysOutcome) -> HotKeysRow {
    HotKeysRow {
        imbalance_factor: outcome.with_copies.imbalance_factor,
        imbalance_factor_sd: outcome.with_copies.imbalance_factor_sd,
        jain: outcome.with_copies.jain,
        cv: outcome.with_copies.cv,
        hot_share: outcome.hot_share,
        hot_min: outcome.hot_min,
        servers_to_add: outcome.servers_to_add,
        imbalance_factor_moved: outcome.moved.imbalance_factor,
        servers_to_add_for_factor: outcome.servers_to_add_for_factor,
        imbalance_factor_plain: outcome.plain.imbalance_factor,
        jain_plain: outcome.plain.jain,
        cv_plain: outcome.plain.cv,
    }
}

fn print_outcome(arguments: &HotKeysArguments, outcome: &HotKeysOutcome) {
    let (servers, keys, runs) = (arguments.servers, arguments.keys, arguments.runs);
    print(&format!("{servers} servers, {keys} keys, {}, mean of {runs} runs", arguments.zipf));
    print("                     imbalance factor (sd)     Jain       cv");
    let line = |what: &str, balance: &Balance| {
        let (factor, sd) = (balance.imbalance_factor, balance.imbalance_factor_sd);
        print(&format!("{what:20} {factor:16.4} ({sd:.2}) {:8.4} {:8.4}", balance.jain, balance.cv));
    };
    line("plain", &outcome.plain);
    line(&format!("{} hot keys moved", arguments.hot), &outcome.moved);
    line(&format!("{} in {} groups", arguments.hot, arguments.groups), &outcome.with_copies);
    print(&format!("{} hot keys get {:.1} % of the requests", arguments.hot, 100.0 * outcome.hot_share));
    let fewest = outcome.hot_min.map_or_else(
        || format!("no number up to {}", arguments.keys.min(HOT_SEARCHED_MAX)),
        |fewest| fewest.to_string(),
    );
    print(&format!("hot keys for a factor of {}: {fewest}", arguments.threshold));
    let added = |added: Option<f64>| added.map_or("no number".to_owned(), |added| format!("{added:.1}"));
    print(&format!("servers to add instead, for the same throughput: {}", added(outcome.servers_to_add)));
    print(&format!("  for the same factor, these counted in: {}", added(outcome.servers_to_add_for_factor)));
}

fn zipf(text: &str) -> Result<PopularitySpec, String> {
    format!("zipf:{text}").parse().map_err(|_| "write an exponent above 0 and at most 2".to_owned())
}
