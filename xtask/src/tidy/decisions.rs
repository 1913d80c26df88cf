//! The index of decision records is complete and says what the records say. Not whether a decision is a good one.

use std::collections::BTreeMap;

use super::Violation;

const FOLDER: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";
const RULE: &str = "decision";
const IN_FORCE: &str = "in force";

/// What the index and a record both say of it.
#[derive(PartialEq)]
struct DecisionEntry<'a> {
    title: &'a str,
    status: &'a str,
}

/// The files below `docs/decisions`, gathered while the tree is read.
#[derive(Default)]
pub(crate) struct Decisions {
    texts: BTreeMap<String, String>,
}

impl Decisions {
    pub(crate) fn see(&mut self, path: &str, text: &str) {
        if path.starts_with(FOLDER) {
            self.texts.insert(path.to_owned(), text.to_owned());
        }
    }

    pub(crate) fn check(&self, found: &mut Vec<Violation>) {
        let mut report = |path: &str, line: usize, message: String| {
            found.push(Violation { path: path.to_owned(), line, rule: RULE, message });
        };
        let empty = String::new();
        let index = self.texts.get(INDEX).unwrap_or(&empty);
        let rows: Vec<IndexRow<'_>> =
            index.lines().enumerate().filter_map(|(at, line)| row(at + 1, line)).collect();
        for (expected, row) in (1..).zip(&rows) {
            if row.number != expected {
                let message = format!("row {} stands where {expected:04} belongs", row.number);
                report(INDEX, row.line, message);
                break;
            }
        }
        for (path, text) in self.texts.iter().filter(|(path, _)| *path != INDEX) {
            let name = &path[FOLDER.len()..];
            let Some((number, record)) = record(name, text) else {
                let message = "a record is NNNN-title.md and begins with `# N. Title`";
                report(path, 1, message.to_owned());
                continue;
            };
            let own = rows.iter().find(|row| row.file == name);
            if own.is_none_or(|own| own.number != number || own.entry != record) {
                let number = format!("[{number:04}]({name})");
                let wanted = format!("| {number} | {} | ... | {} |", record.title, record.status);
                report(INDEX, own.map_or(0, |own| own.line), format!("the row should be `{wanted}`"));
            }
        }
        for row in rows.iter().filter(|row| !row.file.is_empty()) {
            if !self.texts.contains_key(&format!("{FOLDER}{}", row.file)) {
                report(INDEX, row.line, format!("there is no {}", row.file));
            }
        }
    }
}

struct IndexRow<'a> {
    line: usize,
    number: u32,
    /// Empty for a number that no record has.
    file: &'a str,
    entry: DecisionEntry<'a>,
}

/// `| [0001](0001-reactor.md) | TITLE | DECIDED | STATUS |`, or `| 0024 | – | WHY | – |`.
fn row(line: usize, text: &str) -> Option<IndexRow<'_>> {
    let cells: Vec<&str> = text.strip_prefix('|')?.strip_suffix('|')?.split(" | ").map(str::trim).collect();
    let [first, title, _, status] = cells[..] else { return None };
    let (number, file) = match first.strip_prefix('[').and_then(|link| link.split_once("](")) {
        Some((number, file)) => (number, file.trim_end_matches(')')),
        None => (first, ""),
    };
    Some(IndexRow { line, number: number.parse().ok()?, file, entry: DecisionEntry { title, status } })
}

/// The number of a record with its title and status. A record without a line `Status:` is in force.
fn record<'a>(name: &str, text: &'a str) -> Option<(u32, DecisionEntry<'a>)> {
    let number = name.get(..4)?.parse().ok()?;
    let (said, title) = text.lines().next()?.strip_prefix("# ")?.split_once(". ")?;
    let status = text.lines().find_map(|line| line.strip_prefix("Status: "));
    let status = status.map_or(IN_FORCE, |status| status.trim_end_matches('.'));
    (said.parse() == Ok(number) && name.ends_with(".md")).then_some((number, DecisionEntry { title, status }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "| [0001](0001-a.md) | A | b | in force |\n| 0002 | – | never given | – |\n\
         | [0003](0003-c.md) | C | d | amended by [4](0004-e.md) |\n| [0004](0004-e.md) | E | f | in force |\n";
    const RECORDS: [(&str, &str); 3] = [
        ("0001-a.md", "# 1. A\n\n## Context\n"),
        ("0003-c.md", "# 3. C\n\nStatus: amended by [4](0004-e.md).\nMore of it.\n"),
        ("0004-e.md", "# 4. E\n"),
    ];

    fn messages(index: &str, records: &[(&str, &str)]) -> Vec<String> {
        let mut decisions = Decisions::default();
        decisions.see(INDEX, index);
        decisions.see("docs/style.md", "# 1. Elsewhere");
        for (name, text) in records {
            decisions.see(&format!("{FOLDER}{name}"), text);
        }
        let mut found = Vec::new();
        decisions.check(&mut found);
        found.into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn an_index_that_says_what_the_records_say_is_fine() {
        assert_eq!(messages(ROWS, &RECORDS), [""; 0]);
    }

    #[test]
    fn every_record_has_its_row_and_every_row_its_record() {
        let missing = messages(ROWS.lines().next().unwrap(), &RECORDS[..2]);
        assert_eq!(
            missing,
            ["the row should be `| [0003](0003-c.md) | C | ... | amended by [4](0004-e.md) |`"]
        );
        assert_eq!(messages(ROWS, &RECORDS[..2]), ["there is no 0004-e.md"]);
        assert_eq!(messages("", &[]), [""; 0]);
    }

    #[test]
    fn titles_and_statuses_agree() {
        let other = |name, text| {
            let mut records = RECORDS;
            records[0] = (name, text);
            messages(ROWS, &records)
        };
        let wanted = "the row should be `| [0001](0001-a.md) | Another | ... | in force |`";
        assert_eq!(other("0001-a.md", "# 1. Another\n"), [wanted]);
        let wanted = "the row should be `| [0001](0001-a.md) | A | ... | superseded by [4](0004-e.md) |`";
        assert_eq!(other("0001-a.md", "# 1. A\n\nStatus: superseded by [4](0004-e.md).\n"), [wanted]);
        let wanted = "a record is NNNN-title.md and begins with `# N. Title`";
        assert_eq!(other("0001-a.md", "# 2. A\n"), [wanted]);
    }

    #[test]
    fn numbers_follow_each_other() {
        let rows = ROWS.replace("| 0002 | – | never given | – |\n", "");
        assert_eq!(messages(&rows, &RECORDS), ["row 3 stands where 0002 belongs"]);
    }
}
