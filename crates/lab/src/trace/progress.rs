//! How far the work is: a bar on stderr, where that is a terminal. Nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

/// Steps between two looks at the position, so that neither the look nor the bar costs anything.
const STEPS: u64 = 1 << 16;

pub(crate) struct StepProgress {
    bar: ProgressBar,
    steps: u64,
}

impl StepProgress {
    pub(crate) fn bytes(all: u64) -> StepProgress {
        StepProgress::new(all, "{wide_bar} {percent:>3} %  {bytes} of {total_bytes}  {eta} left")
    }

    pub(crate) fn requests(all: u64) -> StepProgress {
        StepProgress::new(all, "{wide_bar} {percent:>3} %  {human_pos} of {human_len} requests  {eta} left")
    }

    fn new(all: u64, template: &str) -> StepProgress {
        let style = ProgressStyle::with_template(template).expect("the template is ours");
        StepProgress { bar: ProgressBar::new(all).with_style(style), steps: 0 }
    }

    /// One step is done; the position is asked for now and then.
    #[inline]
    pub(crate) fn step(&mut self, position: impl FnOnce() -> u64) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) {
            self.bar.set_position(position());
        }
    }

    /// For work that tells its position rarely enough.
    pub(crate) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }
}

impl Drop for StepProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
