//! Scripted transcripts of whose partitions are whose: `scripts/partitions.txt`, inputs and the answers expected.

use std::fmt::Write;
use std::time::Duration;

use protocol::controller::partitions::{Effect, Input, Ownership, Partitions, Terms};
use protocol::time::Time;
use wire::{NodeId, Peer, RouterId};

use super::{map, peer};

fn partitions() -> Partitions {
    let terms = Terms {
        lease: Duration::from_secs(2),
        grace: Duration::from_millis(500),
        step: Duration::from_secs(1),
        level_max: 2,
    };
    Partitions::new(Time(0), terms, map(2), &[Peer::Router(RouterId(0))])
}

fn parse(line: &str) -> Vec<(Time, Input)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ms = |index: usize| words[index].parse::<u64>().expect("milliseconds");
    if words[0] == "ticks" {
        return (ms(1)..=ms(2)).step_by(100).map(|ms| (Time(ms * 1000), Input::Tick)).collect();
    }
    let time = Time(ms(0) * 1000);
    let number = |index: usize| words[index].parse::<u32>().expect("a number");
    let input = match words[1] {
        "heartbeat" => {
            let empty = words[4..].contains(&"empty");
            let level = words[4..].iter().find_map(|word| word.strip_prefix('L')?.parse().ok());
            Input::Heartbeat {
                member: peer(words[2]),
                epoch: number(3),
                empty,
                level: level.unwrap_or(1),
                resharding: None,
            }
        }
        "forgotten" => Input::Forgotten { epoch: number(2) },
        "registered" => Input::Registered { member: peer(words[2]) },
        "expired" => Input::Expired { member: peer(words[2]) },
        "left" => Input::Left { member: peer(words[2]) },
        "drain" | "undrain" => Input::Drain { node: NodeId(number(2) as u16), drained: words[1] == "drain" },
        "published" => {
            let node = |text: &&str| Ownership {
                share: text.trim_end_matches('d').parse().expect("a share"),
                drained: text.ends_with('d'),
            };
            let (level, nodes) = match words[3..] {
                [level, ref nodes @ ..] if level.starts_with('L') => {
                    (level[1..].parse().expect("a level"), nodes)
                }
                ref nodes => (1, nodes),
            };
            Input::Published {
                epoch: number(2),
                level,
                nodes: nodes.iter().map(node).collect(),
                shims: Vec::new(),
            }
        }
        "grown" => {
            let stored = words.get(3) == Some(&"stored");
            Input::Grown { map: map(number(2) as u16), others: vec![Peer::Router(RouterId(1))], stored }
        }
        "tick" => Input::Tick,
        other => panic!("no input is called {other}"),
    };
    vec![(time, input)]
}

fn show(at: &str, effect: &Effect, out: &mut String) {
    let Effect::Publish(map) = effect;
    let nodes = map.layers.iter().flat_map(|layer| &layer.nodes);
    let shares: Vec<String> = nodes.map(|node| node.share.to_string()).collect();
    let level = if map.level == 1 { String::new() } else { format!(" L{}", map.level) };
    writeln!(out, "> {at}publish {}{level}: {}", map.epoch, shares.join(" ")).unwrap();
}

/// The transcript of one script.
pub(crate) fn play(script: &str) -> String {
    let mut actual = String::new();
    let mut machine = partitions();
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        writeln!(actual, "{line}").unwrap();
        if line.starts_with("case ") {
            machine = partitions();
        } else if !line.is_empty() && !line.starts_with('#') {
            for (time, input) in parse(line) {
                let mut effects = Vec::new();
                machine.step(time, input, &mut effects);
                let at =
                    if line.starts_with("ticks") { format!("{} ", time.0 / 1000) } else { String::new() };
                effects.iter().for_each(|effect| show(&at, effect, &mut actual));
            }
        }
    }
    actual
}
