//! The demonstration in words: one moment as a sentence or a line, and the table at the end. Not how it is drawn.

use std::time::Duration;

use super::{DemoCast, DemoMoment};
use crate::demo::PhaseKind;
use crate::demo::figures::{DemoSummary, PhaseSummary};
use crate::demo::load::{EXPONENT, KEYS};
use crate::demo::sample::max_over_avg;

/// No terminal is narrower, and longer lines are hard to read.
const LINE_CHARS: usize = 79;
/// Threads that wait for a core; about 0.2 do on two idle ones.
const BUSY: f64 = 0.5;

/// What there is to see now.
pub(super) fn story(cast: &DemoCast, moment: &DemoMoment) -> String {
    let rates = &moment.rates;
    let limit = thousands(cast.server_rate_max);
    match moment.kind {
        None => format!("{} keys go to {} storage servers", thousands(KEYS as f64), cast.servers.len()),
        Some(PhaseKind::WithoutCache) => match moment.hottest {
            Some(share) => format!(
                "One key of {} gets {} of all requests; its server can do {limit}/s in all.",
                thousands(KEYS as f64),
                percent(share)
            ),
            None => format!("Every request goes to storage; a server can do {limit} requests/s."),
        },
        Some(PhaseKind::WithCache) => format!(
            "{} of the requests never reach storage; the busiest server does {}/s.",
            percent(rates.hit_ratio),
            thousands(rates.busiest_server())
        ),
    }
}

/// One moment as one line, for logs and pipes.
pub(crate) fn plain(moment: &DemoMoment) -> String {
    let (rates, clients) = (&moment.rates, &moment.clients);
    let phase = moment.kind.map_or("loading", PhaseKind::name);
    let ratio = max_over_avg(&rates.servers).map_or("-".to_owned(), factor);
    format!(
        "{:>3} s  {phase:<13}  {:>6} answered/s  busiest server {:>6}/s ({ratio} x average)  p99 {:>9}  late {}/s  \
         failed {}/s  hit ratio {}",
        moment.elapsed_s,
        thousands(rates.throughput),
        thousands(rates.busiest_server()),
        ms(clients.p99),
        thousands(clients.late as f64),
        thousands(clients.errors as f64),
        percent(rates.hit_ratio),
    )
}

/// Both phases side by side and a sentence on what happened.
pub(crate) fn summary(cast: &DemoCast, summary: &DemoSummary) -> Vec<String> {
    let row = |name: &str, figure: &dyn Fn(&PhaseSummary) -> String| {
        let figure = |phase: &PhaseSummary| if phase.requests > 0 { figure(phase) } else { "-".to_owned() };
        format!("  {name:<34}{:>18}{:>18}", figure(&summary.without_cache), figure(&summary.with_cache))
    };
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), factor);
    vec![
        format!("  {:<34}{:>18}{:>18}", "", "without cache", "with cache"),
        row("busiest server over average", &|phase| ratio(phase.storage_max_over_avg)),
        row("requests/s at the busiest server", &|phase| thousands(phase.busiest_storage_per_s)),
        row("latency p50", &|phase| ms(Duration::from_micros(phase.p50_us))),
        row("latency p99", &|phase| ms(Duration::from_micros(phase.p99_us))),
        row("late or failed requests", &|phase| {
            let bad = phase.late + phase.errors;
            format!("{} ({})", thousands(bad as f64), percent(bad as f64 / phase.requests as f64))
        }),
        row("answered requests/s", &|phase| thousands(phase.throughput)),
        row("hit ratio", &|phase| percent(phase.hit_ratio)),
        String::new(),
    ]
    .into_iter()
    .chain(wrap(&sentence(cast, summary)))
    .chain(busy(summary).iter().flat_map(|text| wrap(text)))
    .chain(wrap(&conditions(cast)))
    .collect()
}

/// What else made requests late, if this machine had much else to do.
fn busy(summary: &DemoSummary) -> Option<String> {
    let waits = [&summary.without_cache, &summary.with_cache].map(|phase| phase.cpu_wait.unwrap_or(0.0));
    let [without, with] = waits;
    waits.iter().any(|wait| *wait > BUSY).then(|| {
        format!(
            "This machine is busy: at any time {without:.1} of the demo's threads (with the cache {with:.1}) were \
             ready and waited for a core, which is in the latencies."
        )
    })
}

fn conditions(cast: &DemoCast) -> String {
    format!(
        "Zipf {EXPONENT} over {} keys; limits are emulated so that this machine is not what burns: {} requests/s for \
             each of {} storage servers, {} for each of {} cache nodes. Late: after more than 100 ms.",
        thousands(KEYS as f64),
        thousands(cast.server_rate_max),
        cast.servers.len(),
        thousands(cast.node_rate_max),
        cast.nodes.len(),
    )
}

/// As lines that fit every terminal.
fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // A number keeps its unit.
    for word in text.replace(" %", "\u{a0}%").split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= LINE_CHARS => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

fn sentence(cast: &DemoCast, summary: &DemoSummary) -> String {
    let (without, with) = (&summary.without_cache, &summary.with_cache);
    let Some(imbalance) = without.storage_max_over_avg.filter(|_| with.requests > 0) else {
        return "The cache was not both off and on for long enough, so there is nothing to compare."
            .to_owned();
    };
    let bad = |phase: &PhaseSummary| match phase.late + phase.errors {
        0 => "none was late or failed".to_owned(),
        count => format!("{} were late or failed", thousands(count as f64)),
    };
    let burns = without.busiest_storage_per_s >= 0.9 * cast.server_rate_max;
    let before = format!(
        "Without the cache one of {} servers got {} times the average load{}, and of {} requests {}",
        cast.servers.len(),
        factor(imbalance),
        if burns { ", more than it can do" } else { ", which it could still do" },
        thousands(without.requests as f64),
        bad(without),
    );
    let fall = without.busiest_storage_per_s / with.busiest_storage_per_s.max(1.0);
    let faster = without.p99_us as f64 / with.p99_us.max(1) as f64;
    let after = match (fall >= 1.1, faster >= 1.1) {
        (false, _) => {
            "the cache took no load off it: perhaps this machine is too busy, or the run too short".to_owned()
        }
        (true, false) => {
            format!("the cache took all but 1/{fall:.0} of its load off it, but p99 did not fall")
        }
        (true, true) => format!(
            "with the cache {} never reach storage, the busiest server has {fall:.0} times less to do, p99 is {} times \
             lower, and {}",
            percent(with.hit_ratio),
            if faster >= 10.0 { format!("{faster:.0}") } else { format!("{faster:.1}") },
            bad(with),
        ),
    };
    format!("{before}; {after}.")
}

/// As milliseconds.
pub(super) fn ms(time: Duration) -> String {
    let us = time.as_micros();
    match us {
        0..1_000 => format!("{:.2} ms", us as f64 / 1e3),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{} ms", thousands(us as f64 / 1e3)),
    }
}

pub(super) fn factor(ratio: f64) -> String {
    format!("{ratio:.2}")
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// A number as people read it: 12,345.
pub(super) fn thousands(number: f64) -> String {
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
