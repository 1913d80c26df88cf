//! A group of members with their loads: bars where there is room, else one small block for each. Not what they are.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::words::{cut, factor, thousands};
use super::{Palette, Tone};
use crate::demo::sample::max_over_avg;

pub(super) struct MembersPanel<'a> {
    pub(super) title: &'a str,
    pub(super) names: &'a [String],
    pub(super) rates: &'a [f64],
    pub(super) rate_max: f64,
    /// Requests that wait for each; empty where none can.
    pub(super) queues: &'a [u64],
    /// Whether each serves; empty where all do.
    pub(super) up: &'a [bool],
    /// Said instead of loads where there are none.
    pub(super) idle: Option<&'a str>,
}

/// Columns of a bar with its name and numbers.
const BAR_COLUMNS: u16 = 39;
const NAME_CHARS: usize = 12;
const RATE_CHARS: usize = 7;
const QUEUE_CHARS: usize = 7;
/// And of a block with the gap after it.
const BLOCK_COLUMNS: u16 = 3;
/// So many requests in flight to a server that keeps up are no queue.
const QUEUE_MIN: u64 = 10;
const BLOCKS: [&str; 8] = ["▁▁", "▂▂", "▃▃", "▄▄", "▅▅", "▆▆", "▇▇", "██"];

impl MembersPanel<'_> {
    /// Rows that the members need below the title.
    pub(super) fn rows(&self, width: u16, is_strip: bool) -> u16 {
        (self.names.len() as u16).div_ceil(columns(width, is_strip))
    }

    pub(super) fn render(&self, area: Rect, is_strip: bool, palette: Palette, buffer: &mut Buffer) {
        let rows = usize::from(self.rows(area.width, is_strip));
        let body = (0..rows).map(|row| {
            let members = (row..self.names.len()).step_by(rows);
            Line::from_iter(members.flat_map(|member| {
                if is_strip { self.block(member, palette) } else { self.bar(member, palette) }
            }))
        });
        for (line, row) in std::iter::once(self.head(palette)).chain(body).zip(area.rows()) {
            line.render(row, buffer);
        }
    }

    fn head(&self, palette: Palette) -> Line<'static> {
        let rate_max = thousands(self.rate_max);
        let mut spans = vec![
            palette.span(Tone::Strong, self.title),
            palette.span(Tone::Faint, format!("   limit {rate_max} requests/s each (emulated)")),
        ];
        match (self.idle, max_over_avg(self.rates)) {
            (Some(idle), _) => spans.push(palette.span(Tone::Plain, format!("   {idle}"))),
            (None, Some(ratio)) if self.queues.is_empty() => {
                spans.push(palette.span(Tone::Plain, format!("   busiest/average {}", factor(ratio))));
            }
            _ if self.queues.iter().any(|queue| *queue >= QUEUE_MIN) => {
                spans.push(palette.span(Tone::Faint, "   +n wait for it"));
            }
            _ => {}
        }
        Line::from(spans)
    }

    fn share(&self, member: usize) -> (f64, f64) {
        let rate = self.rates.get(member).copied().unwrap_or(0.0);
        (rate, rate / self.rate_max.max(1.0))
    }

    /// A member for which requests wait is at its limit, whatever the last second's count says.
    fn tone(&self, member: usize) -> Tone {
        let (_, share) = self.share(member);
        let waits = self.queues.get(member).is_some_and(|queue| *queue >= QUEUE_MIN);
        Palette::of_share(if waits { share.max(1.0) } else { share })
    }

    fn is_down(&self, member: usize) -> bool {
        self.up.get(member) == Some(&false)
    }

    fn bar(&self, member: usize, palette: Palette) -> Vec<Span<'static>> {
        let bar_chars = usize::from(BAR_COLUMNS) - NAME_CHARS - RATE_CHARS - QUEUE_CHARS - 2;
        let name =
            palette.span(Tone::Plain, format!("{:<NAME_CHARS$} ", cut(&self.names[member], NAME_CHARS)));
        let width = bar_chars + RATE_CHARS + QUEUE_CHARS + 1;
        if self.is_down(member) {
            return vec![name, palette.span(Tone::Full, format!("{:<width$}", "killed"))];
        }
        if self.idle.is_some() {
            return vec![name, palette.span(Tone::Faint, format!("{:<width$}", "░".repeat(bar_chars)))];
        }
        let (rate, share) = self.share(member);
        let filled = ((share * bar_chars as f64).round() as usize).min(bar_chars);
        let queue = self.queues.get(member).copied().filter(|queue| *queue >= QUEUE_MIN);
        let queue = queue.map_or(String::new(), |queue| format!("+{}", thousands(queue as f64)));
        vec![
            name,
            palette.span(self.tone(member), "█".repeat(filled)),
            palette.span(Tone::Faint, "░".repeat(bar_chars - filled)),
            palette.span(Tone::Plain, format!("{:>RATE_CHARS$}", format!("{}/s", thousands(rate)))),
            palette.span(Tone::Full, format!(" {queue:<QUEUE_CHARS$}")),
        ]
    }

    fn block(&self, member: usize, palette: Palette) -> Vec<Span<'static>> {
        let (_, share) = self.share(member);
        let block = if self.is_down(member) {
            palette.span(Tone::Full, "xx")
        } else if self.idle.is_some() || share <= 0.0 {
            palette.span(Tone::Faint, "__")
        } else {
            let index = ((share * 8.0).ceil() as usize).clamp(1, BLOCKS.len()) - 1;
            palette.span(self.tone(member), BLOCKS[index])
        };
        vec![block, Span::raw(" ")]
    }
}

fn columns(width: u16, is_strip: bool) -> u16 {
    (width / if is_strip { BLOCK_COLUMNS } else { BAR_COLUMNS }).max(1)
}
