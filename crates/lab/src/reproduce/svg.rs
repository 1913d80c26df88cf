//! One figure as SVG: plot area, series, legend. Colours are classes, so that a page can give them a theme of its own.

use std::fmt::Write;

use study::reproduce::{Figure, FigurePoint, FigureSeries, Style};

use super::scale::AxisScale;

const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 320.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 20.0;
const BELOW: f64 = 58.0;
/// Half of a mark.
const MARK: f64 = 6.0;
const LEGEND_ROW: f64 = 20.0;
/// What a letter of the legend is wide, about.
const LETTER: f64 = 7.0;
const KEY: f64 = 34.0;

/// Told apart by people who see few colours, too; the marks differ as well.
const COLOURS: [&str; 6] = ["#005ab5", "#dc3220", "#1a8542", "#9658c8", "#b36b00", "#56606b"];

/// A file of its own, on white.
pub(crate) fn document(figure: &Figure) -> String {
    let mut style = String::from(
        ".paper{fill:#fff}.text{fill:#222}.grid{stroke:#ddd}.frame{stroke:#777}\
         text{font-family:'DejaVu Sans',sans-serif;font-size:13px}.line,.grid,.frame{fill:none}",
    );
    for (index, colour) in COLOURS.iter().enumerate() {
        let _ = write!(style, ".line.c{index}{{stroke:{colour}}}.mark.c{index}{{fill:{colour}}}");
    }
    let (height, body) = body(figure, 26.0);
    let title = escape(&figure.title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\"><title>{title}</title><style>{style}</style>\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\
         <text class=\"text\" x=\"{LEFT}\" y=\"26\">{title}</text>{body}</svg>\n"
    )
}

/// A part of a page, which gives the classes their colours and shows the title itself.
pub(super) fn inline(figure: &Figure) -> String {
    let (height, body) = body(figure, 0.0);
    let title = escape(&figure.title);
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{body}</svg>")
}

/// The colours as rules for a page whose classes they are; `dark` makes them lighter.
pub(super) fn colour_rules(dark: bool) -> String {
    let light = |colour: &str| {
        let part = |at: usize| u32::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0);
        let lighter = |at| part(at) + (255 - part(at)) * 45 / 100;
        format!("#{:02x}{:02x}{:02x}", lighter(1), lighter(3), lighter(5))
    };
    let rule = |(index, colour): (usize, &&str)| {
        format!("--c{index}:{};", if dark { light(colour) } else { (*colour).to_owned() })
    };
    COLOURS.iter().enumerate().map(rule).collect()
}

/// How many colours there are before they start again.
pub(super) fn colours_count() -> usize {
    COLOURS.len()
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The height and what is drawn, `offset` pixels down.
fn body(figure: &Figure, offset: f64) -> (f64, String) {
    let (top, bottom) = (TOP + offset, TOP + offset + PLOT_HEIGHT);
    let points = || figure.series.iter().flat_map(|series| &series.points);
    let ends = |point: &FigurePoint| {
        point.range.map_or([point.y; 2], |(low, high)| [low.min(point.y), high.max(point.y)])
    };
    let x = AxisScale::new(&figure.x, points().map(|point| point.x), (LEFT, WIDTH - RIGHT));
    let y = AxisScale::new(&figure.y, points().flat_map(ends), (bottom, top));
    let axes = Axes { x, y, top, bottom };
    let mut out = String::new();
    axes.draw(&mut out, figure);
    // Curves end at the frame, but marks on it are whole.
    let (left, top, width, height) =
        (LEFT - MARK, top - MARK, WIDTH - LEFT - RIGHT + 2.0 * MARK, PLOT_HEIGHT + 2.0 * MARK);
    let _ = write!(
        out,
        "<svg x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" viewBox=\"{left} {top} {width} {height}\">"
    );
    let bars = figure.series.iter().filter(|series| series.style == Style::Bars).count();
    let mut bar = 0;
    for (index, series) in figure.series.iter().enumerate() {
        let place = if series.style == Style::Bars { bar as f64 - (bars as f64 - 1.0) / 2.0 } else { 0.0 };
        bar += usize::from(series.style == Style::Bars);
        let width = 0.8 * (axes.x.pixel(1.0) - axes.x.pixel(0.0)) / bars.max(1) as f64;
        DrawnSeries { series, index, shift: place * width, width }.draw(&mut out, &axes);
    }
    out.push_str("</svg>");
    let height = legend(&mut out, figure, bottom + BELOW);
    (height, out)
}

struct Axes {
    x: AxisScale,
    y: AxisScale,
    top: f64,
    bottom: f64,
}

impl Axes {
    /// The frame, its mesh and its labels.
    fn draw(&self, out: &mut String, figure: &Figure) {
        let Axes { x, y, top, bottom } = self;
        let right = WIDTH - RIGHT;
        for tick in &x.ticks {
            let at = x.pixel(tick.value);
            if figure.x.names.is_empty() {
                let _ = write!(out, "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/>");
            }
            let (label, at_y) = (escape(&tick.label), bottom + 18.0);
            let _ = write!(
                out,
                "<text class=\"text\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{at_y}\">{label}</text>"
            );
        }
        for tick in &y.ticks {
            let at = y.pixel(tick.value);
            let (label, at_x, at_y) = (escape(&tick.label), LEFT - 8.0, at + 4.5);
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
             <text class=\"text\" text-anchor=\"end\" x=\"{at_x}\" y=\"{at_y:.1}\">{label}</text>"
            );
        }
        let (middle_x, middle_y) = ((LEFT + right) / 2.0, (top + bottom) / 2.0);
        let _ = write!(
            out,
            "<path class=\"frame\" d=\"M{LEFT} {top}V{bottom}H{right}\"/>\
         <text class=\"text\" text-anchor=\"middle\" x=\"{middle_x}\" y=\"{}\">{}</text>\
         <text class=\"text\" text-anchor=\"middle\" transform=\"translate(16 {middle_y}) rotate(-90)\">{}</text>",
            bottom + 40.0,
            escape(&figure.x.label),
            escape(&figure.y.label)
        );
    }
}

struct DrawnSeries<'a> {
    series: &'a FigureSeries,
    index: usize,
    /// Pixels to the right of where its points are, for bars that stand side by side.
    shift: f64,
    /// Pixels that a bar may take.
    width: f64,
}

impl DrawnSeries<'_> {
    fn draw(&self, out: &mut String, Axes { x, y, .. }: &Axes) {
        let DrawnSeries { series, index, shift, width } = *self;
        let colour = index % COLOURS.len();
        let at = |point: &FigurePoint| (x.pixel(point.x) + shift, y.pixel(point.y));
        if series.style == Style::Bars {
            for point in &series.points {
                let ((middle, height), floor) = (at(point), y.floor());
                let (left, top, tall) = (middle - 0.45 * width, height.min(floor), (floor - height).abs());
                let wide = 0.9 * width;
                let _ = write!(
                    out,
                    "<rect class=\"mark c{colour}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\"/>"
                );
            }
        } else {
            let path: Vec<String> =
                series.points.iter().map(at).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let dash = if series.style == Style::Curve { " stroke-dasharray=\"6 4\"" } else { "" };
            let _ = write!(
                out,
                "<path class=\"line c{colour}\" stroke-width=\"2\"{dash} d=\"M{}\"/>",
                path.join("L")
            );
        }
        for point in &series.points {
            let (middle, height) = at(point);
            if let Some((low, high)) = point.range {
                let (low, high, left, right) = (y.pixel(low), y.pixel(high), middle - 4.0, middle + 4.0);
                let class =
                    if series.style == Style::Bars { "frame".to_owned() } else { format!("line c{colour}") };
                let _ = write!(
                    out,
                    "<path class=\"{class}\" d=\"M{left:.1} {low:.1}H{right:.1}M{middle:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}\"/>"
                );
            }
            if series.style == Style::Line && series.points.len() <= MARKS_MAX {
                out.push_str(&mark(index, middle, height));
            }
        }
    }
}

/// More points than this are a line.
const MARKS_MAX: usize = 40;

fn mark(index: usize, x: f64, y: f64) -> String {
    let colour = index % COLOURS.len();
    let path = match index % 4 {
        0 => return format!("<circle class=\"mark c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.6\"/>"),
        1 => "m-3.4-3.4h6.8v6.8h-6.8z",
        2 => "m0-4.6l4.4 7.8h-8.8z",
        _ => "m0-4.8l4.8 4.8-4.8 4.8-4.8-4.8z",
    };
    format!("<path class=\"mark c{colour}\" d=\"M{x:.1} {y:.1}{path}\"/>")
}

/// Draws the keys from `top` on, in as many rows as they need, and tells where the figure ends.
fn legend(out: &mut String, figure: &Figure, top: f64) -> f64 {
    let (mut x, mut y) = (LEFT, top);
    for (index, series) in figure.series.iter().enumerate() {
        let width = KEY + LETTER * series.name.chars().count() as f64 + 18.0;
        if x > LEFT && x + width > WIDTH {
            (x, y) = (LEFT, y + LEGEND_ROW);
        }
        let colour = index % COLOURS.len();
        let (middle, line) = (x + 12.0, y + 8.0);
        match series.style {
            Style::Bars => {
                let _ = write!(
                    out,
                    "<rect class=\"mark c{colour}\" x=\"{x}\" y=\"{y}\" width=\"24\" height=\"14\"/>"
                );
            }
            style => {
                let dash = if style == Style::Curve { " stroke-dasharray=\"6 4\"" } else { "" };
                let _ = write!(
                    out,
                    "<path class=\"line c{colour}\" stroke-width=\"2\"{dash} d=\"M{x} {line}h24\"/>"
                );
                if style == Style::Line {
                    out.push_str(&mark(index, middle, line));
                }
            }
        }
        let _ = write!(
            out,
            "<text class=\"text\" x=\"{}\" y=\"{}\">{}</text>",
            x + KEY - 4.0,
            y + 12.5,
            escape(&series.name)
        );
        x += width;
    }
    y + LEGEND_ROW + 6.0
}
