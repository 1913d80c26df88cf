//! How fast a trace is read: `cargo run --release -p trace --example read -- FILE [RUNS]`. Says nothing about disks.

use std::error::Error;
use std::io::{Write, stdout};
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a trace")?;
    let runs: usize = arguments.next().map_or(Ok(5), |runs| runs.parse())?;
    let mut rates = Vec::new();
    for _ in 0..runs {
        let begun = Instant::now();
        let (mut accesses, mut bytes) = (0u64, 0u64);
        for access in trace::open(&file, None)? {
            bytes = bytes.wrapping_add(access?.bytes);
            accesses += 1;
        }
        rates.push(accesses as f64 / begun.elapsed().as_secs_f64() / 1e6);
        writeln!(stdout(), "{accesses} accesses, {bytes} bytes: {:.1} million/s", rates[rates.len() - 1])?;
    }
    rates.sort_by(f64::total_cmp);
    writeln!(stdout(), "median {:.1} million/s", rates[rates.len() / 2])?;
    Ok(())
}
