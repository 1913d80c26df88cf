//! Charts of the whole demonstration so far: latency, and the busiest server. Not the present moment.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Sparkline, SparklineBar, Widget};

use super::words::{ms, thousands};
use super::{Palette, Tone};
use crate::demo::figures::LATE_US;

/// One frame.
#[derive(Clone, Copy, Debug)]
struct Point {
    at_us: u64,
    p99_us: u64,
    busiest: u64,
    /// Requests were late or failed.
    is_bad: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PictureHistory(Vec<Point>);

/// Who plays for so long sees only the last of it.
const POINTS_MAX: usize = 100_000;

impl PictureHistory {
    /// `at_us` counts from the start of the load.
    pub(crate) fn add(&mut self, at_us: u64, p99_us: u64, busiest: f64, is_bad: bool) {
        if self.0.len() == POINTS_MAX {
            self.0.drain(..POINTS_MAX / 2);
        }
        self.0.push(Point { at_us, p99_us, busiest: busiest as u64, is_bad });
    }

    pub(super) fn draw_latency(&self, area: Rect, seconds: u64, palette: Palette, buffer: &mut Buffer) {
        let peak = self.0.iter().map(|point| point.p99_us).max().unwrap_or(0);
        let title = format!("p99 latency over time (peak {})", ms(peak));
        let bad = self.columns(area.width, seconds, |point| point.is_bad.into());
        let columns = self.columns(area.width, seconds, |point| point.p99_us);
        let tone = |bad| if bad > 0 { Tone::Full } else { Tone::Easy };
        let bars: Vec<_> = columns.into_iter().zip(bad.into_iter().map(tone)).collect();
        draw(area, (title, peak.max(LATE_US)), &bars, palette, buffer);
    }

    pub(super) fn draw_busiest(
        &self,
        area: Rect,
        seconds: u64,
        rate_max: f64,
        palette: Palette,
        buffer: &mut Buffer,
    ) {
        let title = format!("busiest server over time (limit {}/s)", thousands(rate_max));
        let tone = |busiest| Palette::of_share(busiest as f64 / rate_max);
        let columns = self.columns(area.width, seconds, |point| point.busiest);
        let bars: Vec<_> = columns.into_iter().map(|busiest| (busiest, tone(busiest))).collect();
        draw(area, (title, rate_max as u64), &bars, palette, buffer);
    }

    /// The largest figure in each column's time, up to now; the columns are so many seconds, or all that there have been.
    fn columns(&self, width: u16, seconds: u64, figure: impl Fn(&Point) -> u64) -> Vec<u64> {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return Vec::new() };
        let start_us = if seconds > 0 { 0 } else { first.at_us };
        let span_us = (seconds * 1_000_000).max(last.at_us - start_us + 1);
        let column = |at_us: u64| ((at_us - start_us) * u64::from(width) / span_us) as usize;
        let mut columns = vec![0; (column(last.at_us) + 1).min(usize::from(width))];
        for (place, point) in self.0.iter().enumerate() {
            // A point lasts until the next, so that there are no gaps where columns are shorter than frames.
            let from = column(point.at_us).min(columns.len() - 1);
            let until = self.0.get(place + 1).map_or(columns.len(), |later| column(later.at_us));
            for value in &mut columns[from..until.clamp(from + 1, usize::from(width).max(from + 1))] {
                *value = figure(point).max(*value);
            }
        }
        columns
    }
}

fn draw(
    area: Rect,
    (title, most): (String, u64),
    bars: &[(u64, Tone)],
    palette: Palette,
    buffer: &mut Buffer,
) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    palette.line(Tone::Plain, title).render(head, buffer);
    let bars = bars.iter().map(|(value, tone)| SparklineBar::from(*value).style(palette.style(*tone)));
    Sparkline::default().data(bars.collect::<Vec<_>>()).max(most).render(body, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_no_gaps_and_keep_the_peaks() {
        let mut history = PictureHistory::default();
        for (second, p99_us) in [(0, 5), (1, 50), (2, 7), (4, 8)] {
            history.add(second * 1_000_000, p99_us, 0.0, false);
        }
        let latency = |point: &Point| point.p99_us;
        assert_eq!(history.columns(10, 10, latency), [5, 50, 7, 7, 8]);
        assert_eq!(history.columns(20, 10, latency), [5, 5, 50, 50, 7, 7, 7, 7, 8]);
        assert_eq!(history.columns(2, 10, latency), [50]);
        assert_eq!(history.columns(4, 0, latency).len(), 4);
        assert!(PictureHistory::default().columns(4, 0, latency).is_empty());
    }
}
