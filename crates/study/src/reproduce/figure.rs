//! A figure as data: axes and series of points. Not how it is drawn.

/// One of the two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// With its unit.
    pub label: String,
    pub logarithmic: bool,
    /// Where values are not numbers: the names of 0, 1, 2 ...
    pub names: Vec<String>,
    /// The least and the greatest value shown, instead of those of the points.
    pub from: Option<f64>,
    pub to: Option<f64>,
}

impl Axis {
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), logarithmic: false, names: Vec::new(), from: None, to: None }
    }

    /// Linear, from 0 on, whatever the smallest value is.
    pub fn from_zero(label: &str) -> Axis {
        Axis { from: Some(0.0), ..Axis::linear(label) }
    }

    pub fn logarithmic(label: &str) -> Axis {
        Axis { logarithmic: true, ..Axis::linear(label) }
    }

    pub fn named(label: &str, names: &[&str]) -> Axis {
        Axis { names: names.iter().map(|&name| name.to_owned()).collect(), ..Axis::linear(label) }
    }

    pub fn between(mut self, from: f64, to: f64) -> Axis {
        (self.from, self.to) = (Some(from), Some(to));
        self
    }
}

/// A value, and where runs differ the smallest and the largest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigurePoint {
    pub x: f64,
    pub y: f64,
    pub range: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Points joined by a line.
    Line,
    /// A line without marks, for what is computed by a formula.
    Curve,
    /// Side by side with those of the other series.
    Bars,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FigureSeries {
    pub name: String,
    pub style: Style,
    pub points: Vec<FigurePoint>,
}

impl FigureSeries {
    pub fn new(
        name: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> FigureSeries {
        let points = points.into_iter().map(|(x, y)| FigurePoint { x, y, range: None }).collect();
        FigureSeries { name: name.into(), style, points }
    }

    /// Points as x, mean, smallest, largest.
    pub fn with_ranges(
        name: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = (f64, f64, f64, f64)>,
    ) -> FigureSeries {
        let points = points
            .into_iter()
            .map(|(x, y, low, high)| FigurePoint { x, y, range: Some((low, high)) })
            .collect();
        FigureSeries { name: name.into(), style, points }
    }
}

/// What one figure of a paper shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Names its files.
    pub id: String,
    /// Which figure of which paper, and of what.
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<FigureSeries>,
}
