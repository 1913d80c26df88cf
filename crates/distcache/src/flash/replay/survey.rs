//! What a replay must know of its trace beforehand, and what its policy would hit exactly. No cache on a device.

use engine::policy::{Objects, Spec};
use indicatif::{ProgressBar, ProgressStyle};
use study::what_if::{Outcome, Setting, Size};
use trace::Access;

use super::Arguments;

#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) requests: u64,
    /// Of the first sizes of all objects.
    pub(super) working_set: u64,
    pub(super) bytes_max: u64,
}

impl Survey {
    pub(super) fn of(accesses: impl Iterator<Item = anyhow::Result<Access>>) -> anyhow::Result<Survey> {
        let mut survey = Survey::default();
        let mut objects = Objects::default();
        for access in accesses {
            let access = access?;
            let known = objects.count();
            survey.requests += 1;
            survey.bytes_max = survey.bytes_max.max(access.bytes);
            if objects.number(access.object)? as usize == known {
                survey.working_set += access.bytes;
            }
        }
        Ok(survey)
    }

    /// On stderr, and only on a terminal.
    pub(super) fn bar(&self) -> ProgressBar {
        let bar = ProgressBar::new(self.requests).with_message("replaying");
        match ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} requests  {elapsed}, {eta} left") {
            Ok(style) => bar.with_style(style.progress_chars("#--")),
            Err(_) => bar,
        }
    }
}

/// The policy itself, in so many bytes and with nothing else to store.
pub(super) fn exact(arguments: &Arguments, capacity: u64) -> anyhow::Result<Outcome> {
    let policy: Spec = arguments.policy().to_string().parse()?;
    let setting = Setting {
        policies: vec![policy],
        sizes: vec![Size::Bytes(capacity)],
        ignore_size: false,
        warmup: arguments.warmup,
        threads: 1,
    };
    let outcomes = setting.simulate(|| trace::open(&arguments.trace, arguments.format))?;
    outcomes.first().copied().ok_or_else(|| anyhow::anyhow!("no outcome"))
}
