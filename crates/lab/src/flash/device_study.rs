//! `distcache flash device-study`: write throughput and amplification by size of write and use of a device. Not a cache.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use config::ByteSize;
use flash::device::{Device, FileDevice, FileOptions, FtlOptions, MemoryDevice, SECTOR, Timings};
use indicatif::{ProgressBar, ProgressStyle};
use study::flash::{MeasuredSurface, Simulated, Surface};

use super::memory;
use super::surface::{SurfaceReport, figure, print_report};
use super::target::{DeviceTarget, bad_input, check_overwrite};
use crate::reproduce::{figure_file, plot};
use crate::terminal::{BadInput, print};

/// Measure or simulate how a flash device takes writes, by their size and the space in use (table 4.1, figure 4.1)
///
/// `ftl` simulates a flash translation layer and tells write amplification. A file, a block device or memory is measured
/// by the clock; what flash writes below them cannot be read from here. A file is made for the study and leaves no trace.
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct DeviceStudyArguments {
    /// ftl (the simulator), mem, or PATH: a directory or a new file to measure its file system, a block device, or a file
    #[arg(long, value_name = "PATH|mem|ftl", default_value = "ftl")]
    device: DeviceTarget,

    /// Size of the device [default: ftl 4GiB; a new file 1GiB; mem 256MiB; what is there as it is]
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::from_str)]
    size: Option<ByteSize>,

    /// Sizes of writes, with commas; each divides the largest
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = ByteSize::from_str,
          default_value = "4KiB,32KiB,128KiB,512KiB,2MiB,4MiB,8MiB,16MiB,32MiB")]
    write_sizes: Vec<ByteSize>,

    /// Shares of the device in use, with commas [default: ftl and block devices 0.5,0.6,0.7,0.8,0.9,1; others 1]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    utilisations: Option<Vec<f64>>,

    /// Page of the simulated flash, 4KiB or more
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = ByteSize::from_str)]
    page: ByteSize,

    /// Erase block of the simulated flash, over all its chips
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = ByteSize::from_str)]
    erase_block: ByteSize,

    /// Simulated flash beyond the size of the device, as a share of it
    #[arg(long, value_name = "SHARE", default_value_t = FtlOptions::default().over_provisioning)]
    over_provisioning: f64,

    /// Seconds of measuring, over all sizes; filling the device comes on top
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,

    /// Allow PATH to be there, and to lose what it holds
    #[arg(long)]
    overwrite: bool,

    /// Seed of the random places
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Draw figure 4.1 into a file, .svg or .png: write amplification where it is known, otherwise throughput
    #[arg(long, value_name = "FILE", value_parser = figure_file)]
    plot: Option<PathBuf>,
}

pub(crate) fn run(arguments: &DeviceStudyArguments) -> anyhow::Result<()> {
    let time = arguments.time()?;
    let (surface, description) = match &arguments.device {
        DeviceTarget::Ftl => simulate(arguments)?,
        DeviceTarget::Memory => {
            let bytes = arguments.bytes_or(256 << 20);
            memory::check(&format!("--size {}", ByteSize(bytes)), bytes)?;
            let device = MemoryDevice::new(bytes).map_err(bad_input)?;
            measure(arguments, &device, &[1.0], time)?
        }
        DeviceTarget::Path(path) => {
            let (device, utilisations) = open(arguments, path)?;
            measure(arguments, &device, utilisations, time)?
        }
    };
    if let Some(path) = &arguments.plot {
        plot(path, &figure(&surface))?;
    }
    if arguments.json {
        print(&serde_json::to_string(&SurfaceReport::new(&surface, &description, arguments.seed))?);
    } else {
        print_report(&surface, &description);
    }
    Ok(())
}

/// Shares of which figure 4.1 shows some.
const UTILISATIONS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

impl DeviceStudyArguments {
    fn time(&self) -> Result<Duration, BadInput> {
        let time = Duration::try_from_secs_f64(self.seconds).ok().filter(|time| !time.is_zero());
        time.ok_or_else(|| BadInput(format!("--seconds {}: write a number of seconds above 0", self.seconds)))
    }

    fn ftl(&self) -> Result<FtlOptions, BadInput> {
        let DeviceStudyArguments { page, erase_block, over_provisioning, .. } = *self;
        let narrow = |bytes: u64| u32::try_from(bytes).ok().filter(|bytes| *bytes > 0);
        let is_page = page.0.is_power_of_two() && page.0 >= SECTOR as u64;
        let Some(page_bytes) = narrow(page.0).filter(|_| is_page) else {
            return Err(BadInput(format!("--page {page}: write a power of two from 4KiB to 2GiB")));
        };
        let is_whole = erase_block.0.is_multiple_of(page.0);
        let Some(block_pages) = narrow(erase_block.0 / page.0).filter(|_| is_whole) else {
            let why = format!(
                "--erase-block {erase_block}: write a multiple of --page {page}, of fewer than 2^32 pages"
            );
            return Err(BadInput(why));
        };
        if !(over_provisioning.is_finite() && over_provisioning >= 0.0) {
            let why =
                format!("--over-provisioning {over_provisioning}: write a share of 0 or more, such as 0.07");
            return Err(BadInput(why));
        }
        Ok(FtlOptions { page_bytes, block_pages, over_provisioning })
    }

    fn bytes_or(&self, default: u64) -> u64 {
        self.size.map_or(default, |size| size.0)
    }

    fn write_bytes(&self) -> Vec<u64> {
        self.write_sizes.iter().map(|size| size.0).collect()
    }

    fn utilisations_or(&self, default: &[f64]) -> Vec<f64> {
        self.utilisations.clone().unwrap_or_else(|| default.to_vec())
    }
}

fn simulate(arguments: &DeviceStudyArguments) -> anyhow::Result<(Surface, String)> {
    let ftl = arguments.ftl()?;
    let simulated = Simulated {
        bytes: arguments.bytes_or(4 << 30),
        ftl,
        timings: Timings::default(),
        write_bytes: arguments.write_bytes(),
        utilisations: arguments.utilisations_or(&UTILISATIONS),
        seed: arguments.seed,
    };
    // Each core has a cell of its own.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cells = cores.min(simulated.cells_count()) as u64;
    let memory_bytes = ftl.memory_bytes(simulated.bytes).saturating_mul(cells);
    memory::check(&format!("--size {}", ByteSize(simulated.bytes)), memory_bytes)?;
    let bar = bar(simulated.cells_count(), "simulating");
    let surface = simulated.evaluate(|| bar.inc(1));
    bar.finish_and_clear();
    let surface = surface.map_err(BadInput)?;
    let description = format!(
        "simulated flash: {} MiB and {:.1} % more, erase blocks of {} KiB, pages of {} KiB",
        simulated.bytes >> 20,
        100.0 * ftl.over_provisioning,
        arguments.erase_block.0 >> 10,
        arguments.page.0 >> 10
    );
    Ok((surface, description))
}

fn measure(
    arguments: &DeviceStudyArguments,
    device: &dyn Device,
    utilisations: &[f64],
    time: Duration,
) -> anyhow::Result<(Surface, String)> {
    if let Some(largest) = arguments.write_sizes.iter().max_by_key(|size| size.0) {
        memory::check(&format!("--write-sizes {largest}"), largest.0)?;
    }
    let measured = MeasuredSurface {
        write_bytes: arguments.write_bytes(),
        utilisations: arguments.utilisations_or(utilisations),
        time,
        seed: arguments.seed,
    };
    let bar = bar(measured.cells_count(), "measuring");
    let surface = measured.evaluate(device, || bar.inc(1));
    bar.finish_and_clear();
    Ok((surface.map_err(bad_input)?, device.description()))
}

/// The device at this path, and which shares of it to use.
fn open(arguments: &DeviceStudyArguments, path: &Path) -> anyhow::Result<(FileDevice, &'static [f64])> {
    let found = std::fs::metadata(path).ok();
    let Some(found) = found.filter(|found| !found.is_dir()) else {
        let is_directory = path.is_dir();
        let new = format!("distcache-device-study-{}", std::process::id());
        let path = if is_directory { path.join(new) } else { path.to_owned() };
        let options = FileOptions { bytes: Some(arguments.bytes_or(1 << 30)), ..FileOptions::default() };
        let device = FileDevice::open(&path, &options).map_err(bad_input)?;
        // It has no name any more, so that it is gone with this process however that ends.
        std::fs::remove_file(&path).with_context(|| format!("{}: cannot be removed", path.display()))?;
        return Ok((device, &[1.0]));
    };
    check_overwrite(path, &found, arguments.overwrite, "study destroy what it holds")?;
    let options = FileOptions { bytes: arguments.size.map(|size| size.0), ..FileOptions::default() };
    let device = FileDevice::open(path, &options).map_err(bad_input)?;
    Ok((device, if found.is_file() { &[1.0] } else { &UTILISATIONS }))
}

/// On stderr, and only on a terminal.
fn bar(cells: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}  {elapsed}, {eta} left");
    let bar = ProgressBar::new(cells as u64).with_message(what);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("#--")),
        Err(_) => bar,
    }
}
