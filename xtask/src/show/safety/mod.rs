//! `show safety`: what a cluster does whose lives or members have different configurations, whose storage loses data, and to
//! which strangers come. Not what it does when a member dies.

mod foreign;
mod leases;
mod lists;
mod loss;
mod marks;
mod memory;
mod one_key;
mod silence;
mod web;

use anyhow::bail;

use super::Stage;
use super::finding::Finding;

/// One world that a cluster must be safe in.
struct SafetyCase {
    name: &'static str,
    show: fn(&Stage<'_>, &mut Finding) -> anyhow::Result<()>,
}

const CASES: [SafetyCase; 8] = [
    SafetyCase { name: "leases", show: leases::show },
    SafetyCase { name: "lists", show: lists::show },
    SafetyCase { name: "marks", show: marks::show },
    SafetyCase { name: "foreign", show: foreign::show },
    SafetyCase { name: "loss", show: loss::show },
    SafetyCase { name: "web", show: web::show },
    SafetyCase { name: "silence", show: silence::show },
    SafetyCase { name: "memory", show: memory::show },
];

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let wanted = |case: &&SafetyCase| stage.only.is_none_or(|name| name == case.name);
    let names = || CASES.map(|case| case.name).join(", ");
    if !CASES.iter().any(|case| wanted(&case)) {
        bail!("no case is named {:?}; there are {}", stage.only.unwrap_or_default(), names());
    }
    let mut finding = Finding::default();
    for case in CASES.iter().filter(wanted) {
        eprintln!("{}", case.name);
        (case.show)(stage, &mut finding)?;
    }
    Ok(finding)
}
