//! What the demonstration shows at one moment, drawn into a buffer of cells. Not the terminal that shows it.

mod history;
mod members;
mod palette;
mod words;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::PhaseKind;
use super::recent::RecentClients;
use super::sample::{Rates, max_over_avg};

pub(crate) use history::PictureHistory;
use members::MembersPanel;
pub(crate) use palette::{Palette, Tone};
use words::{factor, ms, percent, thousands};
pub(crate) use words::{plain, summary};

/// Names and limits that stay the same.
#[derive(Clone, Debug)]
pub(crate) struct DemoCast {
    pub(crate) servers: Vec<String>,
    pub(crate) nodes: Vec<String>,
    /// Requests per second that each may do (emulated).
    pub(crate) server_rate_max: f64,
    pub(crate) node_rate_max: f64,
    /// How clients may connect meanwhile.
    pub(crate) hint: String,
}

/// One moment.
#[derive(Clone, Debug)]
pub(crate) struct DemoMoment {
    /// Nothing while the keys are written.
    pub(crate) kind: Option<PhaseKind>,
    pub(crate) elapsed_s: u64,
    /// Nothing once somebody has taken over.
    pub(crate) seconds: Option<u64>,
    pub(crate) rates: Rates,
    pub(crate) clients: RecentClients,
    /// Whether each node serves.
    pub(crate) nodes_up: Vec<bool>,
    /// Share of the key that is asked for most, 0 to 1.
    pub(crate) hottest: Option<f64>,
}

/// One moment and the way to it, as a widget.
pub(crate) struct Picture<'a> {
    pub(crate) cast: &'a DemoCast,
    pub(crate) moment: &'a DemoMoment,
    pub(crate) history: &'a PictureHistory,
    pub(crate) palette: Palette,
}

/// Rows of the two charts with their titles: fewer show nothing, more say no more.
const CHART_ROWS_MIN: u16 = 3;
const CHART_ROWS_MAX: u16 = 16;
/// Every row that is neither a member's nor a chart's: title, story, two group titles, two lines on clients, keys.
const OTHER_ROWS: u16 = 7;
const GAPS: u16 = 4;

impl Widget for Picture<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (servers, nodes) = (self.servers(), self.nodes());
        let roomy = OTHER_ROWS + GAPS + CHART_ROWS_MIN;
        let is_strip = servers.rows(area.width, false) + nodes.rows(area.width, false) + roomy > area.height;
        let (server_rows, node_rows) = (servers.rows(area.width, is_strip), nodes.rows(area.width, is_strip));
        let left = area.height.saturating_sub(OTHER_ROWS + server_rows + node_rows);
        // Gaps make way before charts do, and charts before members.
        let gap = if left >= GAPS + CHART_ROWS_MIN { 1 } else { 0 };
        let chart = left.saturating_sub(gap * GAPS).min(CHART_ROWS_MAX);
        let chart = if chart < CHART_ROWS_MIN { 0 } else { chart };
        let rows = [1, 1, gap, 1 + server_rows, gap, 1 + node_rows, gap, 2, gap, chart, 1];
        let [title, story, _, server_area, _, node_area, _, client_area, _, chart_area, keys] =
            Layout::vertical(rows.map(Constraint::Length)).areas(area);
        self.title().render(title, buffer);
        self.palette.line(Tone::Plain, words::story(self.cast, self.moment)).render(story, buffer);
        servers.render(server_area, is_strip, self.palette, buffer);
        nodes.render(node_area, is_strip, self.palette, buffer);
        let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(client_area);
        self.answers().render(first, buffer);
        self.latencies().render(second, buffer);
        if chart > 0 {
            let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(chart_area);
            let seconds = self.moment.seconds.unwrap_or(0);
            self.history.draw_latency(left, seconds, self.palette, buffer);
            self.history.draw_busiest(right, seconds, self.cast.server_rate_max, self.palette, buffer);
        }
        self.keys().render(keys, buffer);
    }
}

impl Picture<'_> {
    fn title(&self) -> Line<'static> {
        let DemoMoment { kind, elapsed_s, seconds, .. } = self.moment;
        let (tone, phase) = match kind {
            None => (Tone::Plain, "writing the keys"),
            Some(PhaseKind::WithoutCache) => (Tone::Busy, "cache OFF"),
            Some(PhaseKind::WithCache) => (Tone::Easy, "cache ON"),
        };
        let number = match (kind, seconds) {
            (Some(PhaseKind::WithoutCache), Some(_)) => "   phase 1 of 2",
            (Some(PhaseKind::WithCache), Some(_)) => "   phase 2 of 2",
            _ => "",
        };
        let time = match seconds {
            Some(seconds) => format!("   {elapsed_s} s of {seconds} s"),
            None => format!("   {elapsed_s} s"),
        };
        let palette = self.palette;
        Line::from(vec![
            palette.span(Tone::Strong, "DistCache   "),
            palette.span(tone, phase),
            palette.span(Tone::Faint, number),
            palette.span(Tone::Faint, time),
        ])
    }

    fn servers(&self) -> MembersPanel<'_> {
        MembersPanel {
            title: "storage servers",
            names: &self.cast.servers,
            rates: &self.moment.rates.servers,
            rate_max: self.cast.server_rate_max,
            queues: &self.moment.clients.queues,
            up: &[],
            idle: None,
        }
    }

    fn nodes(&self) -> MembersPanel<'_> {
        let is_on = self.moment.kind == Some(PhaseKind::WithCache);
        MembersPanel {
            title: "cache nodes",
            names: &self.cast.nodes,
            rates: &self.moment.rates.nodes,
            rate_max: self.cast.node_rate_max,
            queues: &[],
            up: &self.moment.nodes_up,
            idle: (!is_on).then_some("off: nothing is cached"),
        }
    }

    fn answers(&self) -> Line<'static> {
        let (palette, rates) = (self.palette, &self.moment.rates);
        let mut spans = vec![
            palette.span(Tone::Plain, "clients   answered "),
            palette.span(Tone::Strong, format!("{:>6}/s", thousands(rates.throughput))),
            palette.span(Tone::Plain, "   hit ratio "),
            palette.span(Tone::Strong, format!("{:>6}", percent(rates.hit_ratio))),
            palette.span(Tone::Plain, "   busiest server/average "),
        ];
        let ratio = max_over_avg(&rates.servers);
        spans.push(palette.span(Tone::Strong, ratio.map_or("-".to_owned(), factor)));
        Line::from(spans)
    }

    fn latencies(&self) -> Line<'static> {
        let (palette, clients) = (self.palette, &self.moment.clients);
        let bad = |count: u64| if count > 0 { Tone::Full } else { Tone::Easy };
        let late = clients.p99 > super::figures::LATE;
        let item = |name: &'static str, tone, value: String| -> [Span<'static>; 2] {
            [palette.span(Tone::Plain, name), palette.span(tone, value)]
        };
        Line::from_iter(
            [
                item("          p50 ", Tone::Strong, ms(clients.p50)),
                item("   p99 ", if late { Tone::Full } else { Tone::Easy }, ms(clients.p99)),
                item("   late ", bad(clients.late), format!("{}/s", thousands(clients.late as f64))),
                item("   failed ", bad(clients.errors), format!("{}/s", thousands(clients.errors as f64))),
                item("   waiting ", Tone::Strong, thousands(clients.waiting as f64)),
            ]
            .into_iter()
            .flatten(),
        )
    }

    fn keys(&self) -> Line<'static> {
        let down = self.moment.nodes_up.iter().any(|up| !up);
        let kill = if down { "bring the node back" } else { "kill a node" };
        let hint = &self.cast.hint;
        let text = format!("space cache on/off   k {kill}   q end      {hint}");
        self.palette.line(Tone::Faint, text)
    }
}

#[cfg(test)]
mod tests;
