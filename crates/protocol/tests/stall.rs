//! How long a write waits for a node that is in trouble, in virtual time, at every phase of the lease's renewal.

mod world;

use world::World;

/// The world's terms: a lease, 1 % of it for clock rates, and the guard.
const LEASE_MS: u64 = 1000;
const GUARD_MS: u64 = 20;
/// How fine the world's time is.
const TICK_MS: u64 = 10;
/// A lease is renewed every quarter, so trouble meets it at one of these times after a renewal.
const RENEW_MS: u64 = LEASE_MS / 4;
/// What a lease has left at least in quiet times: it is granted for as long as the newest proof of storage allows,
/// which is renewed every eighth. A write that waits for less would let a node that lives serve the old value.
const LEFT_MS: u64 = LEASE_MS - RENEW_MS - LEASE_MS / 8 - 2 * TICK_MS;

/// Node n0 holds a copy of `k` under a lease of some age, and has answered reads from it.
fn with_a_copy(phase_ms: u64) -> World {
    let mut world = World::new();
    assert!(world.command("do w0 SET k 0").contains("w0 = +OK"));
    cache(&mut world);
    world.command(&format!("wait {}", LEASE_MS + phase_ms));
    assert!(world.command("read r0 via n0 GET k").contains("r0 = $1 0 (hit)"));
    world
}

fn cache(world: &mut World) {
    let played = world.command("offer n0 k");
    assert!(played.contains("FILL k fill") && played.contains("granted"), "{played}");
}

/// Writes `k` and lets time pass until the client has its answer.
fn write_ms(world: &mut World, name: &str) -> u64 {
    let done = format!("{name} = +OK");
    let mut played = world.command(&format!("do {name} SET k 1"));
    let mut waited_ms = 0;
    while !played.contains(&done) {
        assert!(waited_ms <= 10 * LEASE_MS, "{name} hangs:\n{played}");
        played += &world.command(&format!("wait {TICK_MS}"));
        waited_ms += TICK_MS;
    }
    waited_ms
}

fn phases() -> impl Iterator<Item = u64> {
    (0..RENEW_MS).step_by(TICK_MS as usize)
}

#[test]
fn a_killed_node_holds_a_write_for_its_lease_at_most() {
    let stalls: Vec<u64> = phases()
        .map(|phase_ms| {
            let mut world = with_a_copy(phase_ms);
            world.command("kill n0");
            let stall_ms = write_ms(&mut world, "w1");
            assert_eq!(write_ms(&mut world, "w2"), 0, "the copy is gone for good");
            stall_ms
        })
        .collect();
    assert!(stalls.iter().all(|stall_ms| *stall_ms <= LEASE_MS + GUARD_MS), "{stalls:?}");
    assert!(stalls.iter().all(|stall_ms| *stall_ms >= LEFT_MS), "{stalls:?}");
}

#[test]
fn a_node_that_leaves_in_order_holds_no_write() {
    for phase_ms in phases() {
        let mut world = with_a_copy(phase_ms);
        world.command("drain n0");
        assert_eq!(write_ms(&mut world, "w1"), 0, "a write after it left, phase {phase_ms} ms");
        assert!(world.command("copies").contains("copies: 0"));

        // It leaves while an INV is on its way to it: its last word counts as the answer.
        let mut world = with_a_copy(phase_ms);
        world.command("hold s0>n0 INV");
        let played = world.command("do w1 SET k 1") + &world.command("drain n0");
        assert!(played.contains("w1 = +OK"), "a write that had begun, phase {phase_ms} ms:\n{played}");
    }
}

#[test]
fn a_node_that_renews_for_ever_but_never_acknowledges_holds_a_write_for_one_lease_at_most() {
    for phase_ms in phases() {
        let mut world = with_a_copy(phase_ms);
        world.command("hold n0>s0 ACK");
        for round in 0..4 {
            let stall_ms = write_ms(&mut world, &format!("w{round}"));
            let bounds = LEFT_MS..=LEASE_MS + GUARD_MS;
            assert!(bounds.contains(&stall_ms), "round {round}, phase {phase_ms} ms: {stall_ms} ms");
            // It comes back with a new session and has a copy again, for the next write to wait for.
            world.command("wait 100");
            cache(&mut world);
        }
    }
}
