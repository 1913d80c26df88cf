//! The skip file: tests that cannot pass through a proxy, each with the reason. Not those that merely fail.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// One line: `WHERE | UNIT | TEST | REASON`; WHERE is `always` or `several`, more than one server behind the router. A
/// TEST that ends with `*` is all whose names begin so. A reason that several lines have stands once, in a line
/// `reason | NAME | TEXT` before them, and is `=NAME` in theirs.
#[derive(Clone, Debug)]
struct Skip {
    several: bool,
    unit: String,
    test: String,
    reason: String,
}

/// Why a test is left out.
pub(super) struct SkipReason<'a> {
    pub(super) text: &'a str,
    /// The test itself is named, not what its name begins with.
    pub(super) alone: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Skips {
    skips: Vec<Skip>,
}

impl Skips {
    pub(super) fn read(path: &Path) -> anyhow::Result<Skips> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Skips::parse(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Skips> {
        let mut reasons = BTreeMap::new();
        let mut skips = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines {
            let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
            if let ["reason", name, reason] = parts[..] {
                reasons.insert(name, reason);
                continue;
            }
            let skip =
                Skip::parse(&parts, &reasons).with_context(|| format!("line {}: {line}", number + 1))?;
            skips.push(skip);
        }
        Ok(Skips { skips })
    }

    /// Only tests, one by one: what a pattern names nobody has looked at.
    pub(super) fn exact(self) -> anyhow::Result<Skips> {
        let pattern = self.skips.iter().find(|skip| skip.test.ends_with('*') || skip.test.starts_with('/'));
        match pattern {
            Some(skip) => anyhow::bail!("{:?} of {} is a pattern: name each test", skip.test, skip.unit),
            None => Ok(self),
        }
    }

    /// Skips that hold with so many servers.
    pub(super) fn of(&self, servers: usize) -> Skips {
        let holds = |skip: &&Skip| !skip.several || servers > 1;
        Skips { skips: self.skips.iter().filter(holds).cloned().collect() }
    }

    /// What is left out of a unit.
    pub(super) fn names(&self, unit: &str) -> Vec<&str> {
        let own = self.skips.iter().filter(|skip| skip.unit == unit);
        own.map(|skip| skip.test.as_str()).collect()
    }

    /// Why a test is left out.
    pub(super) fn reason(&self, unit: &str, test: &str) -> Option<SkipReason<'_>> {
        let mut own = self.skips.iter().filter(|skip| skip.unit == unit);
        let found = own.find(|skip| matches(&skip.test, test));
        found.map(|skip| SkipReason { text: &skip.reason, alone: skip.test == test })
    }
}

/// Whether an entry speaks of a test.
pub(super) fn matches(entry: &str, test: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(start) => test.starts_with(start),
        None => entry == test,
    }
}

impl Skip {
    fn parse(parts: &[&str], reasons: &BTreeMap<&str, &str>) -> anyhow::Result<Skip> {
        let [place, unit, test, reason] = parts[..] else {
            anyhow::bail!("not WHERE | UNIT | TEST | REASON");
        };
        let reason = match reason.strip_prefix('=') {
            Some(name) => reasons.get(name).with_context(|| format!("no reason {name:?} stands before"))?,
            None => reason,
        };
        anyhow::ensure!(!reason.is_empty(), "no reason");
        let several = match place {
            "always" => false,
            "several" => true,
            other => anyhow::bail!("{other:?} is neither always nor several"),
        };
        Ok(Skip { several, unit: unit.to_owned(), test: test.to_owned(), reason: reason.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::Skips;

    #[test]
    fn a_reason_stands_once() {
        let text =
            "# remark\n\nreason | far | they are far apart\nalways | u | a | =far\nseveral | u | b | =far";
        let skips = Skips::parse(text).unwrap();
        assert_eq!(skips.reason("u", "b").unwrap().text, "they are far apart");
        assert_eq!(skips.of(1).names("u"), ["a"]);
        assert_eq!(skips.of(2).names("u"), ["a", "b"]);
        assert!(skips.exact().is_ok());
    }

    #[test]
    fn lines_that_explain_nothing_are_errors() {
        for text in ["always | u | a | =far", "always | u | a | ", "always | u | a", "never | u | a | r"] {
            assert!(Skips::parse(text).is_err(), "{text}");
        }
        for text in ["always | u | a* | r", "always | u | /a | r"] {
            assert!(Skips::parse(text).unwrap().exact().is_err(), "{text}");
        }
    }
}
