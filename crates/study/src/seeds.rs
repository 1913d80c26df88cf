//! Independent runs with seeds of their own, on every core, with the same results on every machine. Not what a run does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

/// Runs `run` for `count` seeds from `first` on; the results stand in the order of the seeds.
pub fn each<T: Send>(first: u64, count: usize, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..cores.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = run(first.wrapping_add(index as u64));
                    results.lock().expect("no run panics while it holds the lock")[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().expect("no run panics while it holds the lock");
    results.into_iter().map(|result| result.expect("every seed has run")).collect()
}

/// The random numbers of one seed. `purpose` keeps those of different things apart.
pub fn random(seed: u64, purpose: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

    #[test]
    fn results_stand_in_the_order_of_seeds_whoever_finishes_first() {
        let results = each(7, 100, |seed| (seed, random(seed, 1).random::<u64>()));
        assert!(results.iter().zip(7..).all(|((seed, _), due)| *seed == due));
        assert_eq!(results, each(7, 100, |seed| (seed, random(seed, 1).random::<u64>())));
        assert!(each(0, 0, |seed| seed).is_empty());
    }

    #[test]
    fn purposes_and_seeds_draw_different_numbers_and_always_the_same() {
        let first = |seed, purpose| random(seed, purpose).random::<u64>();
        assert_eq!(first(1, 0), 14971601782005023387);
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 1), first(2, 1));
    }
}
