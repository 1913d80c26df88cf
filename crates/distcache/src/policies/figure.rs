//! Miss-ratio curves of the simulated policies. Not how a figure is drawn.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use study::reproduce::{Axis, Figure, Series, Style};
use study::what_if::Outcome;

use super::Arguments;
use crate::reproduce::{Rasteriser, svg_document};

/// Where the figure goes, and as what.
#[derive(Clone, Debug)]
pub(super) struct File {
    path: PathBuf,
    png: bool,
}

pub(super) fn file(text: &str) -> Result<File, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => Ok(File { path, png: false }),
        Some("png") => Ok(File { path, png: true }),
        _ => Err("write a name that ends in .svg or .png".to_owned()),
    }
}

pub(super) fn write(file: &File, outcomes: &[Outcome], arguments: &Arguments) -> anyhow::Result<()> {
    let drawn = svg_document(&curves(outcomes, arguments));
    let bytes = if file.png { Rasteriser::new().png(&drawn)? } else { drawn.into_bytes() };
    fs::write(&file.path, bytes).with_context(|| format!("{}: cannot be written", file.path.display()))
}

fn curves(outcomes: &[Outcome], arguments: &Arguments) -> Figure {
    let unit = if arguments.ignore_size { "cache size, objects" } else { "cache size, bytes" };
    let series = arguments.policy.iter().map(|policy| {
        let mine = outcomes.iter().filter(|outcome| outcome.policy == *policy);
        let mut points: Vec<(f64, f64)> =
            mine.map(|outcome| (outcome.size as f64, outcome.miss_ratio())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(policy.to_string(), Style::Line, points)
    });
    let name =
        arguments.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Figure {
        id: "policies".into(),
        title: format!("Miss ratio, {name}"),
        x: Axis::logarithmic(unit),
        y: Axis::from_zero("share of requests that miss"),
        series: series.collect(),
    }
}
