//! `--check`: what a cache that was opened again still holds of a trace, every value compared. It inserts nothing.

use std::time::Duration;

use anyhow::ensure;
use policies::Objects;

use super::ReplayArguments;
use super::cache::ReplayCache;
use super::values::Values;
use crate::terminal::print;

#[derive(serde::Serialize)]
struct ReopenCheck {
    open_s: f64,
    /// Different objects of the trace that were found, of so many.
    found: u64,
    objects: u64,
    found_bytes: u64,
    /// What the cache says that it holds.
    durable_objects: u64,
    durable_bytes: u64,
}

pub(super) fn run(
    arguments: &ReplayArguments,
    cache: &dyn ReplayCache,
    values: &Values,
    opening: Duration,
) -> anyhow::Result<()> {
    let durable = cache.durable();
    let mut check = ReopenCheck {
        open_s: opening.as_secs_f64(),
        found: 0,
        objects: 0,
        found_bytes: 0,
        durable_objects: durable.objects,
        durable_bytes: durable.bytes,
    };
    let mut objects = Objects::default();
    for access in arguments.accesses()? {
        let object = access?.object;
        if u64::from(objects.number(object)?) < check.objects {
            continue;
        }
        check.objects += 1;
        if let Some(value) = cache.get(&object.to_le_bytes())? {
            ensure!(
                values.is(object, &value),
                "object {object}: the cache returned what was never put into it"
            );
            check.found += 1;
            check.found_bytes += value.len() as u64;
        }
    }
    if arguments.json {
        print(&serde_json::to_string(&check)?);
    } else {
        let ReopenCheck { open_s, found, objects, found_bytes, .. } = check;
        print(&format!(
            "opened in {open_s:.3} s; {found} of {objects} objects found, all intact, {found_bytes} bytes"
        ));
    }
    Ok(())
}
