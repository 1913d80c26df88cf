//! How fast a flash device takes writes, by their size and by how much of it is used (dissertation, section 4.2). Not a cache.

mod measured;
mod simulated;
#[cfg(test)]
mod tests;

pub use measured::MeasuredSurface;
pub use simulated::Simulated;

const MIB: f64 = (1 << 20) as f64;

/// Share of the largest throughput that counts as reaching it.
const MAXIMUM_SHARE: f64 = 0.95;

/// What the numbers of Table 4.1 are for.
pub const TABLE_BYTES: u64 = 128 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    Sequential,
    /// At a multiple of the size of the write, anywhere in what is used.
    Random,
}

/// Writes of one size to a device of which a share is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub pattern: Pattern,
    pub write_bytes: u64,
    pub utilisation: f64,
    /// Bytes written to flash for each byte written; `None` where the device does not tell.
    pub write_amplification: Option<f64>,
    pub mib_per_s: f64,
}

/// All cells of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Surface {
    pub cells: Vec<Cell>,
    /// Random reads of `TABLE_BYTES`. None where nothing was read: the simulator has no interface to saturate.
    pub read_mib_per_s: Option<f64>,
}

impl Surface {
    pub fn cell(&self, pattern: Pattern, write_bytes: u64, utilisation: f64) -> Option<&Cell> {
        let is = |cell: &&Cell| {
            (cell.pattern, cell.write_bytes, cell.utilisation) == (pattern, write_bytes, utilisation)
        };
        self.cells.iter().find(is)
    }

    /// "Peak write throughput", in MiB/s.
    pub fn peak(&self) -> f64 {
        self.cells.iter().map(|cell| cell.mib_per_s).fold(0.0, f64::max)
    }

    /// "The ratio of peak write throughput to the stabilized write throughput" (section 4.2.1).
    pub fn slowdown(&self, cell: &Cell) -> f64 {
        self.peak() / cell.mib_per_s
    }

    /// "The smallest write size required to achieve sustained maximum throughput at maximum capacity", if one does.
    pub fn write_bytes_max_throughput(&self) -> Option<u64> {
        let full = self.cells.iter().map(|cell| cell.utilisation).fold(0.0, f64::max);
        let fast = |cell: &&Cell| {
            cell.pattern == Pattern::Random
                && cell.utilisation == full
                && cell.mib_per_s >= MAXIMUM_SHARE * self.peak()
        };
        self.cells.iter().filter(fast).map(|cell| cell.write_bytes).min()
    }
}

/// A cell to fill in.
#[derive(Clone, Copy, Debug)]
struct AskedCell {
    pattern: Pattern,
    write_bytes: u64,
    /// The share of the device that is in use, above 0 and up to 1.
    utilisation: f64,
}

/// The cells to fill in: sequential writes of these sizes to the whole device, then random writes of every size to ever
/// less of it.
fn asked(sizes: &[u64], utilisations: &[f64], sequential: &[u64]) -> Vec<AskedCell> {
    let mut shares = utilisations.to_vec();
    shares.sort_by(|one, other| other.total_cmp(one));
    let full = shares.first().copied().unwrap_or(1.0);
    let cell = |pattern, write_bytes, utilisation| AskedCell { pattern, write_bytes, utilisation };
    let random =
        shares.iter().flat_map(|share| sizes.iter().map(|size| cell(Pattern::Random, *size, *share)));
    sequential.iter().map(|size| cell(Pattern::Sequential, *size, full)).chain(random).collect()
}

/// What of a device is used: whole writes of the largest size.
fn used(bytes: u64, utilisation: f64, sizes: &[u64]) -> Result<u64, String> {
    let largest = sizes.iter().copied().max().ok_or("no write size")?;
    if !(utilisation > 0.0 && utilisation <= 1.0) {
        return Err(format!("a utilisation of {utilisation}: write shares above 0 and up to 1"));
    }
    if let Some(wrong) = sizes.iter().find(|size| **size == 0 || !largest.is_multiple_of(**size)) {
        return Err(format!("writes of {wrong} bytes: each size must divide the largest, {largest}"));
    }
    let used = (bytes as f64 * utilisation) as u64 / largest * largest;
    if used < 2 * largest {
        return Err(format!(
            "writes of {largest} bytes to {:.0} % of {bytes} bytes: at least two must fit; write smaller ones, or more \
             to a larger device",
            100.0 * utilisation
        ));
    }
    Ok(used)
}
