//! One figure's points as CSV: a row per point, with its series. Not their meaning.

use std::fmt::Write;

use study::reproduce::{Figure, FigurePoint};

/// The columns are named by the axes; low and high are empty where there is one value only.
pub(super) fn document(figure: &Figure) -> String {
    let mut out = format!("series,{},{},low,high\n", quoted(&figure.x.label), quoted(&figure.y.label));
    for series in &figure.series {
        for point in &series.points {
            let range = point.range.map_or(",".to_owned(), |(low, high)| format!("{low},{high}"));
            let _ = writeln!(out, "{},{},{},{range}", quoted(&series.name), x(figure, point), point.y);
        }
    }
    out
}

/// The name of a value where the axis has names.
pub(super) fn x(figure: &Figure, point: &FigurePoint) -> String {
    figure.x.names.get(point.x as usize).map_or_else(|| point.x.to_string(), |name| quoted(name))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
