//! The skip file: tests that cannot pass through a proxy, each with the reason. Not those that merely fail.

use std::path::Path;

use anyhow::Context;

/// One line: `WHERE | UNIT | TEST | REASON`; WHERE is `always` or `several`, more than one server behind the router. A
/// TEST that ends with `*` is all whose names begin so.
#[derive(Clone, Debug)]
struct Skip {
    several: bool,
    unit: String,
    test: String,
    reason: String,
}

/// Why a test is left out.
pub(super) struct Reason<'a> {
    pub(super) text: &'a str,
    /// The test itself is named, not what its name begins with.
    pub(super) alone: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Skips {
    skips: Vec<Skip>,
    /// They are run all the same, to find those that need not be skipped any more.
    run: bool,
}

impl Skips {
    pub(super) fn read(path: &Path) -> anyhow::Result<Skips> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Skips::parse(&text).with_context(|| path.display().to_string())
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Skips> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let skips = lines
            .map(|(number, line)| Skip::parse(line).with_context(|| format!("line {}: {line}", number + 1)))
            .collect::<anyhow::Result<Vec<Skip>>>()?;
        Ok(Skips { skips, run: false })
    }

    /// Those that hold with so many servers.
    pub(super) fn of(&self, servers: usize, run: bool) -> Skips {
        let holds = |skip: &&Skip| !skip.several || servers > 1;
        Skips { skips: self.skips.iter().filter(holds).cloned().collect(), run }
    }

    /// For the suite's command line.
    pub(super) fn names(&self, unit: &str) -> Vec<String> {
        let own = self.skips.iter().filter(|skip| skip.unit == unit && !self.run);
        own.map(|skip| skip.test.clone()).collect()
    }

    /// Why a test is left out.
    pub(super) fn reason(&self, unit: &str, test: &str) -> Option<Reason<'_>> {
        let names = |skip: &Skip| match skip.test.strip_suffix('*') {
            Some(start) => test.starts_with(start),
            None => skip.test == test,
        };
        let found = self.skips.iter().find(|skip| skip.unit == unit && names(skip));
        found.map(|skip| Reason { text: &skip.reason, alone: skip.test == test })
    }
}

impl Skip {
    fn parse(line: &str) -> anyhow::Result<Skip> {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [place, unit, test, reason] = parts[..] else {
            anyhow::bail!("not WHERE | UNIT | TEST | REASON");
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
