//! One node with many objects and nothing to do: what its ticks cost, by the clock of the thread. Arguments: the number of objects,
//! the number of seconds that its own clock is to pass.

#![expect(clippy::print_stdout, reason = "it tells what it has measured")]

#[path = "../tests/world/full_node.rs"]
mod full_node;

use protocol::node::Input;
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
    let mut turns = Vec::new();
    for tick in 0..seconds * 1_000_000 / TICK_US {
        now = Time(now.0 + TICK_US);
        let before = thread_us();
        full_node::step(&mut node, now, Input::Tick);
        // As the status is made.
        if tick % 10 == 0 {
            std::hint::black_box(node.hottest(32));
        }
        turns.push(thread_us() - before);
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
}
