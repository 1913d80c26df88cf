//! A trace in chunks of requests with dense numbers of objects, which all simulations share. No simulation.

use engine::policy::{NEVER, Objects, Request};
use trace::{Access, Next, TraceError};

use super::WhatIfError;

/// Requests decoded at once: 2 MiB of them, which stay in a processor's cache while many simulations read them.
const CHUNK: usize = 1 << 17;

pub(super) struct Decoder<I> {
    accesses: I,
    ignore_size: bool,
    objects: Objects,
    /// Each request's next one, where the trace itself does not say.
    future: Vec<u64>,
    requests: u64,
}

impl<I: Iterator<Item = Result<Access, TraceError>>> Decoder<I> {
    /// The objects may be known from an earlier pass.
    pub(super) fn new(accesses: I, ignore_size: bool, objects: Objects, future: Vec<u64>) -> Decoder<I> {
        Decoder { accesses, ignore_size, objects, future, requests: 0 }
    }

    /// The next requests in place of those in the chunk; none are left after an empty one.
    pub(super) fn fill(&mut self, chunk: &mut Vec<Request>) -> Result<(), WhatIfError> {
        chunk.clear();
        while chunk.len() < CHUNK {
            let Some(access) = self.accesses.next().transpose()? else { break };
            let next = match access.next {
                Next::Known(number) => number,
                Next::Never => NEVER,
                Next::Unknown => self.future.get(self.requests as usize).copied().unwrap_or(NEVER),
            };
            self.requests += 1;
            let bytes = if self.ignore_size { 1 } else { access.bytes };
            let bytes =
                u32::try_from(bytes).map_err(|_| WhatIfError::Bytes { request: self.requests, bytes })?;
            chunk.push(Request { object: self.objects.number(access.object)?, bytes, next });
        }
        Ok(())
    }

    pub(super) fn objects(&self) -> usize {
        self.objects.count()
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }
}
