//! How long flash is busy with what a translation layer counted. A sum, not a simulation of channels and queues.

use std::time::Duration;

use super::mapping::{Ftl, PAGE_BYTES_MIN};

/// What one unit of flash takes, and how many work at once. Pages of more than 4 KiB take as much longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timings {
    pub page_read: Duration,
    pub page_program: Duration,
    /// Time to erase an erase block, on all units at once.
    pub block_erase: Duration,
    pub units: u32,
}

impl Default for Timings {
    /// In the order of multi-level cells of 2013; 128 units write about 540 MiB/s.
    fn default() -> Timings {
        Timings {
            page_read: Duration::from_micros(50),
            page_program: Duration::from_micros(900),
            block_erase: Duration::from_millis(3),
            units: 128,
        }
    }
}

impl Timings {
    /// What flash has been busy for since `ftl` began.
    pub fn busy(&self, ftl: &Ftl) -> Duration {
        let page_bytes = f64::from(PAGE_BYTES_MIN);
        let programmed = ftl.counts().programmed_bytes as f64 / page_bytes;
        let read = ftl.collected_pages() as f64 * f64::from(ftl.options().page_bytes) / page_bytes;
        let work = self.page_program.mul_f64(programmed) + self.page_read.mul_f64(read);
        work.div_f64(f64::from(self.units)) + self.block_erase.mul_f64(ftl.counts().erases as f64)
    }
}
