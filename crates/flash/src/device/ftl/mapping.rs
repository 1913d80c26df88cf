//! A page-mapped flash translation layer with greedy garbage collection, as a machine that counts. It holds no bytes.

use std::collections::VecDeque;
use std::io;

use super::super::{FlashCounts, filled};
use super::touched;
use super::victims::Victims;

pub(super) const PAGE_BYTES_MIN: u32 = 4096;

/// Blocks erased and ready: one for the host and one that garbage collection can always take.
const FREE_BLOCKS_MIN: usize = 2;

/// Beyond those, the two that are open and one, so that the emptiest closed block is never full.
const SPARE_BLOCKS_MIN: u64 = FREE_BLOCKS_MIN as u64 + 3;

const NONE: u32 = u32::MAX;

/// What a page, here or there, and a block take in memory.
const PAGE_MEMORY: u64 = size_of::<u32>() as u64;
const BLOCK_MEMORY: u64 = 6 * size_of::<u32>() as u64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FtlOptions {
    /// The unit of programming and of the map; a write of less programs a whole one.
    pub page_bytes: u32,
    /// The unit of erasing: what a device erases and fills at once over all its chips (dissertation, section 4.2.1).
    pub block_pages: u32,
    /// Flash beyond what the host sees, as a share of that.
    pub over_provisioning: f64,
}

impl Default for FtlOptions {
    /// The spare room of a device whose flash is counted in GiB and sold in GB, and an erase block of 16 MiB.
    fn default() -> FtlOptions {
        FtlOptions { page_bytes: 4096, block_pages: 4096, over_provisioning: 0.073_741_824 }
    }
}

impl FtlOptions {
    /// Erase blocks behind a device of so many bytes, or why there is no such device.
    pub fn blocks(&self, bytes: u64) -> io::Result<u32> {
        let FtlOptions { page_bytes, block_pages, over_provisioning } = *self;
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if page_bytes < PAGE_BYTES_MIN || !page_bytes.is_power_of_two() {
            return refuse(format!(
                "flash pages of {page_bytes} bytes: a power of two from 4096 on is needed"
            ));
        }
        if block_pages == 0 || !(over_provisioning.is_finite() && over_provisioning >= 0.0) {
            return refuse(format!(
                "erase blocks of {block_pages} pages, over-provisioning {over_provisioning}"
            ));
        }
        let (pages, blocks) = (self.pages(bytes), self.blocks_asked(bytes));
        let needed = pages.div_ceil(u64::from(block_pages)) + SPARE_BLOCKS_MIN;
        if blocks < needed {
            let have = blocks * u64::from(block_pages) * u64::from(page_bytes);
            return refuse(format!(
                "{blocks} erase blocks ({have} bytes of flash) are too few for {bytes} bytes, at least {needed} \
                 are needed: make erase blocks smaller, or over-provisioning or the device larger"
            ));
        }
        let flash_pages = blocks.saturating_mul(u64::from(block_pages));
        if flash_pages >= u64::from(NONE) {
            return refuse(format!(
                "{flash_pages} flash pages are more than the simulator maps: make pages larger"
            ));
        }
        Ok(blocks as u32)
    }

    /// What simulating a device of so many bytes takes, without these.
    pub fn memory_bytes(&self, bytes: u64) -> u64 {
        let blocks = self.blocks_asked(bytes);
        let pages = self.pages(bytes).saturating_add(blocks.saturating_mul(self.block_pages.into()));
        pages.saturating_mul(PAGE_MEMORY).saturating_add(blocks.saturating_mul(BLOCK_MEMORY))
    }

    fn pages(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.page_bytes.max(1)))
    }

    fn blocks_asked(&self, bytes: u64) -> u64 {
        (self.pages(bytes) as f64 * (1.0 + self.over_provisioning) / f64::from(self.block_pages)) as u64
    }
}

/// How often blocks were erased.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wear {
    pub erases_min: u32,
    pub erases_mean: f64,
    pub erases_max: u32,
}

/// Where each page of the host is on flash.
#[derive(Debug)]
pub struct Ftl {
    options: FtlOptions,
    /// Flash page of each page of the host.
    places: Vec<u32>,
    /// Page of the host that each flash page holds, if that is its newest copy.
    owners: Vec<u32>,
    valid: Vec<u32>,
    erases: Vec<u32>,
    /// Blocks that are full.
    closed: Victims,
    free: VecDeque<u32>,
    /// Apart, as what survived garbage collection once lives longer than what was just written.
    open_host: Open,
    open_collected: Open,
    counts: FlashCounts,
    collected_pages: u64,
}

/// A block being filled.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    pages: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum From {
    Host,
    Collection,
}

impl Ftl {
    pub fn new(bytes: u64, options: &FtlOptions) -> io::Result<Ftl> {
        let block_pages = options.block_pages;
        let blocks = options.blocks(bytes)?;
        let mut free: VecDeque<u32> = (0..blocks).collect();
        let mut open = || Open { block: free.pop_front().unwrap_or(NONE), pages: 0 };
        let (open_host, open_collected) = (open(), open());
        Ok(Ftl {
            options: *options,
            places: filled(options.pages(bytes), || NONE)?,
            owners: filled(u64::from(blocks) * u64::from(block_pages), || NONE)?,
            valid: vec![0; blocks as usize],
            erases: vec![0; blocks as usize],
            closed: Victims::new(blocks, block_pages),
            free,
            open_host,
            open_collected,
            counts: FlashCounts::default(),
            collected_pages: 0,
        })
    }

    /// The host writes these bytes, which are within the device.
    pub fn write(&mut self, offset: u64, bytes: u64) {
        for page in touched(offset, bytes, u64::from(self.options.page_bytes)) {
            self.program(page, From::Host);
        }
    }

    /// Forgets the pages that lie within these bytes as a whole.
    pub fn discard(&mut self, offset: u64, bytes: u64) {
        let page_bytes = u64::from(self.options.page_bytes);
        let end = ((offset + bytes) / page_bytes) as usize;
        for page in offset.div_ceil(page_bytes) as usize..end {
            self.invalidate(page);
        }
    }

    pub fn counts(&self) -> FlashCounts {
        self.counts
    }

    /// Pages that garbage collection has moved.
    pub fn collected_pages(&self) -> u64 {
        self.collected_pages
    }

    pub fn options(&self) -> &FtlOptions {
        &self.options
    }

    pub fn blocks(&self) -> u32 {
        self.valid.len() as u32
    }

    pub fn wear(&self) -> Wear {
        let erases = || self.erases.iter().copied();
        let sum: u64 = erases().map(u64::from).sum();
        Wear {
            erases_min: erases().min().unwrap_or(0),
            erases_mean: sum as f64 / self.erases.len() as f64,
            erases_max: erases().max().unwrap_or(0),
        }
    }

    pub(super) fn description(&self) -> String {
        let FtlOptions { page_bytes, block_pages, over_provisioning } = self.options;
        let block_kib = (u64::from(page_bytes) * u64::from(block_pages)) >> 10;
        format!(
            "flash simulator (pages of {} KiB, {} erase blocks of {block_kib} KiB, over-provisioning {:.1} %)",
            page_bytes >> 10,
            self.blocks(),
            100.0 * over_provisioning
        )
    }

    fn program(&mut self, page: u32, from: From) {
        self.invalidate(page as usize);
        let mut open = self.open(from);
        if open.pages == self.options.block_pages {
            self.closed.insert(open.block, self.valid[open.block as usize]);
            if from == From::Host {
                self.collect();
            }
            let block = self.free.pop_front().expect("garbage collection left a block");
            open = Open { block, pages: 0 };
        }
        let place = open.block * self.options.block_pages + open.pages;
        open.pages += 1;
        match from {
            From::Host => self.open_host = open,
            From::Collection => self.open_collected = open,
        }
        self.places[page as usize] = place;
        self.owners[place as usize] = page;
        self.valid[open.block as usize] += 1;
        self.counts.programmed_bytes += u64::from(self.options.page_bytes);
    }

    fn open(&self, from: From) -> Open {
        match from {
            From::Host => self.open_host,
            From::Collection => self.open_collected,
        }
    }

    fn invalidate(&mut self, page: usize) {
        let place = std::mem::replace(&mut self.places[page], NONE);
        if place != NONE {
            self.owners[place as usize] = NONE;
            let block = place / self.options.block_pages;
            self.valid[block as usize] -= 1;
            self.closed.decrement(block);
        }
    }

    /// Greedy: moves what is valid in the emptiest block and erases it, until enough are free.
    fn collect(&mut self) {
        while self.free.len() < FREE_BLOCKS_MIN {
            let victim = self.closed.take().expect("most blocks are closed");
            let block_pages = self.options.block_pages;
            let first = victim * block_pages;
            for place in first..first + block_pages {
                let page = self.owners[place as usize];
                if page != NONE {
                    self.program(page, From::Collection);
                    self.collected_pages += 1;
                }
            }
            debug_assert_eq!(self.valid[victim as usize], 0);
            self.erases[victim as usize] += 1;
            self.counts.erases += 1;
            self.free.push_back(victim);
        }
    }
}
