//! The skip file: tests that cannot pass through a proxy, each with the reason. Not those that merely fail.

use std::path::Path;

use anyhow::Context;

/// One line: `WHERE | UNIT | TEST | REASON`; WHERE is `always` or `several`, more than one server behind the router.
#[derive(Clone, Debug)]
struct Skip {
    several: bool,
    unit: String,
    test: String,
    reason: String,
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
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let skips = lines
            .map(|(number, line)| {
                Skip::parse(line).with_context(|| format!("{}:{}: {line}", path.display(), number + 1))
            })
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
    pub(super) fn reason(&self, unit: &str, test: &str) -> Option<&str> {
        let found = self.skips.iter().find(|skip| skip.unit == unit && skip.test == test);
        found.map(|skip| skip.reason.as_str())
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
