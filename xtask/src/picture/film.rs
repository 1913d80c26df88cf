//! A recording as one SVG that moves by itself: a strip of pictures behind a window. Not one picture's cells.

use std::collections::HashMap;
use std::fmt::Write;

use super::recording::{Recording, Rows};
use super::row::{self, BASELINE, CELL_HEIGHT, CELL_WIDTH};

const COLUMNS: usize = 80;
const ROWS: usize = 24;
const MARGIN: usize = 14;
/// So many are enough to see it burn; each costs some four kilobytes.
const FRAME_US: u64 = 750_000;
/// Who sees only the first picture, as some readers do, shall see a server burn.
const START_US: u64 = 2_000_000;
/// The table stays for as long as it takes to read it.
const TABLE_S: f64 = 8.0;
/// As terminals have them, on their dark ground.
const STYLE: &str = "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\
                     .p{fill:#c9d1d9}.g{fill:#7d8590}.r{fill:#ff6b60}.y{fill:#e3b341}.e{fill:#3fb950}.b{font-weight:700}\
                     .q{fill:#2d333b}";

pub(super) fn svg(recording: &Recording) -> String {
    let (width, height) = (COLUMNS * CELL_WIDTH, ROWS * CELL_HEIGHT);
    let mut film = Film::default();
    // A short recording is better than none.
    let end_us = recording.frames.last().map_or(0, |frame| frame.at_us);
    let start_us = START_US.min(end_us / 2);
    let mut next_us = start_us;
    for frame in &recording.frames {
        if frame.at_us >= next_us {
            film.add((frame.at_us - start_us) as f64 / 1e6, &frame.rows);
            next_us = frame.at_us + FRAME_US * 9 / 10;
        }
    }
    let end_s = (end_us - start_us) as f64 / 1e6;
    film.add(end_s, &table(recording));
    let total_s = end_s + TABLE_S;
    let mut steps = String::new();
    for (index, (at_s, _)) in film.pictures.iter().enumerate() {
        let percent = if index == 0 { 0.0 } else { 100.0 * at_s / total_s };
        let up = index * height;
        let _ = write!(steps, "{percent:.2}%{{transform:translateY(-{up}px)}}");
    }
    let last = (film.pictures.len() - 1) * height;
    let mut strip = String::new();
    for (index, (_, rows)) in film.pictures.iter().enumerate() {
        for (row, id) in rows {
            let y = index * height + row * CELL_HEIGHT + BASELINE;
            let _ = write!(strip, "<use href=\"#{id}\" y=\"{y}\"/>");
        }
    }
    let (outer_width, outer_height) = (width + 2 * MARGIN, height + 2 * MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {outer_width} {outer_height}\" width=\"{outer_width}\" \
         height=\"{outer_height}\" role=\"img\"><title>distcache demo: one of eight storage servers burns, then the cache \
         takes over</title><style>{STYLE}.s{{animation:s {total_s:.1}s step-end infinite}}@keyframes s{{{steps}}}\
         @media(prefers-reduced-motion:reduce){{.s{{animation:none;transform:translateY(-{last}px)}}}}</style>\
         <defs>{}</defs><rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\
         <svg x=\"{MARGIN}\" y=\"{MARGIN}\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\
         <g class=\"s\">{strip}</g></svg></svg>\n",
        film.shapes
    )
}

/// Each row is drawn once, however many pictures have it.
#[derive(Default)]
struct Film {
    ids: HashMap<String, String>,
    shapes: String,
    /// From when on each is to be seen; its rows that are not empty.
    pictures: Vec<(f64, Vec<(usize, String)>)>,
}

impl Film {
    fn add(&mut self, at_s: f64, rows: &Rows) {
        let mut picture = Vec::new();
        for (number, pieces) in rows.iter().enumerate() {
            let shape = row::svg(pieces);
            if shape.is_empty() {
                continue;
            }
            let next = format!("l{}", self.ids.len());
            let id = self.ids.entry(shape.clone()).or_insert_with(|| {
                let _ = write!(self.shapes, "<g id=\"{next}\">{shape}</g>");
                next
            });
            picture.push((number, id.clone()));
        }
        self.pictures.push((at_s, picture));
    }
}

/// The table and the sentences below it, the first line like a prompt's.
fn table(recording: &Recording) -> Rows {
    let line = |style: &str, text: &str| vec![(style.to_owned(), text.to_owned())];
    let head = [line("easy bold", "$ distcache demo"), line("plain", "")];
    let body = recording.summary.iter().enumerate();
    head.into_iter()
        .chain(body.map(|(number, text)| line(if number == 0 { "plain bold" } else { "plain" }, text)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::recording::RecordedFrame;

    #[test]
    fn like_rows_are_drawn_once_and_the_table_comes_last() {
        let frame = |at_us| RecordedFrame {
            at_us,
            phase: "with cache".to_owned(),
            servers: vec![1.0],
            server_rate_max: 2.0,
            p99_us: 1,
            late_per_s: 0,
            failed_per_s: 0,
            rows: vec![vec![("plain".to_owned(), "same".to_owned())]],
        };
        let frames = (0..8).map(|quarter| frame(quarter * 250_000)).collect();
        let svg = svg(&Recording { frames, summary: vec!["the table".to_owned()] });
        assert_eq!((svg.matches(">same<").count(), svg.matches(">the table<").count()), (1, 1));
        assert_eq!(svg.matches("<use href=\"#l0\"").count(), 2);
        assert!(svg.contains("step-end") && svg.contains("prefers-reduced-motion"));
    }
}
