//! The shapes that section 4.2 reports, on the simulator; and that measuring counts what it writes.

use std::time::Duration;

use flash::device::{Device as _, FtlDevice, FtlOptions, MemoryDevice, Timings};

use super::*;

fn simulated() -> Simulated {
    Simulated {
        bytes: 256 << 20,
        ftl: FtlOptions { block_pages: 256, ..FtlOptions::default() },
        timings: Timings::default(),
        write_bytes: vec![4 << 10, 128 << 10, 512 << 10, 1 << 20, 2 << 20],
        utilisations: vec![0.5, 0.9, 1.0],
        seed: 1,
    }
}

/// "As writes become smaller or space utilization becomes higher, throughput decreases and FTL write amplification
/// increases" (4.2.1); sequential writes have "low or no FTL-write-amplification" (4.2.2).
#[test]
fn figure_4_1_has_its_shape() {
    let simulated = simulated();
    let surface = simulated.evaluate(|| {}).unwrap();
    assert_eq!(surface.cells.len(), simulated.cells_count());
    let random = |size, share| surface.cell(Pattern::Random, size, share).unwrap();
    for pair in simulated.write_bytes.windows(2) {
        for share in &simulated.utilisations {
            let (small, large) = (random(pair[0], *share), random(pair[1], *share));
            assert!(small.write_amplification >= large.write_amplification, "{small:?} {large:?}");
            assert!(small.mib_per_s <= large.mib_per_s * 1.000_001, "{small:?} {large:?}");
        }
    }
    for size in &simulated.write_bytes[..3] {
        let (half, most, all) = (random(*size, 0.5), random(*size, 0.9), random(*size, 1.0));
        assert!(half.write_amplification < most.write_amplification, "{half:?} {most:?}");
        assert!(most.write_amplification < all.write_amplification, "{most:?} {all:?}");
        let (amplification, slowdown) = (all.write_amplification.unwrap(), surface.slowdown(all));
        assert!((slowdown / amplification - 1.0).abs() < 0.15, "\"striking similarity\": {all:?} {slowdown}");
    }
    let sequential = surface.cell(Pattern::Sequential, TABLE_BYTES, 1.0).unwrap();
    assert_eq!(sequential.write_amplification, Some(1.0));
    assert_eq!(surface.write_bytes_max_throughput(), Some(1 << 20), "an erase block");
}

/// Table 4.1: random writes of 128 KiB reach 76 of 589, 18.8 of 161 and 139 of 972 MiB/s, a 7.0th to an 8.6th.
#[test]
fn table_4_1_has_its_ratios() {
    let simulated = Simulated { write_bytes: vec![4 << 10], utilisations: vec![1.0], ..simulated() };
    let surface = simulated.evaluate(|| {}).unwrap();
    let slowdown = surface.slowdown(surface.cell(Pattern::Random, 4 << 10, 1.0).unwrap());
    assert!((6.0..10.0).contains(&slowdown), "{slowdown}");
}

#[test]
fn the_same_seed_gives_the_same_surface() {
    let simulated = Simulated { utilisations: vec![0.9], ..simulated() };
    let surface = simulated.evaluate(|| {}).unwrap();
    assert_eq!(surface, simulated.evaluate(|| {}).unwrap());
    assert_ne!(surface, Simulated { seed: 2, ..simulated }.evaluate(|| {}).unwrap());
}

#[test]
fn a_measured_device_is_written_and_read() {
    let measured = MeasuredSurface {
        write_bytes: vec![16 << 10, 1 << 20],
        utilisations: vec![0.5, 1.0],
        time: Duration::ZERO,
        seed: 1,
    };
    let ftl = FtlOptions { block_pages: 64, ..FtlOptions::default() };
    let device = FtlDevice::new(MemoryDevice::new(32 << 20).unwrap(), &ftl).unwrap();
    let mut done = 0;
    let surface = measured.evaluate(&device, || done += 1).unwrap();
    assert_eq!((surface.cells.len(), done), (6, 6));
    assert!(
        surface.cells.iter().all(|cell| cell.write_amplification.unwrap() >= 1.0 && cell.mib_per_s > 0.0)
    );
    assert!(surface.read_mib_per_s.unwrap() > 0.0);
    // Filled for each utilisation, and one write per cell.
    let filled = (16 + 32) << 20;
    assert_eq!(device.counts().written_bytes, filled + 3 * ((16 << 10) + (1 << 20)));
    let plain = measured.evaluate(&MemoryDevice::new(32 << 20).unwrap(), || {}).unwrap();
    assert!(plain.cells.iter().all(|cell| cell.write_amplification.is_none()));
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let base = simulated();
    for (simulated, part) in [
        (Simulated { write_bytes: vec![], ..base.clone() }, "no write size"),
        (Simulated { write_bytes: vec![4096, 12288, 16384], ..base.clone() }, "writes of 12288 bytes"),
        (Simulated { write_bytes: vec![2048], ..base.clone() }, "flash pages are of 4096 bytes"),
        (Simulated { write_bytes: vec![256 << 20], ..base.clone() }, "at least two must fit"),
        (Simulated { utilisations: vec![1.1], ..base.clone() }, "a utilisation of 1.1"),
        (Simulated { utilisations: vec![f64::NAN], ..base.clone() }, "a utilisation of NaN"),
        (Simulated { bytes: 16 << 20, ..base.clone() }, "erase blocks"),
    ] {
        let error = simulated.evaluate(|| {}).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
