//! What `distcache demo --record` has written: pictures in cells, figures, and the table at the end. Not how it is drawn.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// From top to bottom: pieces of one style, from left to right.
pub(super) type Rows = Vec<Vec<(String, String)>>;

#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) frames: Vec<RecordedFrame>,
    pub(super) summary: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RecordedFrame {
    pub(super) at_us: u64,
    pub(super) phase: String,
    pub(super) servers: Vec<f64>,
    pub(super) server_rate_max: f64,
    pub(super) p99_us: u64,
    pub(super) late_per_s: u64,
    pub(super) failed_per_s: u64,
    pub(super) rows: Rows,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedLine {
    Frame(RecordedFrame),
    End { summary: Vec<String> },
}

impl Recording {
    pub(super) fn read(path: &Path) -> anyhow::Result<Recording> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let mut recording = Recording::default();
        for (number, line) in text.lines().enumerate() {
            let line = serde_json::from_str(line)
                .with_context(|| format!("{}: line {}", path.display(), number + 1))?;
            match line {
                RecordedLine::Frame(frame) => recording.frames.push(frame),
                RecordedLine::End { summary } => recording.summary = summary,
            }
        }
        anyhow::ensure!(
            !recording.frames.is_empty() && !recording.summary.is_empty(),
            "{}: the demonstration did not come to its end",
            path.display()
        );
        Ok(recording)
    }

    /// When the cache was switched on.
    pub(super) fn switch_us(&self) -> Option<u64> {
        self.frames.iter().find(|frame| frame.phase == "with cache").map(|frame| frame.at_us)
    }
}
