//! A trace in chunks of requests with dense numbers of objects, which all simulations share. No simulation.

use policies::{NEVER, ObjectRequest, Objects};
use trace::{Access, NextAccess, TraceError};

use super::WhatIfError;

/// Requests decoded at once: 2 MiB of them, which stay in a processor's cache while many simulations read them.
const CHUNK: usize = 1 << 17;

pub(super) struct RequestDecoder<I> {
    accesses: I,
    ignore_size: bool,
    objects: Objects,
    /// Each request's next one, where the trace itself does not say.
    future: Vec<u64>,
    /// Each object's next request as its last one announced it, if somebody relies on that.
    announced: Option<Vec<u64>>,
    requests: u64,
}

impl<I: Iterator<Item = Result<Access, TraceError>>> RequestDecoder<I> {
    /// The objects may be known from an earlier pass.
    pub(super) fn new(
        accesses: I,
        ignore_size: bool,
        objects: Objects,
        future: Vec<u64>,
    ) -> RequestDecoder<I> {
        RequestDecoder { accesses, ignore_size, objects, future, announced: None, requests: 0 }
    }

    /// From now on, what the trace says of next requests must be true. 8 bytes for each object.
    pub(super) fn check_next(&mut self) {
        self.announced = Some(Vec::new());
    }

    /// The next requests in place of those in the chunk; none are left after an empty one.
    pub(super) fn fill(&mut self, chunk: &mut Vec<ObjectRequest>) -> Result<(), WhatIfError> {
        chunk.clear();
        while chunk.len() < CHUNK {
            let Some(access) = self.accesses.next().transpose()? else { return self.check_absent() };
            let next = match access.next {
                NextAccess::Known(number) => number,
                NextAccess::Never => NEVER,
                NextAccess::Unknown => self.future.get(self.requests as usize).copied().unwrap_or(NEVER),
            };
            self.requests += 1;
            let bytes = if self.ignore_size { 1 } else { access.bytes };
            let bytes =
                u32::try_from(bytes).map_err(|_| WhatIfError::Bytes { request: self.requests, bytes })?;
            let object = self.objects.number(access.object)?;
            self.check_present(object, next)?;
            chunk.push(ObjectRequest { object, bytes, next });
        }
        Ok(())
    }

    /// Whether this request is the one that the last one for its object announced.
    fn check_present(&mut self, object: u32, next: u64) -> Result<(), WhatIfError> {
        let Some(announced) = &mut self.announced else { return Ok(()) };
        match announced.get_mut(object as usize) {
            None => announced.push(next),
            Some(expected) if *expected == self.requests => *expected = next,
            Some(&mut announced) => {
                let (request, object) = (self.requests, self.objects.id(object));
                return Err(WhatIfError::Unannounced { request, object, announced });
            }
        }
        Ok(())
    }

    /// Whether an object was announced that did not come. What lies behind the end may, in a trace that was cut.
    fn check_absent(&self) -> Result<(), WhatIfError> {
        let announced = self.announced.iter().flatten().zip(0..);
        match announced.filter(|(next, _)| **next <= self.requests).min() {
            None => Ok(()),
            Some((request, object)) => {
                Err(WhatIfError::Absent { request: *request, object: self.objects.id(object) })
            }
        }
    }

    pub(super) fn objects(&self) -> usize {
        self.objects.count()
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }
}
