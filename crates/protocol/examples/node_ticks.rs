//! One node with many objects and nothing to do: what its ticks cost, by the clock of the thread. Arguments: the number of objects,
//! the number of seconds that its own clock is to pass.

#![expect(clippy::print_stdout, reason = "it tells what it has measured")]

#[path = "../tests/world/full_node.rs"]
mod full_node;

use protocol::node::{Input, Node};
use protocol::time::Time;
use rustix::time::{ClockId, clock_gettime};

const TICK_US: u64 = 10_000;

fn thread_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

fn main() {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (objects, seconds) = (number(1, 1_000_000), number(2, 5));
    // It is full, so that it knows what is to go first.
    let (mut node, mut now) = full_node::full_node(objects as usize * 9 / 10, objects);
    assert!(node.objects() as u64 >= objects * 8 / 10, "{} objects", node.objects());
    let tick = |node: &mut Node, now: &mut Time, turns: &mut Vec<u64>| {
        *now = Time(now.0 + TICK_US);
        let before = thread_us();
        full_node::step(node, *now, Input::Tick);
        // As the status is made.
        if turns.len().is_multiple_of(10) {
            std::hint::black_box(node.hottest(32));
        }
        turns.push(thread_us() - before);
    };
    let mut turns = Vec::new();
    for _ in 0..seconds * 1_000_000 / TICK_US {
        tick(&mut node, &mut now, &mut turns);
    }
    turns.sort_unstable();
    let total: u64 = turns.iter().sum();
    let at = |thousandths: usize| turns[(turns.len() - 1) * thousandths / 1000];
    println!(
        "{} objects: {} us of CPU a second; a tick takes {} us (median), {} (99 %), {} (longest)",
        node.objects(),
        total / seconds,
        at(500),
        at(990),
        at(1000)
    );
    let before = thread_us();
    full_node::lose_session(&mut node, now);
    let loss = thread_us() - before;
    let mut after = Vec::new();
    for _ in 0..2_000_000 / TICK_US {
        tick(&mut node, &mut now, &mut after);
    }
    let longest = after.iter().max().copied().unwrap_or_default();
    println!("its session is lost: {loss} us, and {longest} in the longest tick of the next two seconds");
}
