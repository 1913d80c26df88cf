//! Results as text: a table for people, CSV for programs. Not their figure.

use std::collections::BTreeMap;

use policies::PolicySpec;
use study::what_if::{GridOutcome, Size};

use super::{PoliciesArguments, PolicyRow, row};
use crate::terminal::print;

pub(super) fn print_csv(outcomes: &[GridOutcome]) {
    print("policy,size,requests,objects,miss_ratio,byte_miss_ratio,requests_per_s");
    for outcome in outcomes {
        let PolicyRow { policy, size, requests, objects, miss_ratio, byte_miss_ratio, requests_per_s } =
            row(outcome);
        print(&format!(
            "{policy},{size},{requests},{objects},{miss_ratio},{byte_miss_ratio},{requests_per_s}"
        ));
    }
}

/// A part for each size. The least of each ratio is marked, bounds left aside.
pub(super) fn print_table(outcomes: &[GridOutcome], arguments: &PoliciesArguments) {
    // The sizes of each policy are together, in the order in which they were given.
    let sizes: BTreeMap<u64, Size> =
        outcomes.iter().map(|outcome| outcome.size).zip(arguments.size.iter().copied()).collect();
    let unit = if arguments.ignore_size { "objects" } else { "bytes" };
    if let Some(first) = outcomes.first() {
        print(&format!(
            "{} requests counted, {} objects; * least of its size, but for clairvoyant and infinite",
            first.requests, first.objects
        ));
    }
    for (size, asked) in sizes {
        let here: Vec<&GridOutcome> = outcomes.iter().filter(|outcome| outcome.size == size).collect();
        let least = |ratio: fn(&GridOutcome) -> f64| {
            let real = here.iter().filter(|outcome| !is_bound(outcome.policy));
            real.map(|outcome| ratio(outcome)).min_by(f64::total_cmp)
        };
        let (objects, bytes) = (least(GridOutcome::miss_ratio), least(GridOutcome::byte_miss_ratio));
        let share = if matches!(asked, Size::WorkingSet(_)) { format!(" ({asked})") } else { String::new() };
        print(&format!("\n{size} {unit}{share}"));
        print("policy        miss ratio  byte miss ratio  million requests/s");
        for outcome in here {
            let cell = |ratio: f64, least: Option<f64>| {
                let mark = if least == Some(ratio) && !is_bound(outcome.policy) { '*' } else { ' ' };
                format!("{ratio:.4}{mark}")
            };
            print(&format!(
                "{:12} {:>11} {:>16} {:>19.1}",
                outcome.policy.to_string(),
                cell(outcome.miss_ratio(), objects),
                cell(outcome.byte_miss_ratio(), bytes),
                outcome.requests_per_s / 1e6
            ));
        }
    }
}

/// Whether it is no policy that a cache could have.
fn is_bound(policy: PolicySpec) -> bool {
    matches!(policy, PolicySpec::Clairvoyant | PolicySpec::Infinite)
}
