//! What the suite came to through the router, beside what it came to direct.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::skip::{Skips, matches};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaseOutcome {
    Ok,
    Failed,
    /// By the suite itself, or by the skip file.
    Skipped,
}

/// One test; several of a file may have one name.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) outcome: CaseOutcome,
    /// What a failure said.
    pub(super) detail: String,
}

/// One file of the suite.
#[derive(Debug)]
pub(super) struct CaseRow {
    unit: String,
    /// Pass in both runs.
    ok: usize,
    /// Fail or are left out direct as well.
    beside: usize,
    /// Left out by the skip file.
    skipped: usize,
    /// Pass direct and not here, with what went wrong if they were reached.
    pub(super) missed: Vec<(String, Option<String>)>,
    /// What the skip file names for nothing, and why for nothing.
    pub(super) needless: Vec<(String, String)>,
}

pub(super) fn row(unit: &str, expected: &[Test], got: &[Test], skips: &Skips) -> CaseRow {
    let mut got = by_name(got);
    let mut needed = BTreeSet::new();
    let mut row = CaseRow {
        unit: unit.to_owned(),
        ok: 0,
        beside: 0,
        skipped: 0,
        missed: Vec::new(),
        needless: Vec::new(),
    };
    for test in expected {
        let own = got.get_mut(test.name.as_str()).and_then(|tests| tests.pop());
        let passes = own.is_some_and(|own| own.outcome == CaseOutcome::Ok);
        let reason = skips.reason(unit, &test.name);
        match (test.outcome == CaseOutcome::Ok, passes) {
            (false, _) => row.beside += 1,
            (true, true) => {
                row.ok += 1;
                let named = reason.filter(|reason| reason.alone);
                row.needless.extend(named.map(|reason| needless(&test.name, reason.text)));
            }
            (true, false) if reason.is_some() => {
                row.skipped += 1;
                needed.insert(test.name.as_str());
            }
            (true, false) => {
                let detail = own.map(|own| own.detail.clone());
                row.missed.push((test.name.clone(), detail));
            }
        }
    }
    // An entry speaks of all tests of its name.
    row.needless.retain(|(name, _)| !needed.contains(name.as_str()));
    row.needless.dedup();
    for entry in skips.names(unit) {
        if !expected.iter().any(|test| test.outcome == CaseOutcome::Ok && matches(entry, &test.name)) {
            row.needless.push((entry.to_owned(), "no such test passes direct".to_owned()));
        }
    }
    row
}

/// Whether all tests of a name pass, so that nothing speaks for leaving it out.
pub(super) fn passes(name: &str, got: &[Test]) -> bool {
    let mut own = got.iter().filter(|test| test.name == name).peekable();
    own.peek().is_some() && own.all(|test| test.outcome == CaseOutcome::Ok)
}

pub(super) fn needless(name: &str, reason: &str) -> (String, String) {
    (name.to_owned(), format!("passes, though: {reason}"))
}

/// The tests of each name, the first one last.
fn by_name(tests: &[Test]) -> BTreeMap<&str, Vec<&Test>> {
    let mut found: BTreeMap<&str, Vec<&Test>> = BTreeMap::new();
    for test in tests.iter().rev() {
        found.entry(test.name.as_str()).or_default().push(test);
    }
    found
}

pub(super) fn line(row: &CaseRow) -> String {
    let CaseRow { unit, ok, beside, skipped, missed, needless } = row;
    let mut text =
        format!("{unit}: {ok} ok, {} missed, {skipped} skipped, {beside} not direct either", missed.len());
    for (name, why) in needless {
        let _ = write!(text, "\n  remove from the skip file: {name}\n      {why}");
    }
    let unreached = missed.iter().filter(|(_, detail)| detail.is_none()).count();
    if let Some((name, _)) = missed.iter().find(|(_, detail)| detail.is_none()) {
        let _ = write!(text, "\n  missed: {unreached} that were not reached, the first of them: {name}");
    }
    for (name, detail) in missed.iter().filter_map(|(name, detail)| Some((name, detail.as_ref()?))) {
        let first: String = detail.lines().next().unwrap_or_default().chars().take(160).collect();
        let _ = write!(text, "\n  missed: {name}\n      {first}");
    }
    text
}

/// The table of all files.
pub(super) fn text(rows: &[CaseRow], servers: usize, markdown: bool) -> String {
    let mut text = match markdown {
        true => "| file | ok | missed | skipped | not direct either |\n|---|---|---|---|---|\n".to_owned(),
        false => format!("{servers} server(s){:13}      ok  missed  skipped  not direct either\n", ""),
    };
    let sum = |of: &dyn Fn(&CaseRow) -> usize| rows.iter().map(of).sum::<usize>();
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

#[cfg(test)]
mod tests {
    use super::{CaseOutcome, Skips, Test, line, row};

    fn tests(of: &[(&str, CaseOutcome)]) -> Vec<Test> {
        let test = |&(name, outcome): &(&str, CaseOutcome)| Test {
            name: name.to_owned(),
            outcome,
            detail: "why".to_owned(),
        };
        of.iter().map(test).collect()
    }

    #[test]
    fn what_passes_only_direct_is_missed_unless_the_skip_file_names_it() {
        let (ok, failed) = (CaseOutcome::Ok, CaseOutcome::Failed);
        let skips = "always | u | twice | r\nalways | u | item* | r\nalways | u | fine | r\nalways | v | a | r\n\
                     always | u | bad | r\nalways | u | gone | r";
        let skips = Skips::parse(skips).unwrap().of(1);
        let names = ["a", "b", "twice", "twice", "item 1", "item 2", "fine", "last"];
        let mut expected = tests(&names.map(|name| (name, ok)));
        expected.extend(tests(&[("bad", failed)]));
        let got = [("a", failed), ("b", ok), ("twice", ok), ("twice", failed), ("item 1", ok), ("fine", ok)];
        let row = row("u", &expected, &tests(&got), &skips);
        let text = line(&row);
        assert_eq!(
            text,
            "u: 4 ok, 2 missed, 2 skipped, 1 not direct either\n  \
             remove from the skip file: fine\n      passes, though: r\n  \
             remove from the skip file: bad\n      no such test passes direct\n  \
             remove from the skip file: gone\n      no such test passes direct\n  \
             missed: 1 that were not reached, the first of them: last\n  missed: a\n      why"
        );
    }
}
