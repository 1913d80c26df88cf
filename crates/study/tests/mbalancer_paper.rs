//! MBalancer: the numbers of its text and the shapes of its figures. Where one does not come out, the test says so.

use study::Popularity;
use study::hot_keys::{HotKeysOutcome, HotKeysPlacing, HotKeysSetting};
use trace::Distribution;

/// Zipf's exponent 1 and 100 runs, as in section III.
fn setting(servers: u32, keys: u64, hot: u64, groups: u32) -> HotKeysSetting {
    let popularity = Popularity::new(Distribution::Zipf(1.0), keys).unwrap();
    HotKeysSetting {
        servers,
        popularity,
        hot,
        groups,
        threshold: 0.8,
        placing: HotKeysPlacing::Uniform,
        runs: 100,
        seed: 1,
    }
}

fn outcome(servers: u32, keys: u64, hot: u64) -> HotKeysOutcome {
    setting(servers, keys, hot, 1).evaluate().unwrap()
}

fn within(own: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&own), "{own} is not in {low}..{high}");
}

/// Section IV: H_10 / H_1000 = 2.93 / 7.49 = 0.39.
#[test]
fn ten_of_a_thousand_keys_get_39_percent_of_the_requests() {
    let harmonic = |n: u32| (1..=n).map(|k| 1.0 / f64::from(k)).sum::<f64>();
    let share = outcome(10, 1000, 10).hot_share;
    assert!((share / (harmonic(10) / harmonic(1000)) - 1.0).abs() < 1e-9);
    within(share, 0.385, 0.395);
}

/// Figures 6 and 7.
#[test]
fn ten_hot_keys_give_ten_servers_a_factor_of_about_0_8() {
    let result = outcome(10, 1000, 10);
    within(result.with_copies.imbalance_factor, 0.77, 0.85);
    within(result.hot_min.unwrap() as f64, 7.0, 12.0);
    let gains = [0, 1, 2, 5, 10, 20, 50].map(|hot| outcome(10, 1000, hot).with_copies.imbalance_factor);
    assert!(gains.is_sorted(), "{gains:?}");
    assert!(gains[6] - gains[4] < 0.3 * (gains[4] - gains[0]), "little is left behind ten: {gains:?}");
}

/// Figures 2(a) and 2(b), which the text has swapped: with 10 servers the factor grows with the number of keys from 40 % to 60 %, by
/// about as much for each power of ten; with more servers it falls.
#[test]
fn the_factor_grows_like_the_logarithm_of_keys_and_falls_with_servers() {
    let keys = [100, 1000, 10_000].map(|keys| outcome(10, keys, 10));
    let plain = [0, 1, 2].map(|index| keys[index].plain.imbalance_factor);
    within(plain[0], 0.33, 0.43);
    within(plain[1], 0.40, 0.60);
    within(plain[2], 0.40, 0.60);
    within((plain[2] - plain[1]) / (plain[1] - plain[0]), 0.5, 1.2);
    let copied = [0, 1, 2].map(|index| keys[index].with_copies.imbalance_factor);
    assert!(copied.is_sorted() && copied.iter().zip(plain).all(|(copied, plain)| *copied > plain + 0.3));
    let servers = [2, 5, 10, 20, 50].map(|servers| outcome(servers, 1000, 10));
    assert!(servers.is_sorted_by(|a, b| a.plain.imbalance_factor > b.plain.imbalance_factor));
    assert!(servers.is_sorted_by(|a, b| a.with_copies.imbalance_factor > b.with_copies.imbalance_factor));
}

/// Figures 3 and 4.
#[test]
fn jains_index_and_the_coefficient_of_variation_say_the_same() {
    let servers = [5, 10, 20, 50].map(|servers| outcome(servers, 1000, 10));
    assert!(servers.iter().all(|one| one.with_copies.jain > 0.9 && one.with_copies.cv < 0.3));
    assert!(servers.iter().all(|one| one.with_copies.cv < 0.3 * one.plain.cv));
    assert!(servers.is_sorted_by(|a, b| a.plain.jain > b.plain.jain && a.plain.cv < b.plain.cv));
    within(servers[3].plain.jain, 0.35, 0.48);
}

/// Figure 5 and the introduction's 2 to 10 servers: 1.6 to 8.5 for 5 to 50 servers, where the factor stands for the throughput. If
/// the servers that are added count in the average as well, as the caption can be read, it takes 11 to 14.
#[test]
fn servers_to_add_are_2_to_10_if_the_factor_is_a_throughput_and_more_if_they_lower_the_average() {
    let servers = [5, 10, 20, 30, 50].map(|servers| outcome(servers, 1000, 10));
    let added = servers.clone().map(|result| result.servers_to_add.unwrap());
    assert!(added.is_sorted(), "{added:?}");
    within(added[0], 1.3, 2.0);
    within(added[4], 7.5, 10.0);
    servers.iter().for_each(|result| within(result.servers_to_add_for_factor.unwrap(), 10.0, 15.0));
}

/// Figure 10.
#[test]
fn two_groups_are_as_good_as_one_and_more_cost_a_little() {
    let of =
        |servers, groups| setting(servers, 1000, 10, groups).evaluate().unwrap().with_copies.imbalance_factor;
    for servers in [10, 20, 30, 50] {
        let one = of(servers, 1);
        within(of(servers, 2) / one, 0.995, 1.005);
        within(of(servers, 5) / one, 0.9, 0.99);
    }
    assert!(of(50, 5) / of(50, 1) > of(10, 5) / of(10, 1), "the larger the groups, the less it costs");
}

/// Section III: moving without copies almost never helps. It helps few servers: by 23 % with 10. From 50 on it is 8 %
/// and less, where the hottest key alone is several times the average load, and copies give four times as much.
#[test]
fn moving_keys_helps_few_servers_a_little_and_many_hardly() {
    let gain = |result: &HotKeysOutcome| result.moved.imbalance_factor / result.plain.imbalance_factor - 1.0;
    within(gain(&outcome(10, 1000, 10)), 0.18, 0.28);
    for servers in [50, 100] {
        let result = outcome(servers, 1000, 10);
        within(gain(&result), 0.0, 0.1);
        let limit = 1.0 / f64::from(servers) / setting(servers, 1000, 10, 1).popularity.of(0);
        assert!(result.moved.imbalance_factor <= limit + 1e-12);
        assert!(result.with_copies.imbalance_factor > 3.5 * result.moved.imbalance_factor);
    }
}

/// memcached's own placement gives servers unequal shares of the keys; what hot keys do is nearly the same.
#[test]
fn ketama_changes_little() {
    for servers in [10, 30] {
        let uniform = outcome(servers, 1000, 10);
        let ketama = HotKeysSetting { placing: HotKeysPlacing::Ketama, ..setting(servers, 1000, 10, 1) }
            .evaluate()
            .unwrap();
        within(ketama.plain.imbalance_factor / uniform.plain.imbalance_factor, 0.95, 1.05);
        within(ketama.with_copies.imbalance_factor / uniform.with_copies.imbalance_factor, 0.93, 1.0);
    }
}
