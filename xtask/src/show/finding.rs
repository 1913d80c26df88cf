//! What a show has found: figures for machines, lines for people, and the bounds that were missed.

use serde_json::{Map, Value};

#[derive(Debug, Default)]
pub(super) struct Finding {
    pub(super) figures: Map<String, Value>,
    pub(super) lines: Vec<String>,
    pub(super) missed: Vec<String>,
}

impl Finding {
    pub(super) fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    pub(super) fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// A bound with what was measured: kept whether it holds or not.
    pub(super) fn bound(&mut self, holds: bool, text: impl Into<String>) {
        let text = text.into();
        self.lines.push(format!("{}  {text}", if holds { "holds " } else { "MISSED" }));
        if !holds {
            self.missed.push(text);
        }
    }
}

/// The middle of the values, the upper one of two; zero of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
