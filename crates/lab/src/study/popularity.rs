//! `distcache study popularity`: the share of all requests that the most popular objects get.

use serde::Serialize;
use study::PopularitySpec;

use super::{bad_input, print_json};
use crate::terminal::print;

/// Show which share of all requests the most popular objects get
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct PopularityArguments {
    /// uniform, zipf:A, adversary:X or file:F (one weight per line)
    #[arg(long, value_name = "D", default_value = "zipf:0.99")]
    dist: PopularitySpec,

    /// Objects in all; a file has its own number
    #[arg(long, value_name = "N", default_value_t = 100_000_000)]
    objects: u64,

    /// How many of the most popular ones, with commas between several
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,10,100,1000,10000,100000,1000000"
    )]
    hottest: Vec<u64>,

    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PopularityRow {
    hottest: u64,
    share: f64,
}

pub(crate) fn run(arguments: &PopularityArguments) -> anyhow::Result<()> {
    let popularity = arguments.dist.popularity(arguments.objects).map_err(bad_input)?;
    let row = |&hottest: &u64| PopularityRow { hottest, share: popularity.mass(0, hottest) };
    let rows: Vec<PopularityRow> = arguments.hottest.iter().map(row).collect();
    if arguments.json {
        return print_json(&rows);
    }
    print(&format!("{} objects, {}", popularity.objects(), arguments.dist));
    print("   hottest     share");
    rows.iter().for_each(|row| print(&format!("{:10}  {:7.3} %", row.hottest, 100.0 * row.share)));
    Ok(())
}
