//! Section 4.2's experiments on the simulated flash translation layer. No bytes are written, and no time passes.

use flash::device::{Ftl, FtlOptions, Timings};
use rand::RngExt;

use super::{AskedCell, Cell, MIB, Pattern, Surface, TABLE_BYTES, asked, used};
use crate::seeds;

/// Table 4.1: "after writing data 4 times the capacity of the device".
const TIMES_BEFORE: u64 = 4;

#[derive(Clone, Debug)]
pub struct Simulated {
    pub bytes: u64,
    pub ftl: FtlOptions,
    pub timings: Timings,
    /// Each divides the largest.
    pub write_bytes: Vec<u64>,
    pub utilisations: Vec<f64>,
    pub seed: u64,
}

impl Simulated {
    pub fn cells_count(&self) -> usize {
        self.asked().len()
    }

    /// Runs the cells on all cores; `done` is called after each.
    pub fn evaluate(&self, done: impl Fn() + Sync) -> Result<Surface, String> {
        for share in &self.utilisations {
            used(self.bytes, *share, &self.write_bytes)?;
        }
        let page_bytes = u64::from(self.ftl.page_bytes);
        if let Some(small) = self.write_bytes.iter().find(|size| !size.is_multiple_of(page_bytes)) {
            return Err(format!(
                "writes of {small} bytes: flash pages are of {page_bytes} bytes, write whole ones"
            ));
        }
        let asked = self.asked();
        let cells = seeds::each(0, asked.len(), |index| {
            let cell = self.cell(asked[index as usize]);
            done();
            cell
        });
        let cells = cells.into_iter().collect::<Result<_, String>>()?;
        Ok(Surface { cells, read_mib_per_s: None })
    }

    fn asked(&self) -> Vec<AskedCell> {
        asked(&self.write_bytes, &self.utilisations, &[TABLE_BYTES.max(u64::from(self.ftl.page_bytes))])
    }

    fn cell(&self, asked: AskedCell) -> Result<Cell, String> {
        let AskedCell { pattern, write_bytes, utilisation } = asked;
        let used = used(self.bytes, utilisation, &self.write_bytes)?;
        let mut ftl = Ftl::new(self.bytes, &self.ftl).map_err(|error| error.to_string())?;
        let mut random = seeds::random(self.seed, write_bytes ^ used);
        let slots = (used / write_bytes).max(1);
        let mut next = 0;
        let mut write = |ftl: &mut Ftl, times: u64| {
            for _ in 0..times * slots {
                let slot = match pattern {
                    Pattern::Sequential => next % slots,
                    Pattern::Random => random.random_range(0..slots),
                };
                next += 1;
                ftl.write(slot * write_bytes, write_bytes);
            }
        };
        ftl.write(0, slots * write_bytes);
        write(&mut ftl, TIMES_BEFORE);
        let (programmed, busy) = (ftl.counts().programmed_bytes, self.timings.busy(&ftl));
        // At least some tens of writes, however large they are.
        let times = 64_u64.div_ceil(slots);
        write(&mut ftl, times);
        let written = (times * slots * write_bytes) as f64;
        let seconds = (self.timings.busy(&ftl) - busy).as_secs_f64();
        Ok(Cell {
            pattern,
            write_bytes,
            utilisation,
            write_amplification: Some((ftl.counts().programmed_bytes - programmed) as f64 / written),
            mib_per_s: written / MIB / seconds,
        })
    }
}
