//! The demonstration written down frame by frame, as `cargo xtask picture` reads it. Not how that draws it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::widgets::Widget;
use serde::Serialize;

use super::PhaseKind;
use super::picture::{DemoMoment, Picture};

/// The terminal that everybody has.
const SIZE: Rect = Rect { x: 0, y: 0, width: 80, height: 24 };

pub(crate) struct Recorder {
    out: BufWriter<File>,
}

/// One line of the file.
#[derive(Serialize)]
struct RecordFrame<'a> {
    at_us: u64,
    phase: &'a str,
    servers: &'a [f64],
    server_rate_max: f64,
    p99_us: u64,
    late_per_s: u64,
    failed_per_s: u64,
    hit_ratio: f64,
    /// From top to bottom: pieces of one style, from left to right.
    rows: Vec<Vec<(String, String)>>,
}

impl Recorder {
    pub(crate) fn new(path: &Path) -> Result<Recorder> {
        let file =
            File::create(path).with_context(|| format!("--record {}: cannot be written", path.display()))?;
        Ok(Recorder { out: BufWriter::new(file) })
    }

    pub(crate) fn end(mut self, summary: &[String]) -> Result<()> {
        writeln!(self.out, "{}", serde_json::to_string(&RecordEnd { summary })?)?;
        self.out.flush().context("--record: cannot be written")
    }

    pub(crate) fn frame(&mut self, at: Duration, picture: Picture<'_>) -> Result<()> {
        let (cast, moment): (_, &DemoMoment) = (picture.cast, picture.moment);
        let mut buffer = Buffer::empty(SIZE);
        picture.render(SIZE, &mut buffer);
        let frame = RecordFrame {
            at_us: at.as_micros() as u64,
            phase: moment.kind.map_or("loading", PhaseKind::name),
            servers: &moment.rates.servers,
            server_rate_max: cast.server_rate_max,
            p99_us: moment.clients.p99.as_micros() as u64,
            late_per_s: moment.clients.late,
            failed_per_s: moment.clients.errors,
            hit_ratio: moment.rates.hit_ratio,
            rows: (0..SIZE.height).map(|y| row(&buffer, y)).collect(),
        };
        writeln!(self.out, "{}", serde_json::to_string(&frame)?)?;
        self.out.flush().context("--record: cannot be written")
    }
}

/// The last line.
#[derive(Serialize)]
struct RecordEnd<'a> {
    summary: &'a [String],
}

fn row(buffer: &Buffer, y: u16) -> Vec<(String, String)> {
    let mut pieces: Vec<(String, String)> = Vec::new();
    for x in 0..SIZE.width {
        let cell = &buffer[(x, y)];
        let style = style(cell.fg, cell.modifier);
        match pieces.last_mut() {
            Some((last, text)) if *last == style => text.push_str(cell.symbol()),
            _ => pieces.push((style, cell.symbol().to_owned())),
        }
    }
    pieces
}

/// Such as `red bold`; green is `easy`, because `g` is grey in the picture.
fn style(colour: Color, modifier: Modifier) -> String {
    let colour = match colour {
        Color::Red => "red",
        Color::Yellow => "yellow",
        Color::Green => "easy",
        Color::DarkGray => "grey",
        _ => "plain",
    };
    let bold = if modifier.contains(Modifier::BOLD) { " bold" } else { "" };
    format!("{colour}{bold}")
}
