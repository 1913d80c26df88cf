//! Charts of the whole demonstration so far: latency, and the busiest server. Not the present moment.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Sparkline, SparklineBar, Widget};

use super::words::{ms, thousands};
use super::{Palette, Tone};
use crate::demo::figures::LATE;

/// One frame.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Duration,
    p99: Duration,
    busiest: u64,
    /// Requests were late or failed.
    is_bad: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PictureHistory(Vec<Point>);

/// Who plays for so long sees only the last of it.
const POINTS_MAX: usize = 100_000;

impl PictureHistory {
    /// `at` counts from the start of the load.
    pub(crate) fn add(&mut self, at: Duration, p99: Duration, busiest: f64, is_bad: bool) {
        if self.0.len() == POINTS_MAX {
            self.0.drain(..POINTS_MAX / 2);
        }
        self.0.push(Point { at, p99, busiest: busiest as u64, is_bad });
    }

    pub(super) fn draw_latency(&self, area: Rect, seconds: u64, palette: Palette, buffer: &mut Buffer) {
        let peak = self.0.iter().map(|point| point.p99).max().unwrap_or_default();
        let title = format!("p99 latency over time (peak {})", ms(peak));
        let bad = self.columns(area.width, seconds, |point| point.is_bad.into());
        let columns = self.columns(area.width, seconds, |point| point.p99.as_micros() as u64);
        let tone = |bad| if bad > 0 { Tone::Full } else { Tone::Easy };
        let bars: Vec<_> = columns.into_iter().zip(bad.into_iter().map(tone)).collect();
        draw(area, (title, peak.max(LATE).as_micros() as u64), &bars, palette, buffer);
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
        let start = if seconds > 0 { Duration::ZERO } else { first.at };
        let span = Duration::from_secs(seconds).max(last.at - start + Duration::from_micros(1));
        let column =
            |at: Duration| ((at - start).as_micros() * u128::from(width) / span.as_micros()) as usize;
        let mut columns = vec![0; (column(last.at) + 1).min(usize::from(width))];
        for (place, point) in self.0.iter().enumerate() {
            // A point lasts until the next, so that there are no gaps where columns are shorter than frames.
            let from = column(point.at).min(columns.len() - 1);
            let until = self.0.get(place + 1).map_or(columns.len(), |later| column(later.at));
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
            history.add(Duration::from_secs(second), Duration::from_micros(p99_us), 0.0, false);
        }
        let latency = |point: &Point| point.p99.as_micros() as u64;
        assert_eq!(history.columns(10, 10, latency), [5, 50, 7, 7, 8]);
        assert_eq!(history.columns(20, 10, latency), [5, 5, 50, 50, 7, 7, 7, 7, 8]);
        assert_eq!(history.columns(2, 10, latency), [50]);
        assert_eq!(history.columns(4, 0, latency).len(), 4);
        assert!(PictureHistory::default().columns(4, 0, latency).is_empty());
    }
}
