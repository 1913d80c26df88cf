//! Runs of the simulator itself: they repeat, every kind of fault strikes, and seeds that found bugs stay right.

use sim::{FaultKind, FaultSet, SimReport, SimSettings};

fn run(seed: u64, seconds: u64, faults: FaultSet) -> SimReport {
    let (report, _) = sim::run(seed, &SimSettings { seconds, faults, with_text: false });
    let violations: String = report.violations.iter().map(|what| format!("\nseed {seed}: {what}")).collect();
    assert!(violations.is_empty(), "with faults {faults}:{violations}");
    report
}

#[test]
fn a_seed_repeats_itself() {
    for case in cases::seeds(4) {
        assert_eq!(run(case.seed, 10, FaultSet::ALL), run(case.seed, 10, FaultSet::ALL));
    }
}

#[test]
fn seeds_differ() {
    let hashes: Vec<u64> = (0..4).map(|seed| run(seed, 2, FaultSet::NONE).trace_hash).collect();
    assert!((1..4).all(|index| !hashes[..index].contains(&hashes[index])), "{hashes:?}");
}

#[test]
fn every_kind_of_fault_strikes() {
    for (seed, kind) in (0..).zip(FaultKind::ALL) {
        let report = run(seed, 12, FaultSet::NONE.with(*kind));
        assert_eq!(report.faults.keys().copied().collect::<Vec<_>>(), [kind.name()]);
    }
}

/// Runs in which nothing is cached, written late or lost would prove nothing.
#[test]
fn much_happens_in_a_few_runs() {
    let reports: Vec<SimReport> = (0..16).map(|seed| run(seed, 15, FaultSet::ALL)).collect();
    let hits: u64 = reports.iter().map(|report| report.hits).sum();
    let operations: u64 = reports.iter().map(|report| report.operations).sum();
    assert!(hits * 20 > operations, "{hits} hits in {operations} commands");
    for name in [
        "fills",
        "commits",
        "poisoned",
        "lease_lapses",
        "invalidations",
        "breakers",
        "unknown",
        "late_writes",
        "maps",
    ] {
        let count: u64 = reports.iter().map(|report| report.counts[name]).sum();
        assert!(count > 2, "{name}: {count}");
    }
}

/// Where servers allow no fence, what earlier shims and lost connections write late is followed like what others write.
#[test]
fn unfenced_writes_are_followed() {
    let kinds = [
        FaultKind::StorageLoss,
        FaultKind::StorageTimeout,
        FaultKind::SlowStorage,
        FaultKind::CrashShim,
        FaultKind::PauseShim,
        FaultKind::Replace,
        FaultKind::FeedLoss,
    ];
    let kinds = kinds.into_iter().fold(FaultSet::NONE, FaultSet::with);
    let reports = (500..564).map(|seed| run(seed, 15, kinds));
    let unfenced: Vec<SimReport> = reports.filter(|report| report.counts["unfenced"] > 0).collect();
    let (hits, late) = unfenced
        .iter()
        .fold((0, 0), |(hits, late), report| (hits + report.hits, late + report.counts["late_writes"]));
    assert!(unfenced.len() >= 8 && hits > 1000 && late > 10, "{}: {hits} hits, {late} late", unfenced.len());
}

/// Copies answer while storage is gone, and nobody reads there what is older than rules allow, or than what was written through
/// DistCache.
#[test]
fn stale_copies_answer_while_storage_is_gone() {
    let kinds =
        [FaultKind::StorageTimeout, FaultKind::StorageRestart, FaultKind::StorageLoss, FaultKind::FeedLoss];
    let kinds = kinds.into_iter().fold(FaultSet::NONE, FaultSet::with);
    let reports = (700..732).map(|seed| run(seed, 15, kinds));
    let hits: Vec<u64> = reports.map(|report| report.counts["stale_hits"]).collect();
    let clusters = hits.iter().filter(|hits| **hits > 0).count();
    assert!(clusters >= 4 && hits.iter().sum::<u64>() > 100, "{hits:?}");
}

/// Routers answer from copies of their own, whatever befalls them, and nobody reads what was replaced.
#[test]
fn near_copies_are_never_stale() {
    let reports: Vec<SimReport> = (200..232).map(|seed| run(seed, 15, FaultSet::ALL)).collect();
    let sum = |of: fn(&SimReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (near, all) = (sum(|report| report.near_hits), sum(|report| report.operations));
    assert!(near * 40 > all, "{near} near hits in {all} commands");
}

/// Not while the router is cut off or stops, either, nor when it goes on.
#[test]
fn near_copies_end_with_their_lease() {
    let kinds = [
        FaultKind::Reset,
        FaultKind::Partition,
        FaultKind::OneWay,
        FaultKind::PauseRouter,
        FaultKind::PauseShim,
    ];
    let kinds = kinds.into_iter().fold(FaultSet::NONE, FaultSet::with);
    let seeds = [30, 126, 144, 162, 186, 224, 233, 268];
    let near: u64 = seeds.into_iter().map(|seed| run(seed, 15, kinds).near_hits).sum();
    assert!(near > 500, "{near} near hits");
}

/// The same of clients that keep what they read: a copy may not know yet what its shim has yet to be told.
#[test]
fn near_copies_keep_nothing_stale() {
    let kinds = FaultSet::NONE.with(FaultKind::FeedLoss).with(FaultKind::Delay);
    let reports: Vec<SimReport> =
        [167, 300, 577].into_iter().chain(150..160).map(|seed| run(seed, 15, kinds)).collect();
    let sum = |of: fn(&SimReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (near, kept) = (sum(|report| report.near_hits), sum(|report| report.counts["kept"]));
    assert!(near > 300 && kept > 1000, "{near} near hits, {kept} kept");
}

/// Others write to storage, too: reads may be late by the bound, and copies are of use all the same.
#[test]
fn others_write_to_storage() {
    let kinds = FaultSet::NONE.with(FaultKind::FeedLoss).with(FaultKind::FeedHang).with(FaultKind::Loss);
    let reports: Vec<SimReport> = (0..6).map(|seed| run(seed, 15, kinds)).collect();
    let sum = |name| reports.iter().map(|report| report.counts[name]).sum::<u64>();
    assert!(sum("outside_writes") > 1000 && sum("reports") > 1000, "{reports:?}");
    let hits: u64 = reports.iter().map(|report| report.hits).sum();
    assert!(hits * 30 > reports.iter().map(|report| report.operations).sum(), "{hits} hits");
}

/// Clients that keep what they read are told when it changes, and no faults keep that from them.
#[test]
fn clients_keep_what_they_read() {
    let kinds = FaultSet::NONE.with(FaultKind::FeedLoss).with(FaultKind::Reset).with(FaultKind::CrashRouter);
    let reports: Vec<SimReport> = (0..6).map(|seed| run(seed, 15, kinds)).collect();
    let sum = |name| reports.iter().map(|report| report.counts[name]).sum::<u64>();
    assert!(sum("kept") > 500 && sum("pushes") > 500, "{reports:?}");
}

/// Clients that are told of all keys kept what was read while storage reported nothing (11, 116), or in mode bounded
/// from a copy that was behind what they had been told (316, 448, 487).
#[test]
fn broadcasting_clients_keep_nothing_stale() {
    for seed in [11, 116] {
        run(seed, 15, FaultSet::NONE.with(FaultKind::FeedLoss));
    }
    let kinds = [FaultKind::FeedLoss, FaultKind::Partition, FaultKind::OneWay, FaultKind::Delay];
    let kinds = kinds.into_iter().fold(FaultSet::NONE, FaultSet::with);
    for seed in [316, 448, 487] {
        run(seed, 30, kinds);
    }
}

/// The report of an own write came behind the registration of a read that the client sent later, and ended it.
#[test]
fn clients_miss_no_write_behind_their_own() {
    for seed in [91_000_047, 94_000_009, 94_000_354] {
        run(seed, 60, FaultSet::ALL);
    }
}

/// Storage comes back without its newest writes, under a shim that lives or before its successor: whoever has seen that sees
/// nothing of what is lost.
#[test]
fn storage_loses_its_newest_writes() {
    let kinds = [FaultKind::StorageRollback, FaultKind::Partition, FaultKind::OneWay];
    let kinds = kinds.into_iter().fold(FaultSet::NONE, FaultSet::with);
    let reports: Vec<SimReport> = cases::seeds(48).map(|case| run(case.seed, 20, kinds)).collect();
    let rollbacks: u64 = reports.iter().filter_map(|report| report.faults.get("storage-rollback")).sum();
    let hits: u64 = reports.iter().map(|report| report.hits).sum();
    assert!(cases::alone() || rollbacks > 100 && hits > 1000, "{reports:?}");
}

/// Keys get further places and lose them, whatever is said of how hot they are.
#[test]
fn places_come_and_go() {
    let kinds =
        [FaultKind::Heat, FaultKind::Loss, FaultKind::Resize, FaultKind::CrashNode, FaultKind::Replace];
    let kinds = kinds.into_iter().fold(FaultSet::NONE, FaultSet::with);
    let reports: Vec<SimReport> = cases::seeds(24).map(|case| run(case.seed, 30, kinds)).collect();
    let sum = |name| reports.iter().map(|report| report.counts[name]).sum::<u64>();
    let struck: u64 = reports.iter().filter_map(|report| report.faults.get("heat")).sum();
    let (raises, lowerings) = (sum("raises"), sum("lowerings"));
    assert!(
        cases::alone() || raises > 30 && lowerings > 20 && struck > 20,
        "{raises}, {lowerings}, {struck}"
    );
}

/// A write of others was taken for the report of an own one, which a read on its way had been thought to bring.
#[test]
fn others_writes_are_no_echoes() {
    run(800_587, 60, FaultSet::ALL);
}

/// What is never cached is held by nobody once everybody knows, and what was purged is gone. Seed 4: a node kept offers
/// of such keys for a session that it never opened.
#[test]
fn rules_change_and_copies_are_purged() {
    let kinds = FaultSet::NONE.with(FaultKind::Reload).with(FaultKind::Purge);
    let reports: Vec<SimReport> = (0..6).map(|seed| run(seed, 15, kinds)).collect();
    let sum = |name| reports.iter().map(|report| report.counts[name]).sum::<u64>();
    assert!(sum("purges") > 10 && reports.iter().all(|report| report.hits > 0), "{reports:?}");
    run(4, 30, kinds);
    // A purge was done while a copy of before storage's restart was still served.
    run(83, 20, FaultSet::NONE.with(FaultKind::Purge).with(FaultKind::StorageRestart));
}

/// The controllers' store is emptied and spoilt, and hidden from one of them. Once a foreign map had been deleted, the
/// store had none for ever (37); the map that a replica gave back to an emptied store had the epoch of another one (27).
#[test]
fn controllers_agree_on_a_map_whatever_their_store_loses() {
    let kinds = [FaultKind::StoreCut, FaultKind::StoreEmptied, FaultKind::StoreForeign];
    let others = [FaultKind::CrashController, FaultKind::CrashNode, FaultKind::Remap, FaultKind::Resize];
    let kinds = kinds.into_iter().chain(others).fold(FaultSet::NONE, FaultSet::with);
    let seeds = cases::seeds(8).map(|case| case.seed).chain([27, 37]);
    let maps: u64 = seeds.map(|seed| run(seed, 20, kinds).counts["maps"]).sum();
    assert!(maps > 50, "{maps} maps");
}

/// Reads that a node passed on overtook each other at the shim, where those of one view wait for the next read.
#[test]
fn pipelined_reads_keep_their_order_at_the_shim() {
    for seed in [18, 140] {
        run(seed, 30, FaultSet::NONE);
    }
}

/// A RESP2 client's read that had joined a RESP3 client's fetch was passed on by another connection to storage.
#[test]
fn pipelined_reads_keep_their_order_whoever_they_joined() {
    run(39, 30, FaultSet::ALL);
}

/// A second pause of a storage server ended before the first: what came later on a connection was carried out before what
/// waited for the first one's end, so that replies went to other commands than theirs.
#[test]
fn a_server_that_pauses_again_keeps_the_order_of_its_connections() {
    for seed in [77_121_608, 77_121_470] {
        run(seed, 60, FaultSet::ALL);
    }
}

/// A write whose outcome its client was not told happened after the read that the same client had sent behind it.
#[test]
fn a_write_that_nobody_vouches_for_binds_no_later_read() {
    run(77_129_052, 60, FaultSet::ALL);
}

/// Others write to storage although mode strict rules that out: shims notice, and no copy outlives what they change for long.
#[test]
fn foreign_writers_are_noticed() {
    let seeds = [23, 38, 43, 84, 98, 117, 122, 173, 213, 226, 261, 264, 294, 1107, 2379];
    let reports = seeds.map(|seed| run(seed, 40, FaultSet::ALL));
    let sum = |name| reports.iter().map(|report| report.counts[name]).sum::<u64>();
    assert!(sum("outside_writes") > 1000 && sum("foreign_writes") > 1000, "{reports:?}");
    assert!(reports.iter().map(|report| report.hits).sum::<u64>() > 10_000, "{reports:?}");
}

/// Reports of a shim's own writes that came late (29, 32, 34), of keys whose life had ended (0, 3, 184, 492), also while they were
/// read for a copy (44), or because they were (105).
#[test]
fn nobody_is_taken_for_a_foreign_writer() {
    for seed in [0, 3, 29, 32, 34, 44, 105, 184, 492] {
        run(seed, 60, FaultSet::ALL);
    }
}
