//! `distcache trace info`: what a trace is like, in one pass.

use serde::Serialize;
use trace::{Quantiles, TraceStatistics, TraceSummary};

use super::{InputArguments, for_each};
use crate::terminal::print;

/// Describe a trace: requests, objects, sizes, popularity, ages and reuse
#[derive(Debug, clap::Args)]
pub(super) struct InfoArguments {
    #[command(flatten)]
    input: InputArguments,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The first six fields are what scripts rely on.
#[derive(Serialize)]
struct InfoRow {
    format: &'static str,
    requests: u64,
    objects: u64,
    bytes: u64,
    working_set_bytes: u64,
    zipf_alpha: Option<f64>,
    compression: String,
    writes: u64,
    deletes: u64,
    one_hit_wonders: u64,
    hottest_requests: u64,
    hottest_hundredth_requests: u64,
    duration_s: Option<u64>,
    object_bytes: QuantilesRow,
    age_s: Option<QuantilesRow>,
    reuse_distance: QuantilesRow,
}

#[derive(Serialize)]
struct QuantilesRow {
    mean: f64,
    min: u64,
    p10: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
}

pub(super) fn run(arguments: &InfoArguments) -> anyhow::Result<()> {
    let reader = arguments.input.open()?;
    let (format, compression) = (reader.format(), reader.compression());
    let mut statistics = TraceStatistics::default();
    for_each(reader, |access| {
        statistics.record(&access);
        Ok(())
    })?;
    let row = row(format.name(), compression.to_string(), &statistics.summary());
    print(&if arguments.json { serde_json::to_string(&row)? } else { table(&row) });
    Ok(())
}

fn row(format: &'static str, compression: String, summary: &TraceSummary) -> InfoRow {
    let quantiles = |of: &Quantiles| {
        let &Quantiles { mean, min, p10, p50, p90, p99, max } = of;
        QuantilesRow { mean, min, p10, p50, p90, p99, max }
    };
    InfoRow {
        format,
        requests: summary.requests,
        objects: summary.objects,
        bytes: summary.bytes,
        working_set_bytes: summary.working_set_bytes,
        zipf_alpha: summary.zipf_alpha,
        compression,
        writes: summary.writes,
        deletes: summary.deletes,
        one_hit_wonders: summary.one_hit_wonders,
        hottest_requests: summary.hottest_requests,
        hottest_hundredth_requests: summary.hottest_hundredth_requests,
        duration_s: summary.duration_s,
        object_bytes: quantiles(&summary.object_bytes),
        age_s: summary.age_s.as_ref().map(quantiles),
        reuse_distance: quantiles(&summary.reuse_distance),
    }
}

fn table(row: &InfoRow) -> String {
    let of =
        |part: u64, whole: u64| format!("{part:>16}  {:.1} %", 100.0 * part as f64 / whole.max(1) as f64);
    let alpha = row.zipf_alpha.map_or("-".to_owned(), |alpha| format!("{alpha:.3}"));
    let duration = row.duration_s.map_or("-".to_owned(), |duration| format!("{duration} s"));
    let mut lines = vec![
        format!("format          {:>16}  compression {}", row.format, row.compression),
        format!("requests        {:>16}", row.requests),
        format!("objects         {:>16}", row.objects),
        format!("bytes           {:>16}  {}", row.bytes, binary(row.bytes)),
        format!("working set     {:>16}  {}", row.working_set_bytes, binary(row.working_set_bytes)),
        format!("zipf alpha      {alpha:>16}"),
        format!("one-hit wonders {} of the objects", of(row.one_hit_wonders, row.objects)),
        format!("hottest object  {} of the requests", of(row.hottest_requests, row.requests)),
        format!("hottest 1 %     {} of the requests", of(row.hottest_hundredth_requests, row.requests)),
        format!("writes          {}", of(row.writes, row.requests)),
        format!("deletes         {}", of(row.deletes, row.requests)),
        format!("duration        {duration:>16}"),
        String::new(),
        format!(
            "{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
            "", "mean", "min", "10 %", "50 %", "90 %", "99 %", "max"
        ),
    ];
    for (name, of) in [
        ("object bytes", Some(&row.object_bytes)),
        ("age (s)", row.age_s.as_ref()),
        ("reuse distance", Some(&row.reuse_distance)),
    ] {
        let Some(&QuantilesRow { mean, min, p10, p50, p90, p99, max }) = of else {
            lines.push(format!("{name:<16}{:>12}", "-"));
            continue;
        };
        lines.push(format!("{name:<16}{mean:>12.1}{min:>12}{p10:>12}{p50:>12}{p90:>12}{p99:>12}{max:>12}"));
    }
    lines.join("\n")
}

fn binary(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.2} {}", UNITS[unit])
}
