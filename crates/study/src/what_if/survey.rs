//! A first pass over a trace, where something must be known before the simulation begins. No simulation.

use policies::{NEVER, Objects};
use trace::{Access, NextAccess, TraceError};

use super::WhatIfError;

/// What a whole trace holds.
#[derive(Debug, Default)]
pub struct Survey {
    pub requests: u64,
    /// Each object counted once, with its first size.
    pub working_set: u64,
    /// Bytes of the largest access.
    pub bytes_max: u64,
    pub(super) objects: Objects,
    /// Each request's next one, where the trace does not say and somebody must know. 8 bytes for each request.
    pub(super) future: Vec<u64>,
}

impl Survey {
    pub fn of(
        accesses: impl Iterator<Item = Result<Access, TraceError>>,
        ignore_size: bool,
        needs_future: bool,
    ) -> Result<Survey, WhatIfError> {
        let mut survey = Survey::default();
        let mut latest: Vec<u64> = Vec::new();
        for access in accesses {
            let access = access?;
            let object = survey.objects.number(access.object)? as usize;
            if object == latest.len() {
                survey.working_set += if ignore_size { 1 } else { access.bytes };
                latest.push(0);
            }
            survey.requests += 1;
            survey.bytes_max = survey.bytes_max.max(access.bytes);
            // What the trace says is believed, and checked later.
            if needs_future && access.next == NextAccess::Unknown {
                survey.future.resize(survey.requests as usize - 1, NEVER);
                survey.future.push(NEVER);
            }
            let before = latest[object].checked_sub(1);
            if let Some(next) = before.and_then(|before| survey.future.get_mut(before as usize)) {
                *next = survey.requests;
            }
            latest[object] = survey.requests;
        }
        if survey.requests == 0 { Err(WhatIfError::Empty) } else { Ok(survey) }
    }
}
