//! Synthetic traces: pinned, distributed as described, changed when they should. Not the samplers of Zipf's law.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::*;
use crate::generate::cachebench::{Buckets, SizeTable};

fn synthetic(distribution: &str) -> Synthetic {
    Synthetic {
        popularity: TracePopularity::parse(distribution, 1000).unwrap(),
        sizes: "uniform:100:200".parse().unwrap(),
        write_ratio: 0.25,
        rate: 500.0,
        churn: None,
        flash_crowds: Vec::new(),
        seed: 7,
    }
}

fn objects(synthetic: &Synthetic, count: usize) -> Vec<u64> {
    synthetic.accesses().unwrap().take(count).map(|access| access.object).collect()
}

/// These numbers may change only with a note in the changelog: results of different versions compare no more.
#[test]
fn a_synthetic_trace_is_pinned() {
    let first: Vec<_> = synthetic("zipf:0.99").accesses().unwrap().take(4).collect();
    let told: Vec<_> =
        first.iter().map(|access| (access.object, access.bytes, access.operation.name())).collect();
    assert_eq!(told, PINNED);
}

const PINNED: [(u64, u64, &str); 4] =
    [(7, 121, "read"), (778, 180, "read"), (987, 153, "read"), (475, 182, "read")];

#[test]
fn time_sizes_and_writes_follow_the_description() {
    let accesses: Vec<Access> = synthetic("zipf:0.9").accesses().unwrap().take(100_000).collect();
    assert!(accesses.iter().zip(0..).all(|(access, number)| access.time == number / 500));
    let mut sizes = BTreeMap::new();
    for access in &accesses {
        assert_eq!(*sizes.entry(access.object).or_insert(access.bytes), access.bytes, "one size per object");
    }
    assert!(sizes.values().all(|bytes| (100..=200).contains(bytes)));
    let mean = sizes.values().sum::<u64>() as f64 / sizes.len() as f64;
    assert!((mean - 150.0).abs() < 5.0, "{mean}");
    let writes = accesses.iter().filter(|access| access.operation == AccessOperation::Write).count();
    assert!((writes as f64 - 25_000.0).abs() < 700.0, "{writes}");
    let alone = Synthetic { write_ratio: 0.0, rate: 1.0, ..synthetic("zipf:0.9") };
    assert_eq!(
        objects(&alone, 1000),
        objects(&synthetic("zipf:0.9"), 1000),
        "what is asked for stays the same"
    );
}

#[test]
fn distributions_of_sizes_have_their_shapes() {
    let quantile = |text: &str, share: f64| {
        let sizes: SizeDistribution = text.parse().unwrap();
        let mut drawn: Vec<u64> = (0..20_000).map(|object| sizes.of(object, 3)).collect();
        drawn.sort_unstable();
        drawn[(share * drawn.len() as f64) as usize] as f64
    };
    let close =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 0.05, "{found}, not {expected}");
    close(quantile("4096", 0.3), 4096.0);
    close(quantile("lognormal:8000:1", 0.5), 8000.0);
    close(quantile("lognormal:8000:1", 0.841_345), 8000.0 * 1f64.exp());
    close(quantile("pareto:1000:2", 0.75), 2000.0);
    close(quantile("uniform:1000:3000", 0.25), 1500.0);
    assert_eq!("pareto:4000000000:0.1".parse::<SizeDistribution>().unwrap().of(1, 1), u64::from(u32::MAX));
    for wrong in [
        "",
        "0",
        "-1",
        "uniform:2:1",
        "uniform:5",
        "lognormal:0:1",
        "pareto:1:NaN",
        "normal:1:2",
        "5000000000",
    ] {
        let error = wrong.parse::<SizeDistribution>().unwrap_err().to_string();
        assert!(error.contains("are no sizes; write bytes"), "{wrong}: {error}");
    }
}

/// Over ten periods of a fifth each, every object is replaced exactly twice, and a period renews a fifth of them.
#[test]
fn churn_renews_its_share_of_the_objects() {
    let churn: Churn = "0.2/20000".parse().unwrap();
    let changing = Synthetic { churn: Some(churn), ..synthetic("uniform") };
    let ids = objects(&changing, 200_000);
    let periods: Vec<BTreeSet<u64>> = ids.chunks(20_000).map(|ids| ids.iter().copied().collect()).collect();
    for pair in periods.windows(2) {
        assert_eq!(pair[0].len(), 1000, "20 requests for each");
        let renewed = pair[1].difference(&pair[0]).count();
        assert!(renewed.abs_diff(200) < 50, "{renewed}");
    }
    assert!((0..1000).all(|key| churn.generation(key, 200_000, 7) == 2));
    assert_eq!(ids[..20_000], objects(&synthetic("uniform"), 20_000), "the first period is as without");
    let wild = Synthetic {
        popularity: TracePopularity::parse("uniform", crate::KEYS_MAX).unwrap(),
        churn: Some("1/1".parse().unwrap()),
        ..synthetic("uniform")
    };
    let late = SyntheticAccesses { number: u64::MAX - 10, ..wild.accesses().unwrap() };
    assert!(late.take(5).all(|access| access.object < CROWD_IDS));
    for wrong in ["", "0.1", "0/5", "1.1/5", "0.1/0", "x/5", "0.1/x"] {
        assert!(wrong.parse::<Churn>().unwrap_err().to_string().contains("is not a churn"), "{wrong}");
    }
}

#[test]
fn a_flash_crowd_takes_its_share_while_it_is_there() {
    let crowds = ["1000:50000:0.3:5", "40000:20000:0.2"].map(|text| text.parse().unwrap());
    let crowded = Synthetic { flash_crowds: crowds.to_vec(), ..synthetic("zipf:0.9") };
    let ids = objects(&crowded, 70_000);
    let calm = objects(&synthetic("zipf:0.9"), 70_000);
    let count = |range: std::ops::Range<usize>, first: u64, objects: u64| {
        ids[range].iter().filter(|id| (first..first + objects).contains(id)).count()
    };
    assert_eq!((&ids[..1000], &ids[60_000..]), (&calm[..1000], &calm[60_000..]));
    for object in 0..5 {
        let asked = count(1000..51_000, CROWD_IDS + object, 1);
        assert!(asked.abs_diff(3000) < 300, "{asked} for object {object}");
    }
    let second = count(40_000..60_000, CROWD_IDS + CROWD_IDS_EACH, 1);
    assert!(second.abs_diff(4000) < 300, "{second}");
    assert!(ids.iter().zip(&calm).all(|(id, calm)| id == calm || *id >= CROWD_IDS), "the rest is as without");
    for wrong in ["", "1:2", "1:0:0.5", "1:2:0", "1:2:1.5", "1:2:0.5:0", "1:2:0.5:1:1", "x:2:0.5"] {
        assert!(
            wrong.parse::<FlashCrowd>().unwrap_err().to_string().contains("is not a flash crowd"),
            "{wrong}"
        );
    }
}

/// A file with this text, removed by whoever asked for it.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("distcache-cachebench-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn buckets_of_cachebench_share_the_requests_by_their_weights() {
    let pop = r#"{"oneHits": 0.1, "popularityBuckets": [1, 0, 9, 90], "popularityWeights": [50, 0, 30, 20]}"#;
    let path = file("pop.json", pop);
    let popularity = TracePopularity::parse(&format!("cachebench:{}", path.display()), 0).unwrap();
    let ids = objects(&Synthetic { popularity, ..synthetic("uniform") }, 100_000);
    std::fs::remove_file(path).unwrap();
    let mut counts = BTreeMap::new();
    ids.iter().for_each(|id| *counts.entry(*id).or_insert(0u64) += 1);
    let singles: Vec<_> = counts.iter().filter(|(id, _)| **id >= SINGLE_IDS).collect();
    assert!(singles.len().abs_diff(10_000) < 400 && singles.iter().all(|(_, count)| **count == 1));
    let mut usual: Vec<u64> = counts.range(..SINGLE_IDS).map(|(_, count)| *count).collect();
    usual.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(usual.len(), 100);
    assert!(usual[0].abs_diff(45_000) < 800, "{}", usual[0]);
    assert!(usual[1..10].iter().all(|count| count.abs_diff(3000) < 250), "{usual:?}");
    assert!(usual[10..].iter().all(|count| count.abs_diff(200) < 80), "{usual:?}");
}

#[test]
fn sizes_of_cachebench_are_values_or_ranges() {
    let drawn = |text: &str| {
        let path = file("sizes.json", text);
        let sizes: SizeDistribution = format!("cachebench:{}", path.display()).parse().unwrap();
        std::fs::remove_file(path).unwrap();
        (0..10_000).map(|object| sizes.of(object, 1)).collect::<Vec<u64>>()
    };
    let values = drawn(r#"{"valSizeRange": [31, 63, 95], "valSizeRangeProbability": [1, 0, 3]}"#);
    let small = values.iter().filter(|bytes| **bytes == 31).count();
    assert!(small.abs_diff(2500) < 200 && values.iter().all(|bytes| [31, 95].contains(bytes)), "{small}");
    let ranges = drawn(r#"{"valSizeRange": [100, 200.0, 1000], "valSizeRangeProbability": [0.5, 0.5]}"#);
    let small = ranges.iter().filter(|bytes| **bytes < 200).count();
    assert!(small.abs_diff(5000) < 250 && ranges.iter().all(|bytes| (100..1000).contains(bytes)), "{small}");
}

#[test]
fn wrong_files_of_cachebench_are_refused_by_name() {
    let pop = |text: &str| Buckets::read(&file("wrong.json", text)).unwrap_err().to_string();
    let sizes = |text: &str| SizeTable::read(&file("wrong.json", text)).unwrap_err().to_string();
    for (error, part) in [
        (pop("{}"), "missing field `popularityBuckets`"),
        (pop("["), "EOF while parsing"),
        (pop(r#"{"popularityBuckets": [1], "popularityWeights": []}"#), "of different lengths"),
        (pop(r#"{"popularityBuckets": [], "popularityWeights": []}"#), "with one above it"),
        (pop(r#"{"popularityBuckets": [1], "popularityWeights": [0]}"#), "with one above it"),
        (pop(r#"{"popularityBuckets": [0], "popularityWeights": [1]}"#), "a weight but no keys"),
        (pop(r#"{"popularityBuckets": [1], "popularityWeights": [1], "oneHits": 1}"#), "oneHits is not"),
        (pop(r#"{"popularityBuckets": [18446744073709551615], "popularityWeights": [1]}"#), "too many keys"),
        (sizes(r#"{"valSizeRange": [1, 2, 3], "valSizeRangeProbability": [1]}"#), "nor one more"),
        (sizes(r#"{"valSizeRange": [2, 1], "valSizeRangeProbability": [1]}"#), "is not in order"),
        (sizes(r#"{"valSizeRange": [-1], "valSizeRangeProbability": [1]}"#), "not a size in bytes"),
        (sizes(r#"{"valSizeRange": [1], "valSizeRangeProbability": [-1]}"#), "or one below it"),
    ] {
        assert!(error.contains("wrong.json: ") && error.contains(part), "{error} lacks {part}");
    }
    let absent = TracePopularity::parse("cachebench:/no/such/pop.json", 1).unwrap_err().to_string();
    assert!(absent.starts_with("/no/such/pop.json: "), "{absent}");
}

#[test]
fn what_makes_no_trace_is_refused() {
    let refused = |synthetic: Synthetic| synthetic.accesses().unwrap_err().to_string();
    assert!(refused(Synthetic { write_ratio: 1.5, ..synthetic("uniform") }).contains("write ratio 1.5"));
    assert!(refused(Synthetic { rate: 0.0, ..synthetic("uniform") }).contains("a rate of 0 requests/s"));
    let none = TracePopularity::parse("uniform", 0).unwrap();
    assert!(refused(Synthetic { popularity: none, ..synthetic("uniform") }).contains("0 keys"));
    assert!(TracePopularity::parse("normal:1", 5).is_err());
}
