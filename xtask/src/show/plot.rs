//! Time series as SVG. Not what they mean.

use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::{
    ChartBuilder, IntoDrawingArea, LineSeries, PathElement, RGBColor, SVGBackend, SeriesLabelPosition, WHITE,
};
use plotters::style::Color;

/// One line, as points of x and y.
pub(super) struct PlotLine<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) lines: Vec<PlotLine<'a>>,
    /// Vertical lines where something happened.
    pub(super) marks: Vec<f64>,
}

const SIZE: (u32, u32) = (960, 420);
/// Told apart by people who see few colours, too.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 90, 181), RGBColor(220, 50, 32), RGBColor(26, 133, 66), RGBColor(150, 90, 200)];
const GREY: RGBColor = RGBColor(170, 170, 170);

impl Plot<'_> {
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        self.draw(path).map_err(|error| anyhow!("{}: {error}", path.display()))
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let right = points().map(|point| point.0).fold(1e-9, f64::max);
        let top = points().map(|point| point.1).fold(1e-9, f64::max) * 1.1;
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..right, 0.0..top)?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).light_line_style(WHITE).draw()?;
        for mark in &self.marks {
            chart.draw_series(LineSeries::new([(*mark, 0.0), (*mark, top)], GREY))?;
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let series =
                chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
            let colour = *colour;
            series.label(line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE)
            .border_style(GREY)
            .draw()?;
        area.present()?;
        Ok(())
    }
}
