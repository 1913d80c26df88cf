//! What the demonstration shows: numbers in, lines out. Not the terminal that shows them.

use super::sample::{Rates, Summary, max_over_avg};

/// A piece of a line in one tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// What a piece of text means; the terminal chooses colours for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    /// Bars: well below the limit, near it, at it.
    Easy,
    Busy,
    Full,
}

pub(crate) type Line = Vec<Span>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Loading,
    WithoutCache,
    WithCache,
}

/// Names and limits that stay the same.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) servers: Vec<String>,
    pub(crate) nodes: Vec<String>,
    /// Requests per second that each may do (emulated).
    pub(crate) server_rate_max: f64,
    pub(crate) node_rate_max: f64,
    /// Where clients may connect meanwhile.
    pub(crate) listen: String,
}

/// One moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) phase: Phase,
    pub(crate) elapsed_s: u64,
    pub(crate) seconds: u64,
    pub(crate) rates: Rates,
    /// Hottest keys and their requests per second, hottest first.
    pub(crate) hottest: Vec<(String, u64)>,
}

/// A bar with its name and number needs about this many columns.
const COLUMN_CHARS: usize = 39;
const NAME_CHARS: usize = 10;
const RATE_CHARS: usize = 8;
pub(crate) const HOTTEST_MAX: usize = 5;

/// Draws one moment for a terminal of `width` columns; no line is longer.
pub(crate) fn draw(cast: &Cast, moment: &Moment, width: usize) -> Vec<Line> {
    let mut lines = vec![
        vec![
            span(Tone::Strong, "DistCache"),
            span(Tone::Plain, format!("   {}", phase_title(moment.phase))),
            span(Tone::Faint, format!("   {} s of {} s", moment.elapsed_s, moment.seconds)),
        ],
        Line::new(),
        vec![
            span(Tone::Plain, "throughput "),
            span(Tone::Strong, format!("{:>8}", thousands(moment.rates.throughput))),
            span(Tone::Plain, " requests/s      hit ratio "),
            span(Tone::Strong, format!("{:>5.1} %", moment.rates.hit_ratio * 100.0)),
        ],
        Line::new(),
        group_title("storage servers", cast.server_rate_max, &moment.rates.servers),
    ];
    bars(&cast.servers, &moment.rates.servers, cast.server_rate_max, width, &mut lines);
    lines.push(Line::new());
    if moment.phase == Phase::WithCache {
        lines.push(group_title("cache nodes", cast.node_rate_max, &moment.rates.nodes));
        bars(&cast.nodes, &moment.rates.nodes, cast.node_rate_max, width, &mut lines);
    } else {
        lines.push(vec![span(Tone::Plain, "cache nodes"), span(Tone::Faint, "   not started yet")]);
        // The same height as with the cache, so that nothing jumps when it starts.
        lines.resize(lines.len() + rows(cast.nodes.len(), width), Line::new());
    }
    lines.push(Line::new());
    lines.push(vec![span(Tone::Plain, "hottest keys")]);
    for index in 0..HOTTEST_MAX {
        let text = moment.hottest.get(index).map_or(String::new(), |(key, heat)| {
            format!("  {:<24} {:>RATE_CHARS$}/s", cut(key, 24), thousands(*heat as f64))
        });
        lines.push(vec![span(Tone::Faint, text)]);
    }
    lines.push(Line::new());
    lines.push(vec![span(
        Tone::Faint,
        format!("Redis clients may connect to {} meanwhile; Ctrl-C ends.", cast.listen),
    )]);
    lines.iter_mut().for_each(|line| clip(line, width));
    lines
}

/// One moment as one line, for logs and pipes.
pub(crate) fn plain(moment: &Moment) -> String {
    let ratio = |loads: &[f64]| max_over_avg(loads).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    format!(
        "{:>3} s of {} s  {:<13}  {:>8} requests/s  hit ratio {:>5.1} %  max/avg: storage {}, nodes {}",
        moment.elapsed_s,
        moment.seconds,
        match moment.phase {
            Phase::Loading => "loading",
            Phase::WithoutCache => "without cache",
            Phase::WithCache => "with cache",
        },
        thousands(moment.rates.throughput),
        moment.rates.hit_ratio * 100.0,
        ratio(&moment.rates.servers),
        ratio(&moment.rates.nodes),
    )
}

/// Both phases side by side and a sentence on what happened.
pub(crate) fn summary(cast: &Cast, summary: &Summary) -> Vec<String> {
    let (without, with) = (&summary.without_cache, &summary.with_cache);
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let row = |name: &str, left: String, right: String| format!("  {name:<34}{left:>16}{right:>16}");
    vec![
        row("", "without cache".to_owned(), "with cache".to_owned()),
        row("throughput (requests/s)", thousands(without.throughput), thousands(with.throughput)),
        row(
            "storage: busiest over average",
            ratio(without.storage_max_over_avg),
            ratio(with.storage_max_over_avg),
        ),
        row("cache nodes: busiest over average", "-".to_owned(), ratio(with.node_max_over_avg)),
        row("answered without storage", percent(without.hit_ratio), percent(with.hit_ratio)),
        String::new(),
        sentence(cast, summary),
        format!(
            "Capacities are emulated so that this machine is not the limit: {} requests/s for each of {} storage \
             servers, {} for each of {} cache nodes.",
            thousands(cast.server_rate_max),
            cast.servers.len(),
            thousands(cast.node_rate_max),
            cast.nodes.len(),
        ),
    ]
}

fn sentence(cast: &Cast, summary: &Summary) -> String {
    let (without, with) = (&summary.without_cache, &summary.with_cache);
    let Some(imbalance) = without.storage_max_over_avg else {
        return "Nothing was answered, so there is nothing to compare.".to_owned();
    };
    let factor = with.throughput / without.throughput.max(1.0);
    if factor < 1.1 {
        return format!(
            "The cache made no difference here ({factor:.2} times the throughput); this machine may be too busy, or \
             the run too short for the caches to fill."
        );
    }
    format!(
        "A few hot keys kept one storage server {imbalance:.1} times as busy as the average, and sooner or later every \
         client waited for that one; with {} cache nodes in front, {:.0} % of the requests never reached storage, and \
         clients got {factor:.1} times the throughput from the same servers.",
        cast.nodes.len(),
        with.hit_ratio * 100.0,
    )
}

fn phase_title(phase: Phase) -> &'static str {
    match phase {
        Phase::Loading => "writing the keys",
        Phase::WithoutCache => "phase 1 of 2: no cache, every request goes to storage",
        Phase::WithCache => "phase 2 of 2: with the cache",
    }
}

fn group_title(name: &str, rate_max: f64, loads: &[f64]) -> Line {
    let mut line = vec![
        span(Tone::Plain, name),
        span(Tone::Faint, format!("   at most {} requests/s each (emulated)", thousands(rate_max))),
    ];
    if let Some(ratio) = max_over_avg(loads) {
        line.push(span(Tone::Plain, "   max/avg "));
        line.push(span(Tone::Strong, format!("{ratio:.2}")));
    }
    line
}

fn columns(width: usize) -> usize {
    (width / COLUMN_CHARS).max(1)
}

fn rows(members: usize, width: usize) -> usize {
    members.div_ceil(columns(width))
}

fn bars(names: &[String], loads: &[f64], rate_max: f64, width: usize, lines: &mut Vec<Line>) {
    let rows = rows(names.len(), width);
    let bar_chars = COLUMN_CHARS - NAME_CHARS - RATE_CHARS - 4;
    for row in 0..rows {
        let mut line = Line::new();
        for index in (row..names.len()).step_by(rows) {
            let load = loads.get(index).copied().unwrap_or(0.0);
            let share = load / rate_max;
            let filled = ((share * bar_chars as f64).round() as usize).min(bar_chars);
            line.push(span(Tone::Plain, format!(" {:<NAME_CHARS$} ", cut(&names[index], NAME_CHARS))));
            line.push(span(tone(share), "█".repeat(filled)));
            line.push(span(Tone::Faint, "░".repeat(bar_chars - filled)));
            line.push(span(Tone::Plain, format!("{:>RATE_CHARS$}  ", thousands(load))));
        }
        lines.push(line);
    }
}

fn tone(share: f64) -> Tone {
    match share {
        share if share >= 0.95 => Tone::Full,
        share if share >= 0.75 => Tone::Busy,
        _ => Tone::Easy,
    }
}

fn span(tone: Tone, text: impl Into<String>) -> Span {
    Span { tone, text: text.into() }
}

fn clip(line: &mut Line, width: usize) {
    let mut left = width;
    for span in line {
        span.text = cut(&span.text, left);
        left -= span.text.chars().count();
    }
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// A number as people read it: 12,345.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::sample::PhaseSummary;
    use super::*;

    fn cast() -> Cast {
        Cast {
            servers: (0..4).map(|index| format!("shim-{index}")).collect(),
            nodes: ["leaf-0", "leaf-1", "spine-0"].map(str::to_owned).to_vec(),
            server_rate_max: 1_000.0,
            node_rate_max: 4_000.0,
            listen: "127.0.0.1:6380".to_owned(),
        }
    }

    fn moment(phase: Phase) -> Moment {
        Moment {
            phase,
            elapsed_s: 7,
            seconds: 20,
            rates: Rates {
                throughput: 12_345.6,
                hit_ratio: 0.678,
                servers: vec![1_000.0, 500.0, 250.0, 250.0],
                nodes: vec![2_000.0, 1_000.0, 3_000.0],
            },
            hottest: vec![("key:000000000042".to_owned(), 1_234)],
        }
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.iter().map(|span| span.text.as_str()).collect()).collect()
    }

    #[test]
    fn a_moment_with_cache_shows_every_member_and_number() {
        let lines = text(&draw(&cast(), &moment(Phase::WithCache), 80));
        let all = lines.join("\n");
        for piece in [
            "phase 2 of 2",
            "7 s of 20 s",
            "12,346 requests/s",
            "67.8 %",
            "max/avg 2.00",
            "max/avg 1.50",
            "shim-3",
            "spine-0",
            "key:000000000042",
            "1,234/s",
            "127.0.0.1:6380",
        ] {
            assert!(all.contains(piece), "{piece} is missing in\n{all}");
        }
        let bar = |name: &str| {
            let line = lines.iter().find(|line| line.contains(name)).expect(name);
            let from = line.find(name).expect(name);
            line[from..].chars().skip(NAME_CHARS).take(20).filter(|char| *char == '█').count()
        };
        assert_eq!(bar("shim-0"), 17);
        assert_eq!(bar("shim-1"), 9);
        assert_eq!(bar("spine-0"), 13);
    }

    #[test]
    fn the_picture_does_not_jump_and_keeps_within_the_terminal() {
        for width in [20, 60, 80, 200] {
            let without = draw(&cast(), &moment(Phase::WithoutCache), width);
            let with = draw(&cast(), &moment(Phase::WithCache), width);
            assert_eq!(without.len(), with.len(), "{width}");
            for line in text(&without).iter().chain(&text(&with)) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_server_at_its_limit_stands_out() {
        let lines = draw(&cast(), &moment(Phase::WithoutCache), 80);
        let tones: Vec<Tone> = lines.iter().flatten().map(|span| span.tone).collect();
        assert!(tones.contains(&Tone::Full) && tones.contains(&Tone::Easy));
    }

    #[test]
    fn plain_lines_hold_the_same_numbers() {
        let line = plain(&moment(Phase::WithCache));
        assert_eq!(
            line,
            "  7 s of 20 s  with cache       12,346 requests/s  hit ratio  67.8 %  max/avg: storage 2.00, nodes 1.50"
        );
    }

    #[test]
    fn the_summary_compares_and_says_what_happened() {
        let phase = |throughput, node_max_over_avg, hit_ratio| PhaseSummary {
            throughput,
            storage_max_over_avg: Some(1.5),
            node_max_over_avg,
            hit_ratio,
        };
        let both = Summary {
            without_cache: phase(5_000.0, None, 0.0),
            with_cache: phase(20_000.0, Some(1.1), 0.66),
        };
        let text = summary(&cast(), &both).join("\n");
        for piece in
            ["5,000", "20,000", "1.10", "66.0 %", "4.0 times the throughput", "emulated", "1.5 times as busy"]
        {
            assert!(text.contains(piece), "{piece} is missing in\n{text}");
        }
        let same = Summary { with_cache: both.without_cache.clone(), ..both };
        assert!(summary(&cast(), &same).join("\n").contains("made no difference"));
    }

    #[test]
    fn thousands_are_separated() {
        for (number, expected) in [(0.4, "0"), (999.0, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(thousands(number), expected);
        }
    }
}
