//! Hot keys against twins that make every copy a load of its own.

use proptest::prelude::*;
use trace::Distribution;

use super::*;

fn setting(servers: u32, keys: u64, hot: u64, groups: u32) -> HotKeysSetting {
    HotKeysSetting {
        servers,
        popularity: Popularity::new(Distribution::Zipf(1.0), keys).unwrap(),
        hot,
        groups,
        threshold: 0.8,
        placing: HotKeysPlacing::Uniform,
        runs: 5,
        seed: 1,
    }
}

/// Loads by definition: the members of each group listed, each hot key split over them.
fn twin(setting: &HotKeysSetting, seed: u64) -> Vec<f64> {
    let mut keys = KeyServers::new(setting, seed).unwrap();
    let mut loads = vec![0.0; setting.servers as usize];
    let mut hot = vec![0.0; setting.groups as usize];
    let members: Vec<Vec<usize>> = (0..setting.groups as usize)
        .map(|group| {
            let own = |server: &usize| server * setting.groups as usize / setting.servers as usize == group;
            (0..setting.servers as usize).filter(own).collect()
        })
        .collect();
    for rank in 0..setting.popularity.objects() {
        let (server, rate) = (keys.next_server(), setting.popularity.of(rank));
        if rank >= setting.hot {
            loads[server] += rate;
            continue;
        }
        let least = hot.iter().copied().fold(f64::INFINITY, f64::min);
        let group = hot.iter().position(|load| *load == least).unwrap();
        for server in &members[group] {
            loads[*server] += rate / members[group].len() as f64;
        }
        hot[group] += rate / members[group].len() as f64;
    }
    loads
}

fn largest(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn copies_load_servers_as_the_twin_does(
        servers in 1u32..40, keys in 1u64..300, hot in 0u64..40, parts in 1u32..40, seed: u64,
    ) {
        let setting = setting(servers, keys, hot, parts.min(servers));
        let (run, due) = (setting.run(seed).unwrap(), twin(&setting, seed));
        let factor = 1.0 / f64::from(servers) / largest(&due);
        prop_assert!((run.with_copies.factor() / factor - 1.0).abs() < 1e-9);
        // Jain's index is 1 / (1 + cv^2).
        let cv = run.with_copies.cv();
        prop_assert!((run.with_copies.jain() * (1.0 + cv * cv) - 1.0).abs() < 1e-9);
    }

    /// Greedily replicating the busiest is best: no other way to give away as many replicas is more even.
    #[test]
    fn replicas_of_the_busiest_are_never_more_than_needed(seed: u64, wanted in 0.5..0.95f64) {
        let plain = setting(4, 50, 0, 1).run(seed).unwrap().plain;
        let due = (0..).find(|&added| {
            splits(added, 4).into_iter().any(|split| {
                let load = |(load, more): (f64, u64)| load / (1 + more) as f64;
                let each: Vec<f64> = plain.each().zip(split).map(load).collect();
                1.0 / (4 + added) as f64 / largest(&each) >= wanted - 1e-12
            })
        });
        prop_assert_eq!(plain.servers_to_add_for_factor(wanted), due);
        let until = plain.servers_to_add(0.25 / wanted).unwrap();
        let quarter = |(load, more): (f64, u64)| load / (1 + more) as f64 <= 0.25 / wanted * (1.0 + 1e-12);
        let enough = |added| splits(added, 4).into_iter().any(|split| plain.each().zip(split).all(quarter));
        prop_assert!(enough(until) && (until == 0 || !enough(until - 1)));
    }
}

/// Every way to give `count` replicas to `servers` servers.
fn splits(count: u64, servers: usize) -> Vec<Vec<u64>> {
    if servers == 1 {
        return vec![vec![count]];
    }
    let with = |first: u64| {
        splits(count - first, servers - 1).into_iter().map(move |rest| [vec![first], rest].concat())
    };
    (0..=count).flat_map(with).collect()
}

#[test]
fn all_keys_copied_to_all_servers_are_even() {
    let outcome = setting(7, 30, 30, 1).evaluate().unwrap();
    assert!((outcome.with_copies.imbalance_factor - 1.0).abs() < 1e-12);
    assert!((outcome.hot_share - 1.0).abs() < 1e-12 && outcome.with_copies.cv < 1e-12);
    assert_eq!(outcome.servers_to_add_for_factor, None, "replicas of servers never make unequal ones equal");
}

#[test]
fn no_hot_keys_change_nothing() {
    let outcome = setting(7, 300, 0, 2).evaluate().unwrap();
    assert_eq!((outcome.with_copies, outcome.moved), (outcome.plain, outcome.plain));
    assert_eq!((outcome.servers_to_add, outcome.servers_to_add_for_factor), (Some(0.0), Some(0.0)));
    assert_eq!(outcome.hot_share, 0.0);
    let one = setting(1, 300, 3, 1).evaluate().unwrap();
    assert!((one.plain.imbalance_factor - 1.0).abs() < 1e-12 && one.hot_min == Some(0));
}

#[test]
fn the_fewest_hot_keys_are_the_first_that_reach_the_threshold() {
    for (groups, threshold) in [(1, 0.5), (1, 0.8), (3, 0.8), (1, 0.97)] {
        let searched = HotKeysSetting { threshold, groups, ..setting(10, 1000, 0, groups) };
        let fewest = searched.hot_min().unwrap().unwrap();
        let reached = |hot| {
            let outcome = HotKeysSetting { hot, ..searched.clone() }.evaluate().unwrap();
            outcome.with_copies.imbalance_factor >= threshold
        };
        assert!(reached(fewest), "{groups} groups, {threshold}: {fewest}");
        assert!((0..fewest).all(|hot| !reached(hot)), "{groups} groups, {threshold}: {fewest}");
    }
    let never = HotKeysSetting { threshold: 1.0, ..setting(10, 15, 0, 9) };
    assert_eq!(never.hot_min().unwrap(), None);
}

#[test]
fn moved_keys_are_where_there_is_least_load() {
    let run = setting(3, 3, 3, 1).run(1).unwrap();
    let weights = [6.0, 3.0, 2.0].map(|weight| weight / 11.0);
    assert!((run.moved.factor() - 1.0 / 3.0 / weights[0]).abs() < 1e-12);
    assert!(run.moved.factor() >= run.plain.factor());
}

#[test]
fn ketama_is_the_pool_of_the_product_with_names_of_the_run() {
    let ketama = HotKeysSetting { placing: HotKeysPlacing::Ketama, ..setting(4, 20_000, 0, 1) };
    let (first, second) = (ketama.run(1).unwrap().plain, ketama.run(2).unwrap().plain);
    assert_ne!(first.factor(), second.factor());
    assert_eq!(first.factor(), ketama.run(1).unwrap().plain.factor());
    let mut keys = KeyServers::new(&ketama, 1).unwrap();
    let mut counts = [0; 4];
    (0..20_000).for_each(|_| counts[keys.next_server()] += 1);
    assert!(counts.iter().all(|count| (3_500..6_500).contains(count)), "{counts:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = setting(10, 100, 10, 1);
    for (setting, expected) in [
        (HotKeysSetting { servers: 0, ..good.clone() }, "0 servers"),
        (HotKeysSetting { groups: 0, ..good.clone() }, "0 groups of 10 servers"),
        (HotKeysSetting { groups: 11, ..good.clone() }, "11 groups of 10 servers"),
        (HotKeysSetting { threshold: 1.1, ..good.clone() }, "a threshold of 1.1"),
        (HotKeysSetting { threshold: f64::NAN, ..good.clone() }, "a threshold of NaN"),
        (HotKeysSetting { runs: 0, ..good }, "0 runs"),
    ] {
        let error = setting.evaluate().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
