//! The figures of a recording over time: each storage server's load, and what clients met. Not the moving picture.

use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, DrawingArea, IntoDrawingArea, LineSeries, PathElement, RGBColor, SVGBackend,
    SeriesLabelPosition, Text, WHITE,
};
use plotters::style::{Color, IntoFont};

use super::recording::{RecordedFrame, Recording};

const SIZE: (u32, u32) = (860, 560);
const RED: RGBColor = RGBColor(220, 50, 32);
const BLUE: RGBColor = RGBColor(0, 90, 181);
const GREY: RGBColor = RGBColor(170, 170, 170);
const DARK: RGBColor = RGBColor(90, 90, 90);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

pub(super) fn write(recording: &Recording, path: &Path) -> anyhow::Result<()> {
    draw(recording, path).map_err(|error| anyhow!("{}: {error}", path.display()))
}

fn draw(recording: &Recording, path: &Path) -> Drawn {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (upper, lower) = area.split_vertically(SIZE.1 / 2);
    let line = |name: &'static str, colour, figure: &dyn Fn(&RecordedFrame) -> f64| PictureLine {
        name,
        colour,
        points: recording.frames.iter().map(|frame| (frame.at_us as f64 / 1e6, figure(frame))).collect(),
    };
    let busiest = busiest(recording);
    let server = |index: usize| move |frame: &RecordedFrame| frame.servers.get(index).copied().unwrap_or(0.0);
    let count = recording.frames.first().map_or(0, |frame| frame.servers.len());
    let mut servers: Vec<PictureLine> = (0..count)
        .filter(|index| *index != busiest)
        .enumerate()
        .map(|(number, index)| line(if number == 0 { "the other servers" } else { "" }, BLUE, &server(index)))
        .collect();
    servers.insert(0, line("what a server can do (emulated)", GREY, &|frame| frame.server_rate_max));
    servers.push(line("the server of the hottest key", RED, &server(busiest)));
    let switch_s = recording.switch_us().map(|at_us| at_us as f64 / 1e6);
    panel(&upper, "Requests/s at each storage server", "", &servers, switch_s)?;
    let clients = [
        line("p99 latency (ms)", RED, &|frame| frame.p99_us as f64 / 1e3),
        line("late or failed requests/s", DARK, &|frame| (frame.late_per_s + frame.failed_per_s) as f64),
    ];
    panel(&lower, "What clients meet", "seconds", &clients, switch_s)?;
    area.present()?;
    Ok(())
}

struct PictureLine {
    /// Empty where another line's says it.
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// The server that did most before the switch.
fn busiest(recording: &Recording) -> usize {
    let before = recording.frames.iter().take_while(|frame| frame.phase != "with cache");
    let mut sums = Vec::new();
    for frame in before {
        sums.resize(frame.servers.len(), 0.0);
        sums.iter_mut().zip(&frame.servers).for_each(|(sum, rate)| *sum += rate);
    }
    (0..sums.len()).max_by(|one, other| f64::total_cmp(&sums[*one], &sums[*other])).unwrap_or(0)
}

fn panel(area: &Area<'_>, title: &str, x: &str, lines: &[PictureLine], switch_s: Option<f64>) -> Drawn {
    let points = || lines.iter().flat_map(|line| &line.points);
    let right = points().map(|point| point.0).fold(1e-9, f64::max);
    let top = points().map(|point| point.1).fold(1e-9, f64::max) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(10)
        .x_label_area_size(if x.is_empty() { 24 } else { 40 })
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart.configure_mesh().x_desc(x).light_line_style(WHITE).draw()?;
    if let Some(at) = switch_s {
        chart.draw_series(LineSeries::new([(at, 0.0), (at, top)], DARK))?;
        let font = ("sans-serif", 14).into_font().color(&DARK);
        chart.draw_series([Text::new("cache switched on", (at + right / 150.0, top * 0.97), font)])?;
    }
    for line in lines {
        let width = if line.colour == BLUE { 1 } else { 2 };
        let series = chart
            .draw_series(LineSeries::new(line.points.iter().copied(), line.colour.stroke_width(width)))?;
        if !line.name.is_empty() {
            let colour = line.colour.stroke_width(2);
            series.label(line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE)
        .border_style(GREY)
        .draw()?;
    Ok(())
}
