//! Miss-ratio curves of the simulated policies. Not how a figure is drawn.

use study::reproduce::{Axis, Figure, FigureSeries, Style};
use study::what_if::GridOutcome;

use super::PoliciesArguments;

pub(super) fn curves(outcomes: &[GridOutcome], arguments: &PoliciesArguments) -> Figure {
    let unit = if arguments.ignore_size { "cache size, objects" } else { "cache size, bytes" };
    let series = arguments.policy.iter().map(|policy| {
        let mine = outcomes.iter().filter(|outcome| outcome.policy == *policy);
        let mut points: Vec<(f64, f64)> =
            mine.map(|outcome| (outcome.size as f64, outcome.miss_ratio())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        FigureSeries::new(policy.to_string(), Style::Line, points)
    });
    let name = arguments
        .source
        .trace
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Figure {
        id: "policies".into(),
        title: format!("Miss ratio, {name}"),
        x: Axis::logarithmic(unit),
        y: Axis::from_zero("share of requests that miss"),
        series: series.collect(),
    }
}
