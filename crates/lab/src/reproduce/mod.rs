//! `distcache reproduce`: the claims of the papers checked again, as a table, figures and a report. It computes none of them.

mod csv;
mod html;
mod machines;
mod png;
mod progress;
mod scale;
mod svg;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use study::reproduce::{CLAIMS, Claim, ClaimCheck, Effort, Figure, checks, parse};

use crate::terminal::print;
use png::Rasteriser;
use progress::ReproduceProgress;
use svg::document as svg_document;

/// Check the papers' claims again and write a report: table, figures, values
///
/// Writes report.html, claims.json, and every figure as SVG, PNG and CSV. A claim that does not hold is shown with the
/// reason, and is no error.
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct ReproduceArguments {
    /// Only these claims, with commas: D1 to D11 (DistCache), S1 to S6 (Small Cache, Big Effect), M1 to M6 (MBalancer)
    #[arg(long, value_name = "IDS", value_parser = ids)]
    claims: Option<Ids>,

    /// Fewer seeds and smaller sizes: under 3 minutes on 2 cores instead of under 30
    #[arg(long)]
    quick: bool,

    /// Whether figures 9 to 11 (claims D2 to D6) are drawn from the product's machines in virtual time, too
    #[arg(long, value_enum, default_value = "model")]
    engine: ReproduceEngine,

    /// Where the report goes; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Print the claims as one JSON array, as in claims.json
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ReproduceEngine {
    /// The analytic model alone
    Model,
    /// And beside it routers, nodes and shims as they run in production, by `distcache study machines`
    Machines,
}

/// One value of a flag, though there are several claims in it.
#[derive(Clone, Debug)]
struct Ids(Vec<&'static str>);

fn ids(text: &str) -> Result<Ids, String> {
    parse(text).map(Ids)
}

#[derive(Serialize)]
struct ClaimRow<'a> {
    id: &'a str,
    paper: &'a str,
    ours: &'a str,
    verdict: &'a str,
    command: &'a str,
}

pub fn run(arguments: &ReproduceArguments) -> anyhow::Result<()> {
    let out = &arguments.out;
    fs::create_dir_all(out).with_context(|| format!("{}: cannot be made", out.display()))?;
    let effort = if arguments.quick { Effort::Quick } else { Effort::Full };
    let wanted = |check: &ClaimCheck| arguments.claims.as_ref().is_none_or(|ids| ids.0.contains(&check.id));
    let checks: Vec<ClaimCheck> = checks().into_iter().filter(wanted).collect();
    let (mut claims, mut figures) = check(&checks, effort);
    if arguments.engine == ReproduceEngine::Machines {
        machines::add(&mut claims, &mut figures, effort)?;
    }
    write(out, &claims, &figures, &described(arguments))?;
    let rows: Vec<ClaimRow<'_>> = claims.iter().map(row).collect();
    if arguments.json {
        print(&serde_json::to_string(&rows)?);
        return Ok(());
    }
    for claim in &claims {
        print(&format!("{:4} {:15} {}", claim.id, claim.verdict.word(), claim.ours));
    }
    print(&format!("\n{}", out.join("report.html").display()));
    Ok(())
}

fn check(checks: &[ClaimCheck], effort: Effort) -> (Vec<Claim>, Vec<Figure>) {
    let mut progress = ReproduceProgress::new(checks.iter().map(|check| check.cost).sum());
    let (mut claims, mut figures) = (Vec::new(), Vec::new());
    for check in checks {
        progress.begin(check.id);
        let evidence = (check.run)(effort);
        let paper = CLAIMS.iter().find(|stated| stated.id == check.id).map_or("", |stated| stated.paper);
        let (ours, verdict, command) = (evidence.ours, evidence.verdict, evidence.command);
        claims.push(Claim { id: check.id, paper, ours, verdict, command });
        figures.extend(evidence.figures);
        progress.done(check.cost);
    }
    progress.clear();
    (claims, figures)
}

fn row(claim: &Claim) -> ClaimRow<'_> {
    ClaimRow {
        id: claim.id,
        paper: claim.paper,
        ours: &claim.ours,
        verdict: claim.verdict.word(),
        command: &claim.command,
    }
}

fn described(arguments: &ReproduceArguments) -> String {
    let effort = if arguments.quick { "a quick run" } else { "a full run" };
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "DistCache {version}, {effort} of distcache reproduce. Everything here is computed from seeds and comes out \
         the same on every machine."
    )
}

fn write(out: &Path, claims: &[Claim], figures: &[Figure], run: &str) -> anyhow::Result<()> {
    let rasteriser = Rasteriser::new();
    for figure in figures {
        let drawn = svg_document(figure);
        file(out, &format!("{}.png", figure.id), &rasteriser.png(&drawn)?)?;
        file(out, &format!("{}.svg", figure.id), drawn.as_bytes())?;
        file(out, &format!("{}.csv", figure.id), csv::document(figure).as_bytes())?;
    }
    let rows: Vec<ClaimRow<'_>> = claims.iter().map(row).collect();
    file(out, "claims.json", (serde_json::to_string_pretty(&rows)? + "\n").as_bytes())?;
    file(out, "report.html", html::document(claims, figures, run).as_bytes())
}

/// A name that `plot` can write to, as clap parses it.
pub(crate) fn figure_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let known = path.extension().is_some_and(|extension| extension == "svg" || extension == "png");
    if known { Ok(path) } else { Err("write a name that ends in .svg or .png".to_owned()) }
}

/// Draws one figure, in the format that the file's name says.
pub(crate) fn plot(path: &Path, figure: &Figure) -> anyhow::Result<()> {
    let drawn = svg_document(figure);
    let is_png = path.extension().is_some_and(|extension| extension == "png");
    let bytes = if is_png { Rasteriser::new().png(&drawn)? } else { drawn.into_bytes() };
    fs::write(path, bytes).with_context(|| format!("{}: cannot be written", path.display()))
}

fn file(out: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let path = out.join(name);
    fs::write(&path, bytes).with_context(|| format!("{}: cannot be written", path.display()))
}
