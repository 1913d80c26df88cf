//! `--engine machines`: figures 9 to 11 from the product's machines beside the model, each point by the subcommand that
//! anybody can run. It measures nothing itself.

use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;
use study::reproduce::{Axis, Claim, Effort, Figure, FigureSeries, Style};

use super::progress::ReproduceProgress;

/// Both have every object in the same places, and no read goes to a node that does not hold the object, as in the model:
/// routers know what is cached where, which is the product's default.
const MACHINES: &[&str] = &["study", "machines", "--placement", "ring", "--routing", "learned"];
const MODEL: &[&str] = &["study", "capacity", "--placement", "ring"];
/// The work of a series in time, in that of a point.
const OVER_TIME: f64 = 3.0;
/// What both may differ by.
const APART: f64 = 0.05;
const MECHANISMS: [(&str, &str); 3] =
    [("nocache", "NoCache"), ("partition-leaf", "CachePartition, leaves"), ("distcache", "DistCache")];

/// One figure: its axis and the flags of each point.
struct MachinesPanel {
    claim: &'static str,
    name: &'static str,
    title: &'static str,
    x: Axis,
    mechanisms: &'static [(&'static str, &'static str)],
    points: Vec<(f64, Vec<String>)>,
}

/// Adds the figures of the claims that are there, and to each claim how far the machines are from the model.
pub(super) fn add(claims: &mut [Claim], figures: &mut Vec<Figure>, effort: Effort) -> anyhow::Result<()> {
    let there = |panel: &MachinesPanel| claims.iter().any(|claim| claim.id == panel.claim);
    let panels: Vec<MachinesPanel> = panels(effort).into_iter().filter(there).collect();
    let work = |panel: &MachinesPanel| (panel.points.len() * panel.mechanisms.len()) as f64;
    let mut progress = ReproduceProgress::new(panels.iter().map(work).sum::<f64>() + OVER_TIME);
    for panel in panels {
        let (mut series, mut apart) = (Vec::new(), Vec::new());
        for (mechanism, name) in panel.mechanisms {
            let (mut machines, mut model) = (Vec::new(), Vec::new());
            for (x, flags) in &panel.points {
                progress.begin(&format!("{}, machines", panel.claim));
                let own = throughput(MACHINES, mechanism, flags)?;
                let due = throughput(MODEL, mechanism, flags)?;
                machines.push((*x, own));
                model.push((*x, due));
                apart.push((own / due - 1.0).abs());
                progress.done(1.0);
            }
            series.push(FigureSeries::new(format!("{name}, machines"), Style::Line, machines));
            series.push(FigureSeries::new(format!("{name}, model"), Style::Curve, model));
        }
        let most = apart.iter().copied().fold(0.0, f64::max);
        let within = apart.iter().filter(|apart| **apart <= APART).count();
        for claim in claims.iter_mut().filter(|claim| claim.id == panel.claim) {
            claim.ours += &format!(
                " The product's machines (figure {}): {within} of {} points within 5 % of the model, the furthest {:.1} %.",
                panel.name,
                apart.len(),
                100.0 * most
            );
        }
        figures.push(Figure {
            id: format!("machines-{}", panel.name),
            title: format!("DistCache, figure {}, machines and model: {}", panel.name, panel.title),
            x: panel.x,
            y: Axis::from_zero("throughput (storage servers)"),
            series,
        });
    }
    if let Some(claim) = claims.iter_mut().find(|claim| claim.id == "D6") {
        progress.begin("D6, machines");
        let (text, figure) = over_time(effort)?;
        claim.ours += &text;
        figures.push(figure);
        progress.done(OVER_TIME);
    }
    progress.clear();
    Ok(())
}

/// Figure 11 itself: at half of the maximum four spines fail one by one, their partitions move, and they return. Nobody
/// tells the routers.
fn over_time(effort: Effort) -> anyhow::Result<(String, Figure)> {
    let half = throughput(MODEL, "distcache", &[])? / 2.0;
    let step = effort.pick(3, 5);
    let flags = format!("--offered {half} --series --silent --fail-spines 4 --step {step}");
    let found = said(MACHINES, "distcache", &flags.split(' ').map(str::to_owned).collect::<Vec<_>>())?;
    let seconds = found.as_array().context("a series is a list of seconds")?;
    let series = |name: &str| -> anyhow::Result<Vec<(f64, f64)>> {
        let number = |second: &Value, name: &str| second[name].as_f64().with_context(|| format!("no {name}"));
        seconds.iter().map(|second| Ok((number(second, "second")?, number(second, name)?))).collect()
    };
    let (offered, served) = (series("offered")?, series("throughput")?);
    let share = |from: usize, to: usize| {
        let shares =
            served[from..to].iter().zip(&offered[from..to]).map(|(served, offered)| served.1 / offered.1);
        100.0 * shares.fold(1.0, f64::min)
    };
    let (fails, moves, returns) = (step, 5 * step, 6 * step);
    let text = format!(
        " Over time, at half of the maximum and with routers that nobody tells: the worst second serves {:.1} % while four \
         spines fail, {:.1} % from the second after the move on, {:.1} % when they are back.",
        share(fails, moves),
        share(moves + 1, returns),
        share(returns, served.len())
    );
    let figure = Figure {
        id: "machines-11-time".to_owned(),
        title: "DistCache, figure 11, machines: spines fail one by one, are replaced, and return".to_owned(),
        x: Axis::from_zero(&format!(
            "time (s; failures at {fails}, {}, {}, {}, recovery at {moves}, return at {returns})",
            2 * step,
            3 * step,
            4 * step
        )),
        y: Axis::from_zero("throughput (storage servers)"),
        series: vec![
            FigureSeries::new("offered", Style::Curve, offered),
            FigureSeries::new("served", Style::Line, served),
        ],
    };
    Ok((text, figure))
}

fn panels(effort: Effort) -> Vec<MachinesPanel> {
    let flags = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let laws = ["uniform", "zipf:0.9", "zipf:0.95", "zipf:0.99"];
    let law = |(law, x): (&&str, i32)| (f64::from(x), flags(&format!("--dist {law}")));
    let slots = effort.pick(vec![10, 100], vec![10, 30, 100, 300]);
    let racks = effort.pick(vec![8, 32], vec![4, 8, 16, 32, 64]);
    let ratios = effort.pick(vec![0.0, 0.2], vec![0.0, 0.05, 0.2, 0.5, 0.8]);
    let by_slots = |slots: &i32| (f64::from(64 * slots), flags(&format!("--slots {slots}")));
    let by_racks = |racks: &i32| (f64::from(32 * racks), flags(&format!("--racks {racks} --spines {racks}")));
    let by_ratio = |law: &str, slots: i32| {
        let point =
            |ratio: &f64| (*ratio, flags(&format!("--dist {law} --slots {slots} --write-ratio {ratio}")));
        ratios.iter().map(point).collect::<Vec<_>>()
    };
    let failed = |failed: i32| (f64::from(failed), flags(&format!("--fail-spines {failed} --remap")));
    let panel = |claim, name, title, x, mechanisms, points| MachinesPanel {
        claim,
        name,
        title,
        x,
        mechanisms,
        points,
    };
    let (skew, ratio) = (Axis::named("workload", &laws), || Axis::linear("write ratio").between(0.0, 1.0));
    vec![
        panel("D2", "9a", "against skew", skew, &MECHANISMS, laws.iter().zip(0..).map(law).collect()),
        panel(
            "D3",
            "9b",
            "against cache size (Zipf 0.99)",
            Axis::logarithmic("cache size (entries in all nodes)"),
            &MECHANISMS[1..],
            slots.iter().map(by_slots).collect(),
        ),
        panel(
            "D4",
            "9c",
            "against servers (Zipf 0.99)",
            Axis::from_zero("storage servers"),
            &MECHANISMS,
            racks.iter().map(by_racks).collect(),
        ),
        panel(
            "D5",
            "10a",
            "with writes, Zipf 0.9, 640 entries",
            ratio(),
            &MECHANISMS,
            by_ratio("zipf:0.9", 10),
        ),
        panel(
            "D5",
            "10b",
            "with writes, Zipf 0.99, 6400 entries",
            ratio(),
            &MECHANISMS,
            by_ratio("zipf:0.99", 100),
        ),
        panel(
            "D6",
            "11",
            "with failed spines whose partitions have moved",
            Axis::linear("failed spines"),
            &MECHANISMS[2..],
            effort.pick(vec![0, 4], vec![0, 1, 2, 4]).into_iter().map(failed).collect(),
        ),
    ]
}

fn throughput(side: &[&str], mechanism: &str, flags: &[String]) -> anyhow::Result<f64> {
    let seeds = ["--seeds".to_owned(), "2".to_owned()];
    let found = said(side, mechanism, &[flags, &seeds].concat())?;
    found["throughput"].as_f64().with_context(|| format!("distcache {} says no throughput", side.join(" ")))
}

/// What one of the two says of one point.
fn said(side: &[&str], mechanism: &str, flags: &[String]) -> anyhow::Result<Value> {
    let binary = std::env::current_exe().context("the path of this binary")?;
    let mut command = Command::new(binary);
    command.args(side).args(["--mechanism", mechanism, "--json"]).args(flags);
    let named = || format!("distcache {} {}", side.join(" "), flags.join(" "));
    let ran = command.output().with_context(named)?;
    if !ran.status.success() {
        bail!("{}: {}", named(), String::from_utf8_lossy(&ran.stderr).trim());
    }
    serde_json::from_slice(&ran.stdout).with_context(named)
}
