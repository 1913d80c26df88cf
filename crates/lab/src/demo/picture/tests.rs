//! The picture of moments at several sizes. Not a terminal.

use std::time::Duration;

use super::*;
use crate::demo::figures::{DemoSummary, PhaseSummary};

fn cast(servers: usize, nodes: usize) -> DemoCast {
    DemoCast {
        servers: (0..servers).map(|index| format!("r0 server {index}")).collect(),
        nodes: (0..nodes).map(|index| format!("spine-{index}")).collect(),
        server_rate_max: 500.0,
        node_rate_max: 2_000.0,
        hint: "redis-cli -p 6380".to_owned(),
    }
}

fn moment(kind: Option<PhaseKind>, servers: usize, nodes: usize) -> DemoMoment {
    let mut rates = Rates {
        throughput: 1_834.6,
        hit_ratio: 0.678,
        cpu_wait: None,
        servers: vec![100.0; servers],
        nodes: vec![1_000.0; nodes],
    };
    rates.servers[0] = 500.0;
    let mut queues = vec![0; servers];
    queues[0] = 1_234;
    DemoMoment {
        kind,
        elapsed_s: 7,
        seconds: Some(20),
        rates,
        clients: RecentClients {
            p50: Duration::from_micros(1_200),
            p99: Duration::from_millis(987),
            late: 31,
            errors: 0,
            waiting: 1_240,
            queues,
        },
        nodes_up: (0..nodes).map(|node| node != 1).collect(),
        hottest: Some(0.222),
    }
}

fn draw(cast: &DemoCast, moment: &DemoMoment, (width, height): (u16, u16)) -> (Vec<String>, Buffer) {
    let mut history = PictureHistory::default();
    for second in 0..7 {
        history.add(Duration::from_secs(second), Duration::from_millis(second * 150), 500.0, second > 1);
    }
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    Picture { cast, moment, history: &history, palette: Palette::COLOURS }.render(area, &mut buffer);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    ((0..height).map(row).collect(), buffer.clone())
}

fn check_has(lines: &[String], pieces: &[&str]) {
    let all = lines.join("\n");
    for piece in pieces {
        assert!(all.contains(piece), "{piece} is missing in\n{all}");
    }
}

#[test]
fn a_moment_without_cache_shows_who_burns_and_who_waits() {
    let (lines, buffer) = draw(&cast(8, 8), &moment(Some(PhaseKind::WithoutCache), 8, 8), (80, 24));
    check_has(
        &lines,
        &[
            "cache OFF   phase 1 of 2   7 s of 20 s",
            "gets 22.2 % of all requests; its server can do 500/s in all.",
            "limit 500 requests/s each",
            "500/s +1,234",
            "r0 server 7",
            "busiest server/average 3.33",
            "answered  1,835/s",
            "p99 987 ms",
            "late 31/s",
            "waiting 1,240",
            "off: nothing is cached",
            "peak 900 ms",
            "space cache on/off",
            "redis-cli -p 6380",
        ],
    );
    let y = lines.iter().position(|line| line.starts_with("r0 server 0")).expect("a row") as u16;
    let bar: Vec<_> = (13..23).map(|x| buffer[(x, y)].fg).collect();
    assert!(bar.iter().all(|colour| *colour == ratatui::style::Color::Red), "{bar:?}");
}

#[test]
fn a_moment_with_cache_shows_the_nodes_and_which_is_gone() {
    let (lines, _) = draw(&cast(8, 8), &moment(Some(PhaseKind::WithCache), 8, 8), (80, 24));
    check_has(
        &lines,
        &["cache ON   phase 2 of 2", "67.8 %", "spine-0", "1,000/s", "killed", "k bring the node back"],
    );
}

#[test]
fn every_member_has_its_place_at_every_size() {
    for (servers, nodes) in [(1, 2), (8, 8), (32, 64)] {
        for size in [(80, 24), (160, 50), (60, 24)] {
            let (lines, _) =
                draw(&cast(servers, nodes), &moment(Some(PhaseKind::WithCache), servers, nodes), size);
            check_has(&lines, &["storage servers", "cache nodes", "clients", "space"]);
            let all = lines.join("\n");
            let named = all.contains(&format!("spine-{}", nodes - 1));
            let blocks = all.matches("▄▄").count();
            assert!(named || blocks >= nodes - 1, "{servers} {nodes} {size:?}\n{all}");
        }
    }
    for size in [(1, 1), (20, 5), (79, 9)] {
        draw(&cast(8, 8), &moment(None, 8, 8), size);
    }
}

#[test]
fn plain_lines_hold_the_same_numbers() {
    assert_eq!(
        plain(&moment(Some(PhaseKind::WithoutCache), 8, 8)),
        "  7 s  without cache   1,835 answered/s  busiest server    500/s (3.33 x average)  p99    987 ms  late 31/s  \
         failed 0/s  hit ratio 67.8 %"
    );
}

fn phase(busiest: f64, p99_us: u64, bad: u64) -> PhaseSummary {
    PhaseSummary {
        throughput: 1_900.0,
        storage_max_over_avg: Some(2.5),
        node_max_over_avg: None,
        hit_ratio: 0.66,
        busiest_storage_per_s: busiest,
        p50_us: 900,
        p99_us,
        late: bad / 2,
        errors: bad - bad / 2,
        cpu_wait: Some(0.02),
        requests: 16_000,
    }
}

#[test]
fn the_summary_compares_and_says_what_happened() {
    let both = |with_cache| DemoSummary { without_cache: phase(499.0, 1_000_000, 1_600), with_cache };
    let text = |both: &DemoSummary| {
        let lines = summary(&cast(8, 8), both);
        assert!(lines.iter().all(|line| line.chars().count() < 80), "{lines:?}");
        lines.join(" ")
    };
    let good = text(&both(phase(25.0, 4_000, 0)));
    assert!(!good.contains("busy"), "{good}");
    let busy = text(&both(PhaseSummary { cpu_wait: Some(2.25), ..phase(25.0, 4_000, 0) }));
    assert!(busy.contains("0.0 of the demo's threads (with the cache 2.2) were ready"), "{busy}");
    for piece in [
        "499",
        "25",
        "1,000 ms",
        "4.0 ms",
        "1,600 (10.0 %)",
        "0 (0.0 %)",
        "emulated",
        "2.50 times",
        "more than it can do",
        "20 times less",
        "250 times lower",
        "none was late or failed.",
    ] {
        assert!(good.contains(piece), "{piece} is missing in\n{good}");
    }
    assert!(text(&both(phase(499.0, 1_000_000, 0))).contains("took no load off"));
    assert!(text(&both(phase(25.0, 2_000_000, 0))).contains("p99 did not fall"));
    let nothing = PhaseSummary { requests: 0, ..phase(0.0, 0, 0) };
    assert!(text(&both(nothing)).contains("nothing to compare"));
    let calm = DemoSummary { without_cache: phase(200.0, 4_000, 0), with_cache: phase(25.0, 4_000, 0) };
    assert!(text(&calm).contains("which it could still do"));
}

#[test]
fn numbers_are_as_people_read_them() {
    for (number, expected) in [(0.4, "0"), (999.0, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")] {
        assert_eq!(thousands(number), expected);
    }
    for (us, expected) in [(40, "0.04 ms"), (9_940, "9.9 ms"), (10_000, "10 ms"), (1_234_567, "1,235 ms")] {
        assert_eq!(ms(Duration::from_micros(us)), expected);
    }
}
