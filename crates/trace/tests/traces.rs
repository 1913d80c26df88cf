//! The real traces at hand, read to the end and held against what is known of them. Skipped where they are absent.

use std::path::PathBuf;

use trace::{Access, Compression, NextAccess, TraceFormat, TraceStatistics, TraceSummary};

/// A file of the folder that `DISTCACHE_TRACES` names, or of the one beside the project.
#[expect(clippy::print_stderr, reason = "who runs the tests must see what was not tested")]
fn trace(name: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("DISTCACHE_TRACES").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there; DISTCACHE_TRACES names the folder", path.display());
    }
    path.exists().then_some(path)
}

fn read(path: &PathBuf) -> Vec<Access> {
    trace::open(path, None).unwrap().collect::<Result<_, _>>().unwrap()
}

fn summary(path: &PathBuf, format: TraceFormat, compression: Compression) -> TraceSummary {
    let reader = trace::open(path, None).unwrap();
    assert_eq!((reader.format(), reader.compression()), (format, compression));
    let mut statistics = TraceStatistics::default();
    for access in reader {
        statistics.record(&access.unwrap());
    }
    statistics.summary()
}

const CLOUD_PHYSICS: &str = "libcachesim/cloudPhysicsIO.oracleGeneral.bin";

#[test]
fn cloud_physics_has_the_numbers_of_its_reference() {
    let Some(path) = trace(CLOUD_PHYSICS) else { return };
    let found = summary(&path, TraceFormat::OracleGeneral, Compression::None);
    assert_eq!((found.requests, found.objects), (113_872, 48_974));
    assert_eq!((found.bytes, found.working_set_bytes), (4_368_040_448, 2_029_769_728));
}

/// oracleGeneral gives every object the size of its first request; the recording itself has them vary.
#[test]
fn both_forms_of_cloud_physics_are_the_same_requests() {
    let (Some(oracle), Some(vscsi)) = (trace(CLOUD_PHYSICS), trace("libcachesim/cloudPhysicsIO.vscsi"))
    else {
        return;
    };
    let found = summary(&vscsi, TraceFormat::Vscsi, Compression::None);
    assert_eq!((found.requests, found.objects), (113_872, 48_974));
    assert_eq!((found.bytes, found.working_set_bytes), (4_205_978_112, 2_029_769_728));
    assert_eq!(found.writes, 66_898, "command 42 is WRITE(10)");
    let mut first_sizes = std::collections::HashMap::new();
    for (oracle, vscsi) in read(&oracle).into_iter().zip(read(&vscsi)) {
        assert_eq!((oracle.object, oracle.time), (vscsi.object, vscsi.time));
        assert_eq!(oracle.bytes, *first_sizes.entry(vscsi.object).or_insert(vscsi.bytes));
    }
}

/// What is written is the file that was read, byte for byte: the next accesses are found again.
#[test]
fn cloud_physics_survives_being_written() {
    let Some(path) = trace(CLOUD_PHYSICS) else { return };
    let copy = std::env::temp_dir().join(format!("distcache-cloud-physics-{}.bin", std::process::id()));
    let mut writer = trace::create(&copy, TraceFormat::OracleGeneral, None).unwrap();
    for access in read(&path) {
        writer.write(&Access { next: NextAccess::Unknown, ..access }).unwrap();
    }
    assert_eq!(writer.finish(&mut |_| {}).unwrap(), 113_872);
    let written = std::fs::read(&copy).unwrap();
    std::fs::remove_file(copy).unwrap();
    assert!(written == std::fs::read(&path).unwrap());
}

#[test]
fn caffeines_traces_have_the_numbers_of_their_reference() {
    for (name, requests, objects) in
        [("caffeine/orm-busy.trace.xz", 5_000_000, 76_349), ("caffeine/web12.trace.xz", 95_607, 13_756)]
    {
        let Some(path) = trace(name) else { return };
        let found = summary(&path, TraceFormat::KeysBe32, Compression::Xz);
        assert_eq!((found.requests, found.objects), (requests, objects), "{name}");
        assert_eq!((found.bytes, found.working_set_bytes), (requests, objects), "unit sizes");
    }
}

#[test]
fn the_synthetic_photos_have_the_numbers_of_their_reference() {
    let Some(path) = trace("synthetic/synth-photo-500k.oracleGeneral.bin.zst") else { return };
    let found = summary(&path, TraceFormat::OracleGeneral, Compression::Zstd);
    assert_eq!((found.requests, found.objects, found.working_set_bytes), (500_000, 75_425, 7_393_143_169));
    assert_eq!(found.duration_s, Some(499));
    let alpha = found.zipf_alpha.unwrap();
    assert!((alpha - 0.9).abs() < 0.03, "it was drawn at 0.9: {alpha}");
}

/// Every configuration at hand can be drawn from, and comes out with about its own share of single requests.
#[test]
fn production_distributions_of_cachebench_can_be_drawn_from() {
    for name in ["cdn", "kvcache_reg", "graph_cache_follower_assocs"] {
        let folder = format!("cachelib/hit_ratio/{name}");
        let (Some(pop), Some(sizes)) =
            (trace(&format!("{folder}/pop.json")), trace(&format!("{folder}/sizes.json")))
        else {
            return;
        };
        let synthetic = trace::Synthetic {
            popularity: trace::TracePopularity::parse(&format!("cachebench:{}", pop.display()), 0).unwrap(),
            sizes: format!("cachebench:{}", sizes.display()).parse().unwrap(),
            write_ratio: 0.0,
            rate: 1000.0,
            churn: None,
            flash_crowds: Vec::new(),
            seed: 1,
        };
        let mut statistics = TraceStatistics::default();
        synthetic.accesses().unwrap().take(100_000).for_each(|access| statistics.record(&access));
        let summary = statistics.summary();
        let share = |part: u64| part as f64 / summary.requests as f64;
        assert!(share(summary.hottest_hundredth_requests) > 0.02, "{name}: {summary:?}");
        assert!(
            summary.objects > 10_000 && summary.working_set_bytes > 30 * summary.objects,
            "{name}: {summary:?}"
        );
    }
}
