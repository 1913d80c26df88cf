//! One thread per core runs seeds; their reports come out in the order of the seeds. Prints nothing but panics.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use super::Finished;
use super::arguments::SimPlan;

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A machine that panics ends the process, but not before its seed is known.
pub(crate) fn announce_panics(plan: &SimPlan) {
    let (plan, before) = (plan.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        if let Some(seed) = SEED.get() {
            crate::terminal::say(&format!("a machine panicked; to see it again: {}", plan.again(seed)));
            std::process::exit(1);
        }
    }));
}

pub(crate) fn run(plan: &SimPlan, mut each: impl FnMut(Finished)) {
    let next = AtomicU64::new(plan.seeds.start);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.min((plan.seeds.end - plan.seeds.start) as usize) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= plan.seeds.end || sender.send(run_seed(plan, seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let (mut due, mut early) = (plan.seeds.start, BTreeMap::new());
        for finished in receiver {
            early.insert(finished.report.seed, finished);
            while let Some(finished) = early.remove(&due) {
                each(finished);
                due += 1;
            }
        }
    });
}

fn run_seed(plan: &SimPlan, seed: u64) -> Finished {
    SEED.set(Some(seed));
    let started = Instant::now();
    let (report, _) = ::sim::run(seed, &plan.settings);
    let wall = started.elapsed();
    let again = plan.repeat.is_some_and(|every| seed.is_multiple_of(every));
    let differs = again && ::sim::run(seed, &plan.settings).0 != report;
    SEED.set(None);
    Finished { report, wall, differs }
}
