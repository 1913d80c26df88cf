//! The report as one HTML file that refers to nothing outside itself. Not what it says.

use std::fmt::Write;

use study::reproduce::{Claim, ClaimVerdict, Figure};

use super::csv;
use super::scale::short;
use super::svg::{self, escape};

/// Layout and the light theme; the dark one changes its variables.
const STYLE: &str = include_str!("report.css");
const DARK: &str = "color-scheme:dark;--paper:#14181d;--panel:#1c2229;--text:#e6eaef;--soft:#9aa5b1;\
                    --rule:#303842;--good:#5fce7e;--half:#e3b04b;--bad:#ff8478;";
const SWITCH: &str = "const root=document.documentElement;\
    document.getElementById('theme').onclick=()=>{\
    const dark=root.dataset.theme?root.dataset.theme==='dark':matchMedia('(prefers-color-scheme: dark)').matches;\
    root.dataset.theme=dark?'light':'dark';};";

pub(super) fn document(claims: &[Claim], figures: &[Figure], run: &str) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>DistCache: the papers' claims, reproduced</title><style>\n",
    );
    out.push_str(&style());
    let _ = write!(
        out,
        "</style></head><body><header><div><h1>The papers' claims, reproduced</h1>\
         <p class=\"soft\">{}</p></div><button id=\"theme\" type=\"button\">Light or dark</button></header>",
        escape(run)
    );
    counts(&mut out, claims);
    table(&mut out, claims);
    out.push_str("<h2>Figures</h2><div class=\"figures\">");
    figures.iter().for_each(|shown| figure(&mut out, shown));
    let _ = writeln!(out, "</div><script>{SWITCH}</script></body></html>");
    out
}

fn style() -> String {
    let (light, dark) = (svg::colour_rules(false), format!("{DARK}{}", svg::colour_rules(true)));
    let mut style = format!(
        "{STYLE}:root{{{light}}}\n@media (prefers-color-scheme: dark){{:root:not([data-theme=light]){{{dark}}}}}\n\
         :root[data-theme=dark]{{{dark}}}\n"
    );
    for index in 0..svg::colours_count() {
        let _ =
            write!(style, ".line.c{index}{{stroke:var(--c{index})}}.mark.c{index}{{fill:var(--c{index})}}");
    }
    style
}

fn class(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Holds => "holds",
        ClaimVerdict::HoldsInShape => "shape",
        ClaimVerdict::DoesNotHold => "not",
    }
}

fn counts(out: &mut String, claims: &[Claim]) {
    out.push_str("<div class=\"counts\">");
    for verdict in [ClaimVerdict::Holds, ClaimVerdict::HoldsInShape, ClaimVerdict::DoesNotHold] {
        let count = claims.iter().filter(|claim| claim.verdict == verdict).count();
        let _ = write!(
            out,
            "<div><b>{count}</b> <span class=\"{}\">{}</span></div>",
            class(verdict),
            verdict.word()
        );
    }
    out.push_str("</div>");
}

fn table(out: &mut String, claims: &[Claim]) {
    out.push_str(
        "<h2>Claims</h2><table class=\"claims\"><thead><tr><th></th><th>The paper</th><th>Here</th><th>Verdict</th>\
         <th>Shown by</th></tr></thead><tbody>",
    );
    for claim in claims {
        let _ = write!(
            out,
            "<tr id=\"{0}\"><td><b>{0}</b></td><td>{1}</td><td>{2}</td><td class=\"{3}\">{4}</td><td><code>{5}</code></td></tr>",
            claim.id,
            escape(claim.paper),
            escape(&claim.ours),
            class(claim.verdict),
            claim.verdict.word(),
            escape(&claim.command)
        );
    }
    out.push_str("</tbody></table>");
}

fn figure(out: &mut String, figure: &Figure) {
    let _ = write!(
        out,
        "<figure id=\"{}\"><figcaption>{}</figcaption>{}<details><summary>Values</summary><table><thead><tr>\
         <th>Series</th><th>{}</th><th>{}</th><th>Range</th></tr></thead><tbody>",
        escape(&figure.id),
        escape(&figure.title),
        svg::inline(figure),
        escape(&figure.x.label),
        escape(&figure.y.label)
    );
    for series in &figure.series {
        for point in &series.points {
            let range = point
                .range
                .map_or_else(String::new, |(low, high)| format!("{} to {}", short(low), short(high)));
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{range}</td></tr>",
                escape(&series.name),
                escape(&csv::x(figure, point)),
                short(point.y)
            );
        }
    }
    out.push_str("</tbody></table></details></figure>");
}
