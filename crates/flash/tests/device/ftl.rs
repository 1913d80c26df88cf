//! The flash translation layer against what the literature computes for greedy garbage collection, and against plain cases.

use flash::device::{Device, Ftl, FtlDevice, FtlOptions, MemoryDevice, SECTOR, Timings};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const PAGE: u64 = 4096;

fn ftl(pages: u64, block_pages: u32, over_provisioning: f64) -> Ftl {
    Ftl::new(pages * PAGE, &FtlOptions { page_bytes: PAGE as u32, block_pages, over_provisioning }).unwrap()
}

/// Programmed bytes per written byte, of writes of `write_pages` anywhere in the first `pages`, when that is stable.
fn random_writes(ftl: &mut Ftl, pages: u64, write_pages: u64, seed: u64) -> f64 {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut write = |ftl: &mut Ftl, times: u64| {
        for _ in 0..times * pages / write_pages {
            let place = random.random_range(0..pages / write_pages) * write_pages;
            ftl.write(place * PAGE, write_pages * PAGE);
        }
    };
    ftl.write(0, pages * PAGE);
    write(ftl, 8);
    let before = ftl.counts().programmed_bytes;
    write(ftl, 6);
    (ftl.counts().programmed_bytes - before) as f64 / (6 * pages * PAGE) as f64
}

fn harmonic(from: u32, to: u32) -> f64 {
    (from..=to).map(|number| 1.0 / f64::from(number)).sum()
}

/// Greedy collection of uniformly random single-page writes, for many blocks of b pages (Bux and Iliadis 2010,
/// Desnoyers 2012). Blocks with i valid pages lose one at the rate i/U, so that there are U/(b - v)/i of them, where
/// blocks are collected with v valid pages on average: of the least two numbers j and j + 1 that occur.
fn greedy(blocks: f64, pages: f64, b: u32) -> f64 {
    let room = |v: f64| {
        let j = v as u32;
        let kept = 1.0 - v.fract();
        (harmonic(j + 2, b) + kept / f64::from(j + 1)) * pages / (f64::from(b) - v)
    };
    let (mut low, mut high) = (0.0, f64::from(b) - 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if room(middle) > blocks { low = middle } else { high = middle }
    }
    f64::from(b) / (f64::from(b) - low)
}

/// The limit for large blocks: collected blocks are valid to a share u with (u - 1)/ln u = the space utilisation
/// (Menon 1995; with Lambert's W in Desnoyers 2012).
fn greedy_large_blocks(utilisation: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..60 {
        let u: f64 = (low + high) / 2.0;
        if (u - 1.0) / u.ln() < utilisation { low = u } else { high = u }
    }
    1.0 / (1.0 - low)
}

fn assert_near(measured: f64, expected: f64, tolerance: f64, what: &str) {
    let off = (measured / expected - 1.0).abs();
    assert!(off < tolerance, "{what}: {measured:.4}, expected {expected:.4}, {:.2} % off", 100.0 * off);
}

#[test]
fn uniform_random_writes_amplify_as_the_literature_computes() {
    const PAGES: u64 = 1 << 16;
    for (block_pages, over_provisioning) in [(16, 0.1), (32, 0.28), (64, 0.15), (64, 0.5), (128, 0.4)] {
        let mut ftl = ftl(PAGES, block_pages, over_provisioning);
        // One block is free and two are open, half full on average.
        let closed = f64::from(ftl.blocks() - 3);
        let pages = PAGES as f64 - f64::from(block_pages);
        let expected = greedy(closed, pages, block_pages);
        let measured = random_writes(&mut ftl, PAGES, 1, 1);
        assert_near(measured, expected, 0.015, &format!("{block_pages} pages, {over_provisioning}"));
    }
}

#[test]
fn large_blocks_reach_the_limit_of_the_literature() {
    const PAGES: u64 = 1 << 17;
    for over_provisioning in [0.2, 0.5] {
        let mut ftl = ftl(PAGES, 512, over_provisioning);
        let utilisation = (PAGES as f64 - 512.0) / (f64::from(ftl.blocks() - 3) * 512.0);
        let measured = random_writes(&mut ftl, PAGES, 1, 2);
        assert_near(measured, greedy_large_blocks(utilisation), 0.03, &format!("{over_provisioning}"));
    }
}

#[test]
fn sequential_writes_are_written_once() {
    for pages in [4096, 4000] {
        let mut ftl = ftl(pages, 64, 0.1);
        for _ in 0..7 {
            for page in 0..pages {
                ftl.write(page * PAGE, PAGE);
            }
        }
        assert_eq!(ftl.counts().programmed_bytes, 7 * pages * PAGE);
        let wear = ftl.wear();
        assert!(f64::from(wear.erases_max) - wear.erases_mean < 1.0, "{wear:?}");
    }
}

/// Section 4.2.1: what is as large as the erase blocks over all chips comes at the full rate.
#[test]
fn random_writes_of_whole_erase_blocks_are_written_once() {
    let write = |pages| random_writes(&mut ftl(1 << 14, 64, 0.1), 1 << 14, pages, 3);
    let amplifications = [1, 4, 16, 32, 64, 256].map(write);
    assert!(amplifications.windows(2).all(|pair| pair[0] >= pair[1]), "{amplifications:?}");
    assert_eq!(&amplifications[4..], [1.0, 1.0]);
    assert!(amplifications[0] > 3.0);
}

/// Figure 4.1: the more of the device is used, the more is moved.
#[test]
fn unused_space_spares_writes() {
    let pages = 1 << 15;
    let used = |share: f64| random_writes(&mut ftl(pages, 64, 0.1), (pages as f64 * share) as u64, 1, 4);
    let amplifications = [0.5, 0.7, 0.9, 1.0].map(used);
    assert!(amplifications.windows(2).all(|pair| pair[0] < pair[1]), "{amplifications:?}");
}

#[test]
fn what_is_discarded_is_not_moved() {
    let pages = 1 << 15;
    let fresh = random_writes(&mut ftl(pages, 64, 0.1), pages / 2, 1, 5);
    let mut used = ftl(pages, 64, 0.1);
    let full = random_writes(&mut used, pages, 1, 5);
    used.discard(pages / 2 * PAGE, pages / 2 * PAGE);
    let trimmed = random_writes(&mut used, pages / 2, 1, 5);
    assert!(full > 2.0 * trimmed, "{full} {trimmed}");
    assert_near(trimmed, fresh, 0.01, "as if never written");

    used.discard(0, pages * PAGE);
    let before = used.counts().programmed_bytes;
    for page in 0..pages {
        used.write(page * PAGE, PAGE);
    }
    let moved = used.counts().programmed_bytes - before;
    assert_eq!(moved, pages * PAGE, "nothing was valid");
}

#[test]
fn a_page_is_programmed_whole() {
    let options = FtlOptions { page_bytes: 16384, block_pages: 16, over_provisioning: 0.2 };
    let device = FtlDevice::new(MemoryDevice::new(8 << 20).unwrap(), &options).unwrap();
    // So few that no garbage is collected yet.
    for round in 0..4 {
        for sector in 0..100 {
            device.write(sector * SECTOR as u64, &[round; SECTOR]).unwrap();
        }
    }
    assert_eq!(device.counts().write_amplification(), Some(4.0));
    device.discard(SECTOR as u64, 6 * SECTOR as u64).unwrap();
    let mut buffer = [0; SECTOR];
    device.read(0, &mut buffer).unwrap();
    assert_eq!(buffer, [3; SECTOR], "only whole pages are forgotten");
}

#[test]
fn time_follows_what_flash_does() {
    let timings = Timings::default();
    let mut ftl = ftl(1 << 12, 64, 0.1);
    ftl.write(0, PAGE << 12);
    let once = timings.busy(&ftl);
    assert_eq!(once, timings.page_program * (1 << 12) / timings.units, "nothing to erase yet");
    let amplification = random_writes(&mut ftl, 1 << 12, 1, 6);
    let slowdown = timings.busy(&ftl).div_duration_f64(once) / 15.0;
    assert!(slowdown > amplification, "erasing and reading come on top: {slowdown} {amplification}");
}

#[test]
fn flash_that_cannot_work_is_refused_in_words() {
    let good = FtlOptions { page_bytes: 4096, block_pages: 64, over_provisioning: 0.1 };
    for (bytes, options, part) in [
        (1 << 24, FtlOptions { over_provisioning: 0.0, ..good }, "erase blocks"),
        (1 << 24, FtlOptions { block_pages: 4096, ..good }, "make erase blocks smaller"),
        (1 << 24, FtlOptions { block_pages: 0, ..good }, "erase blocks of 0 pages"),
        (1 << 24, FtlOptions { over_provisioning: f64::NAN, ..good }, "over-provisioning NaN"),
        (1 << 24, FtlOptions { page_bytes: 512, ..good }, "flash pages of 512 bytes"),
        (1 << 24, FtlOptions { page_bytes: 12288, ..good }, "a power of two"),
        (1 << 46, good, "make pages larger"),
    ] {
        let error = Ftl::new(bytes, &options).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
