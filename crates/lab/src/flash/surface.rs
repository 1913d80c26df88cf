//! What a device study found, as JSON, tables and a figure. It finds nothing itself.

use serde::Serialize;
use study::flash::{Cell, Pattern, Surface, TABLE_BYTES};
use study::reproduce::{Axis, Figure, FigureSeries, Style};

use crate::terminal::print;

#[derive(Serialize)]
pub(super) struct SurfaceReport<'a> {
    device: &'a str,
    seed: u64,
    summary: SurfaceSummary,
    cells: Vec<SurfaceRow>,
}

/// Table 4.1: throughputs of 128 KiB, in MiB/s.
#[derive(Serialize)]
struct SurfaceSummary {
    sequential_mib_per_s: Option<f64>,
    random_mib_per_s: Option<f64>,
    /// Throughput of reads; `None` where nothing is read.
    read_mib_per_s: Option<f64>,
    /// The smallest random write that reaches 95 % of the highest throughput; none where none does.
    write_bytes_max_throughput: Option<u64>,
}

#[derive(Serialize)]
struct SurfaceRow {
    pattern: &'static str,
    write_bytes: u64,
    utilisation: f64,
    /// Bytes written to flash for each byte written; `None` where the device does not tell.
    write_amplification: Option<f64>,
    slowdown: f64,
    mib_per_s: f64,
}

impl<'a> SurfaceReport<'a> {
    pub(super) fn new(surface: &Surface, device: &'a str, seed: u64) -> SurfaceReport<'a> {
        let row = |cell: &Cell| SurfaceRow {
            pattern: match cell.pattern {
                Pattern::Sequential => "sequential",
                Pattern::Random => "random",
            },
            write_bytes: cell.write_bytes,
            utilisation: cell.utilisation,
            write_amplification: cell.write_amplification,
            slowdown: surface.slowdown(cell),
            mib_per_s: cell.mib_per_s,
        };
        SurfaceReport {
            device,
            seed,
            summary: summary(surface),
            cells: surface.cells.iter().map(row).collect(),
        }
    }
}

fn summary(surface: &Surface) -> SurfaceSummary {
    let full = utilisations(surface).last().copied().unwrap_or(1.0);
    let throughput = |pattern| surface.cell(pattern, TABLE_BYTES, full).map(|cell| cell.mib_per_s);
    SurfaceSummary {
        sequential_mib_per_s: throughput(Pattern::Sequential),
        random_mib_per_s: throughput(Pattern::Random),
        read_mib_per_s: surface.read_mib_per_s,
        write_bytes_max_throughput: surface.write_bytes_max_throughput(),
    }
}

pub(super) fn print_report(surface: &Surface, device: &str) {
    print(device);
    let SurfaceSummary { sequential_mib_per_s, random_mib_per_s, read_mib_per_s, write_bytes_max_throughput } =
        summary(surface);
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    print("\nTable 4.1: MiB/s at 128 KiB, and the smallest random write at full throughput");
    print(&format!(
        "sequential write {}, random write {}, random read {}, {}",
        rate(sequential_mib_per_s),
        rate(random_mib_per_s),
        rate(read_mib_per_s),
        write_bytes_max_throughput.map_or("none is".to_owned(), size)
    ));
    if surface.cells.iter().any(|cell| cell.write_amplification.is_some()) {
        print("\nFigure 4.1a: write amplification of random writes, by share of the device in use");
        table(surface, |cell| cell.write_amplification.map_or("-".to_owned(), |value| format!("{value:.2}")));
    } else {
        print(
            "\nFigure 4.1a: write amplification cannot be read from here; a device's own log may tell (smartctl)",
        );
    }
    print("\nFigure 4.1b: slowdown of random writes, highest throughput = 1");
    table(surface, |cell| format!("{:.2}", surface.slowdown(cell)));
    print("\nThroughput of random writes, MiB/s");
    table(surface, |cell| format!("{:.0}", cell.mib_per_s));
    let sequential: Vec<&Cell> =
        surface.cells.iter().filter(|cell| cell.pattern == Pattern::Sequential).collect();
    print("\nThroughput of sequential writes, MiB/s");
    for cell in sequential {
        print(&format!("{:>10} {:8.0}", size(cell.write_bytes), cell.mib_per_s));
    }
}

/// One row per size of random writes, one column per utilisation.
fn table(surface: &Surface, value: impl Fn(&Cell) -> String) {
    let utilisations = utilisations(surface);
    let head: String = utilisations.iter().map(|share| format!(" {:>6.0} %", 100.0 * share)).collect();
    print(&format!("{:>10}{head}", "write"));
    for write_bytes in sizes(surface) {
        let values = utilisations.iter().map(|share| {
            let cell = surface.cell(Pattern::Random, write_bytes, *share);
            format!(" {:>8}", cell.map_or("-".to_owned(), &value))
        });
        print(&format!("{:>10}{}", size(write_bytes), values.collect::<String>()));
    }
}

pub(super) fn figure(surface: &Surface) -> Figure {
    let amplifies = surface.cells.iter().any(|cell| cell.write_amplification.is_some());
    let y = |cell: &Cell| cell.write_amplification.filter(|_| amplifies).unwrap_or(cell.mib_per_s);
    let series = |share: &f64| {
        let random = |cell: &&Cell| cell.pattern == Pattern::Random && cell.utilisation == *share;
        let points =
            surface.cells.iter().filter(random).map(|cell| (cell.write_bytes as f64 / 1024.0, y(cell)));
        FigureSeries::new(format!("{:.0} % in use", 100.0 * share), Style::Line, points)
    };
    Figure {
        id: "flash-device-study".to_owned(),
        title: format!(
            "{} of random writes (dissertation, figure 4.1)",
            if amplifies { "Write amplification" } else { "Throughput" }
        ),
        x: Axis::logarithmic("size of a write, KiB"),
        y: Axis::from_zero(if amplifies { "write amplification" } else { "throughput, MiB/s" }),
        series: utilisations(surface).iter().map(series).collect(),
    }
}

/// Shares of the space in use at which random writes were measured, ascending.
fn utilisations(surface: &Surface) -> Vec<f64> {
    let mut shares: Vec<f64> = random(surface).map(|cell| cell.utilisation).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    shares
}

fn sizes(surface: &Surface) -> Vec<u64> {
    let mut sizes: Vec<u64> = random(surface).map(|cell| cell.write_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn random(surface: &Surface) -> impl Iterator<Item = &Cell> {
    surface.cells.iter().filter(|cell| cell.pattern == Pattern::Random)
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes as f64 / 1024.0),
    }
}
