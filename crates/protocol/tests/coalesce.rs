//! A thousand readers of one hot key in virtual time: how many reads of storage they cost. Not how long they take.

mod world;

use world::World;

const READERS: usize = 1000;

/// Every read of `k` that reached storage, and every reader that got `value`.
fn count(log: &str, value: &str) -> (usize, usize) {
    let reads = |line: &&str| line.trim_start().starts_with("s0>storage") && line.ends_with("GET k");
    let answers = |line: &&str| line.starts_with('q') && line.contains(&format!("= $1 {value}"));
    (log.lines().filter(reads).count(), log.lines().filter(answers).count())
}

/// Both nodes hold `k`.
fn cached() -> World {
    let mut world = World::new();
    for line in ["do w SET k 1", "offer n0 k", "offer n1 k", "wait 100", "copies"] {
        let log = world.command(line);
        assert!(line != "copies" || log.contains("copies: 2"), "{log}");
    }
    world
}

fn readers(world: &mut World, via: &str) -> String {
    (0..READERS).map(|reader| world.command(&format!("read q{reader} via {via} GET k"))).collect()
}

#[test]
fn a_miss_of_a_hot_key_reads_storage_once_per_node_and_invalidation() {
    let mut world = cached();
    for value in 2..5 {
        let mut log = world.command("do w INCR k");
        log += &world.command("hold s0>storage PTTL k,");
        log += &readers(&mut world, "n0");
        log += &readers(&mut world, "n1");
        assert_eq!(count(&log, &value.to_string()), (0, 0), "all of them wait");
        log = world.command("release s0>storage PTTL k,");
        assert_eq!(count(&log, &value.to_string()), (2, 2 * READERS));
        let hits = readers(&mut world, "n0");
        assert_eq!(count(&hits, &value.to_string()), (0, READERS), "and from then on the copy answers");
    }
}

#[test]
fn a_write_amid_the_miss_costs_one_more_read() {
    let mut world = cached();
    world.command("do w INCR k");
    world.command("hold s0>n0 FILL");
    let mut log = readers(&mut world, "n0");
    log += &world.command("do w INCR k");
    log += &readers(&mut world, "n0");
    assert_eq!(count(&log, "2").0, 1);
    log = world.command("release s0>n0 FILL");
    // The first reader alone came before the read; the copy that the write has overtaken is nobody's.
    assert_eq!(count(&log, "2").1, 1, "{log}");
    assert_eq!(count(&log, "3"), (1, 2 * READERS - 1));
}

#[test]
fn readers_of_a_key_that_no_node_holds_share_two_reads() {
    let mut world = World::new();
    world.command("do w SET k 1");
    world.command("hold s0>storage GET k");
    let mut log = readers(&mut world, "s0");
    log += &world.command("release s0>storage GET k");
    assert_eq!(count(&log, "1"), (2, READERS));
}
