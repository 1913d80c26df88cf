//! What the suite came to through the router, beside what it came to direct.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::skip::Skips;
use super::suite::{Outcome, Test};

/// One file of the suite.
#[derive(Debug)]
pub(super) struct Row {
    unit: String,
    /// Pass in both runs.
    ok: usize,
    /// Fail or are left out direct as well.
    beside: usize,
    /// Left out by the skip file.
    skipped: usize,
    /// Pass direct and not here, with what went wrong.
    pub(super) missed: Vec<(String, String)>,
    /// Pass although the skip file names them.
    needless: Vec<String>,
}

pub(super) fn row(unit: &str, expected: &[Test], got: &[Test], skips: &Skips) -> Row {
    let mut got = by_name(got);
    let mut row =
        Row { unit: unit.to_owned(), ok: 0, beside: 0, skipped: 0, missed: Vec::new(), needless: Vec::new() };
    for test in expected {
        let own = got.get_mut(test.name.as_str()).and_then(|tests| tests.pop());
        let passes = own.is_some_and(|own| own.outcome == Outcome::Ok);
        let reason = skips.reason(unit, &test.name);
        match (test.outcome == Outcome::Ok, passes) {
            (false, _) => row.beside += 1,
            (true, true) => {
                row.ok += 1;
                row.needless.extend(reason.map(|_| test.name.clone()));
            }
            (true, false) if reason.is_some() => row.skipped += 1,
            (true, false) => {
                let detail = own.map_or("it was not reached".to_owned(), |own| own.detail.clone());
                row.missed.push((test.name.clone(), detail));
            }
        }
    }
    row
}

/// The tests of each name, the first one last.
fn by_name(tests: &[Test]) -> BTreeMap<&str, Vec<&Test>> {
    let mut found: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
    for test in tests.iter().rev() {
        found.entry(test.name.as_str()).or_default().push(test);
    }
    found
}

pub(super) fn line(row: &Row) -> String {
    let Row { unit, ok, beside, skipped, missed, needless } = row;
    let mut text =
        format!("{unit}: {ok} ok, {} missed, {skipped} skipped, {beside} not direct either", missed.len());
    for name in needless {
        let _ = write!(text, "\n  passes, though the skip file names it: {name}");
    }
    for (name, detail) in missed {
        let first: String = detail.lines().next().unwrap_or_default().chars().take(160).collect();
        let _ = write!(text, "\n  missed: {name}\n      {first}");
    }
    text
}

/// The table of all files.
pub(super) fn text(rows: &[Row], servers: usize, markdown: bool) -> String {
    let mut text = match markdown {
        true => "| file | ok | missed | skipped | not direct either |\n|---|---|---|---|---|\n".to_owned(),
        false => format!("{servers} servers{:15}      ok  missed  skipped  not direct either\n", ""),
    };
    let sum = |of: &dyn Fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
    let lines = rows.iter().map(|row| (row.unit.as_str(), row.ok, row.missed.len(), row.skipped, row.beside));
    let total = (
        "all",
        sum(&|row| row.ok),
        sum(&|row| row.missed.len()),
        sum(&|row| row.skipped),
        sum(&|row| row.beside),
    );
    for (unit, ok, missed, skipped, beside) in lines.chain([total]) {
        let _ = match markdown {
            true => writeln!(text, "| {unit} | {ok} | {missed} | {skipped} | {beside} |"),
            false => writeln!(text, "{unit:26} {ok:6}  {missed:6}  {skipped:7}  {beside:17}"),
        };
    }
    text
}
