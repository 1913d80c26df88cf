//! A device that fails on purpose, the same way for the same seed. The bytes are in another device.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::counts::DeviceCounters;
use super::{AlignedBuffer, Device, DeviceCounts, SECTOR, check};

/// What goes wrong with one operation. What makes no sense for its kind (a torn sync) is an `Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// Nothing happens but an error. After that of a sync the next one does not cover what this one should have, as the page
    /// cache takes a page for clean that it could not write.
    Error,
    /// An error after some of the first sectors were written.
    Torn,
    /// Success, though only some of the first sectors were written.
    TornUnnoticed,
    /// Success, though one bit is wrong: of what is stored if it is a write, of what is delivered if it is a read.
    Corrupted,
    /// A write that finds no space.
    Full,
    /// The write is torn, and everything fails until `restart`.
    PowerCut,
}

/// How likely each operation fails which way; tried in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    pub error: f64,
    pub torn: f64,
    pub torn_unnoticed: f64,
    pub corrupted: f64,
    pub full: f64,
}

/// Reads, writes, syncs and discards are counted as operations, from 0, refused ones too.
#[derive(Debug)]
pub struct FaultyDevice<D> {
    store: D,
    state: Mutex<FaultyState>,
    /// Not those of the store, which also carries out what a power cut needs.
    counters: DeviceCounters,
}

#[derive(Debug)]
struct FaultyState {
    random: SmallRng,
    operations: u64,
    planned: BTreeMap<u64, DeviceFault>,
    rates: FaultRates,
    has_power: bool,
    /// First sector and bytes of each write since the last sync.
    unsynced: Vec<(u64, Box<[u8]>)>,
    /// Sectors that a sync should have covered and did not.
    dropped: BTreeMap<u64, Box<[u8]>>,
    /// What the sectors of both held at the last sync.
    synced: BTreeMap<u64, Box<[u8]>>,
}

impl<D: Device> FaultyDevice<D> {
    pub fn new(store: D, seed: u64) -> FaultyDevice<D> {
        let state = FaultyState {
            random: SmallRng::seed_from_u64(seed),
            operations: 0,
            planned: BTreeMap::new(),
            rates: FaultRates::default(),
            has_power: true,
            unsynced: Vec::new(),
            dropped: BTreeMap::new(),
            synced: BTreeMap::new(),
        };
        FaultyDevice { store, state: Mutex::new(state), counters: DeviceCounters::default() }
    }

    /// Operations so far, which is also the number of the next one.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Lets the operation of this number fail.
    pub fn plan(&self, operation: u64, fault: DeviceFault) {
        self.state().planned.insert(operation, fault);
    }

    pub fn set_rates(&self, rates: FaultRates) {
        self.state().rates = rates;
    }

    /// Now: each write since the last sync is kept, lost, or kept in part, and everything fails until `restart`.
    pub fn cut_power(&self) -> io::Result<()> {
        self.lose_unsynced(&mut self.state())
    }

    /// Power is back.
    pub fn restart(&self) {
        self.state().has_power = true;
    }

    /// Flips one bit in each sector of these bytes, as time does.
    pub fn corrupt(&self, offset: u64, bytes: u64) -> io::Result<()> {
        check(self.bytes(), offset, bytes)?;
        let mut state = self.state();
        let mut sector = AlignedBuffer::new(SECTOR);
        for place in (offset..offset + bytes).step_by(SECTOR) {
            self.store.read(place, &mut sector)?;
            flip(&mut state.random, &mut sector);
            self.store.write(place, &sector)?;
        }
        Ok(())
    }

    pub fn store(&self) -> &D {
        &self.store
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the first `sectors` of the buffer, as something that a power cut may undo.
    fn write_unsynced(
        &self,
        state: &mut FaultyState,
        offset: u64,
        buffer: &[u8],
        sectors: usize,
    ) -> io::Result<()> {
        let first = offset / SECTOR as u64;
        let mut before = AlignedBuffer::new(SECTOR);
        for sector in first..first + sectors as u64 {
            if let Entry::Vacant(synced) = state.synced.entry(sector) {
                self.store.read(sector * SECTOR as u64, &mut before)?;
                synced.insert(Box::from(&*before));
            }
        }
        if sectors > 0 {
            let buffer = &buffer[..sectors * SECTOR];
            state.unsynced.push((first, Box::from(buffer)));
            self.store.write(offset, buffer)?;
        }
        Ok(())
    }

    fn lose_unsynced(&self, state: &mut FaultyState) -> io::Result<()> {
        state.has_power = false;
        let mut left = std::mem::take(&mut state.synced);
        let dropped = std::mem::take(&mut state.dropped);
        left.extend(dropped.into_iter().filter(|_| state.random.random()));
        for (first, bytes) in std::mem::take(&mut state.unsynced) {
            let sectors = bytes.len() / SECTOR;
            let stays = match state.random.random_range(0..3) {
                0 => 0,
                1 => sectors,
                _ => state.random.random_range(0..sectors),
            };
            left.extend(numbered(first, &bytes).take(stays));
        }
        let mut aligned = AlignedBuffer::new(SECTOR);
        for (sector, bytes) in left {
            aligned.copy_from_slice(&bytes);
            self.store.write(sector * SECTOR as u64, &aligned)?;
        }
        Ok(())
    }
}

impl FaultyState {
    /// Counts an operation and tells how it is to fail.
    fn begin(&mut self) -> io::Result<Option<DeviceFault>> {
        let operation = self.operations;
        self.operations += 1;
        if !self.has_power {
            return Err(io::Error::new(ErrorKind::NotConnected, "injected: no power"));
        }
        let rates = self.rates;
        let drawn: f64 = self.random.random();
        let mut sum = 0.0;
        let by_rate = [
            (rates.error, DeviceFault::Error),
            (rates.torn, DeviceFault::Torn),
            (rates.torn_unnoticed, DeviceFault::TornUnnoticed),
            (rates.corrupted, DeviceFault::Corrupted),
            (rates.full, DeviceFault::Full),
        ]
        .into_iter()
        .find(|(rate, _)| {
            sum += rate;
            drawn < sum
        });
        Ok(self.planned.remove(&operation).or(by_rate.map(|(_, fault)| fault)))
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        check(self.bytes(), offset, buffer.len() as u64)?;
        let fault = self.state().begin()?;
        match fault {
            None => self.store.read(offset, buffer)?,
            Some(DeviceFault::Corrupted) => {
                self.store.read(offset, buffer)?;
                flip(&mut self.state().random, buffer);
            }
            Some(DeviceFault::PowerCut) => return self.cut_power().and(injected("power cut")),
            Some(_) => return injected("read failed"),
        }
        self.counters.read(buffer.len());
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        check(self.bytes(), offset, buffer.len() as u64)?;
        let mut state = self.state();
        let fault = state.begin()?;
        let sectors = buffer.len() / SECTOR;
        let torn = if sectors == 0 { 0 } else { state.random.random_range(0..sectors) };
        match fault {
            None => self.write_unsynced(&mut state, offset, buffer, sectors)?,
            Some(DeviceFault::Error) => return injected("write failed"),
            Some(DeviceFault::Torn) => {
                self.write_unsynced(&mut state, offset, buffer, torn)?;
                return injected("write failed half way");
            }
            Some(DeviceFault::TornUnnoticed) => self.write_unsynced(&mut state, offset, buffer, torn)?,
            Some(DeviceFault::Corrupted) => {
                let mut wrong = buffer.to_vec();
                flip(&mut state.random, &mut wrong);
                self.write_unsynced(&mut state, offset, &wrong, sectors)?;
            }
            Some(DeviceFault::Full) => {
                return Err(io::Error::new(ErrorKind::StorageFull, "injected: no space left"));
            }
            Some(DeviceFault::PowerCut) => {
                self.write_unsynced(&mut state, offset, buffer, torn)?;
                return self.lose_unsynced(&mut state).and(injected("power cut"));
            }
        }
        self.counters.write(buffer.len());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        match state.begin()? {
            None => {
                self.store.sync()?;
                let FaultyState { unsynced, dropped, synced, .. } = &mut *state;
                for (first, bytes) in unsynced.drain(..) {
                    numbered(first, &bytes).for_each(|(sector, _)| drop(dropped.remove(&sector)));
                }
                synced.retain(|sector, _| dropped.contains_key(sector));
                Ok(())
            }
            Some(DeviceFault::PowerCut) => self.lose_unsynced(&mut state).and(injected("power cut")),
            Some(_) => {
                for (first, bytes) in std::mem::take(&mut state.unsynced) {
                    state.dropped.extend(numbered(first, &bytes));
                }
                injected("sync failed")
            }
        }
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        check(self.bytes(), offset, bytes)?;
        let mut state = self.state();
        match state.begin()? {
            None => self.store.discard(offset, bytes)?,
            Some(DeviceFault::PowerCut) => return self.lose_unsynced(&mut state).and(injected("power cut")),
            Some(_) => return injected("discard failed"),
        }
        self.counters.discard(bytes);
        Ok(())
    }

    fn counts(&self) -> DeviceCounts {
        DeviceCounts { flash: self.store.counts().flash, ..self.counters.counts() }
    }

    fn description(&self) -> String {
        format!("faults over {}", self.store.description())
    }
}

/// The sectors of a write.
fn numbered(first: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, Box<[u8]>)> {
    (first..).zip(bytes.chunks_exact(SECTOR).map(Box::from))
}

fn injected(what: &str) -> io::Result<()> {
    Err(io::Error::other(format!("injected: {what}")))
}

fn flip(random: &mut SmallRng, bytes: &mut [u8]) {
    if !bytes.is_empty() {
        let at = random.random_range(0..bytes.len());
        bytes[at] ^= 1 << random.random_range(0..8);
    }
}
