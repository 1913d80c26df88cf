//! How far the work is, on a terminal: one line on stderr that is written again and again. Nothing elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

const BAR: usize = 30;
/// Wide enough to wipe what the line said before.
const LINE: usize = 78;

pub(super) struct ReproduceProgress {
    terminal: bool,
    begun: Instant,
    /// In the unit in which the work is told.
    whole: f64,
    done: f64,
}

impl ReproduceProgress {
    pub(super) fn new(whole: f64) -> ReproduceProgress {
        ReproduceProgress { terminal: io::stderr().is_terminal(), begun: Instant::now(), whole, done: 0.0 }
    }

    /// What is being done now, before it is.
    pub(super) fn begin(&self, what: &str) {
        if self.terminal {
            let line = line(self.done / self.whole, self.begun.elapsed().as_secs(), what);
            to_stderr(&format!("\r{line:<LINE$}"));
        }
    }

    pub(super) fn done(&mut self, work: f64) {
        self.done += work;
    }

    pub(super) fn clear(&self) {
        if self.terminal {
            to_stderr(&format!("\r{:LINE$}\r", ""));
        }
    }
}

fn line(share: f64, seconds: u64, what: &str) -> String {
    let full = ((share * BAR as f64) as usize).min(BAR);
    let bar = "#".repeat(full) + &"-".repeat(BAR - full);
    format!("[{bar}] {:3.0} %  {}:{:02}  {what}", 100.0 * share.min(1.0), seconds / 60, seconds % 60)
}

fn to_stderr(text: &str) {
    // Progress that nobody can read is no reason to stop.
    drop(io::stderr().lock().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_shows_share_time_and_work() {
        assert_eq!(super::line(0.5, 75, "D4"), "[###############---------------]  50 %  1:15  D4");
        assert_eq!(super::line(1.2, 0, "M6"), format!("[{}] 100 %  0:00  M6", "#".repeat(30)));
    }
}
