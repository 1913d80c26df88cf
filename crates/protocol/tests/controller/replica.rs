//! One replica: heartbeats and what the store says go in, what it does and whether it tells a map come out.

use std::fmt::Write;
use std::time::Duration;

use protocol::controller::partitions::{Ownership, Terms};
use protocol::controller::{
    Beat, Change, Controller, ControllerConfig, Effect, Event, Heartbeat, Input, Members, StoredMap,
};
use protocol::time::Time;
use wire::{ClusterMap, NodeId, Peer, RouterId};

use super::{map, peer};

/// So many nodes; a store that knows of 0 has the map of another cluster.
struct Nodes(u16);

impl Members for Nodes {
    type Roster = u16;

    fn roster(&self) -> u16 {
        self.0
    }

    fn map(&self) -> ClusterMap {
        map(self.0)
    }

    fn others(&self) -> Vec<Peer> {
        vec![Peer::Router(RouterId(0))]
    }

    fn grown(&self, roster: &u16) -> Result<Option<Nodes>, String> {
        match *roster {
            0 => Err("another cluster".to_owned()),
            nodes => Ok((nodes > self.0).then_some(Nodes(nodes))),
        }
    }

    fn exceeds(&self, roster: &u16) -> bool {
        self.0 > *roster
    }
}

fn controller() -> Controller<Nodes> {
    let terms = Terms {
        lease: Duration::from_secs(2),
        grace: Duration::from_millis(500),
        step: Duration::from_secs(1),
        level_max: 2,
    };
    Controller::new(Time(0), ControllerConfig { terms, by: "a".to_owned(), history: 1, members: Nodes(2) })
}

/// `AGENT.SEQUENCE hHISTORY`, then `MEMBER=EPOCH` of each, with an `e` if it is empty, or `-MEMBER` of one that leaves.
fn heartbeat(words: &[&str]) -> Heartbeat {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (agent, sequence) = words[0].split_once('.').expect("an agent and a sequence");
    let mut heartbeat =
        Heartbeat { agent: number(agent), sequence: number(sequence), ..Heartbeat::default() };
    heartbeat.history = number(&words[1][1..]);
    for word in &words[2..] {
        match word.split_once('=') {
            Some((member, epoch)) => heartbeat.members.push(Beat {
                member: peer(member),
                epoch: number(epoch.trim_end_matches('e')) as u32,
                empty: epoch.ends_with('e'),
                resharding: None,
            }),
            None => heartbeat.leaving.push(peer(&word[1..])),
        }
    }
    heartbeat
}

/// `vVERSION EPOCH hHISTORY BY`, then what each node owns, with a `d` if it is drained.
fn stored(words: &[&str]) -> Change<u16> {
    let version = words[0][1..].parse().expect("a version");
    let map = match words[1] {
        "nonsense" => Err("no map".to_owned()),
        epoch => {
            let node = |text: &&str| Ownership {
                share: text.trim_end_matches('d').parse().expect("a share"),
                drained: text.ends_with('d'),
            };
            let nodes: Vec<Ownership> = words[4..].iter().map(node).collect();
            Ok(StoredMap {
                epoch: epoch.parse().expect("an epoch"),
                level: 1,
                history: words[2][1..].parse().expect("a history"),
                by: words[3].to_owned(),
                roster: nodes.len() as u16,
                nodes,
                shims: Vec::new(),
            })
        }
    };
    Change::Map { version, map }
}

fn parse(line: &str) -> Vec<(Time, Option<Input<Nodes>>)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ms = |index: usize| words[index].parse::<u64>().expect("milliseconds");
    if words[0] == "ticks" {
        return (ms(1)..=ms(2)).step_by(100).map(|ms| (Time(ms * 1000), Some(Input::Tick))).collect();
    }
    let number = |index: usize| words[index].parse::<u16>().expect("a number");
    let input = match words[1] {
        "beat" => Input::Heartbeat(heartbeat(&words[2..])),
        "registered" => Input::Changed(Change::Registered(peer(words[2]))),
        "gone" => Input::Changed(Change::Gone(peer(words[2]))),
        "map" => Input::Changed(stored(&words[2..])),
        "nomap" => Input::Changed(Change::NoMap),
        "read" => Input::Read,
        "away" => Input::Away { reason: "no route".to_owned() },
        "drain" | "undrain" => Input::Drain { node: NodeId(number(2)), drained: words[1] == "drain" },
        "grown" => Input::Grown(Nodes(number(2))),
        "tick" => Input::Tick,
        "told" => return vec![(Time(0), None)],
        other => panic!("no input is called {other}"),
    };
    vec![(Time(ms(0) * 1000), Some(input))]
}

fn name(peer: Peer) -> String {
    match peer {
        Peer::Node(id) => format!("n{}", id.0),
        Peer::Shim(id) => format!("s{}", id.0),
        Peer::Router(id) => format!("r{}", id.0),
    }
}

fn text(map: &StoredMap<u16>) -> String {
    let node = |owned: &Ownership| format!(" {}{}", owned.share, if owned.drained { "d" } else { "" });
    let nodes: String = map.nodes.iter().map(node).collect();
    format!("{} h{} {}:{nodes}", map.epoch, map.history, map.by)
}

fn show(effect: &Effect<u16>) -> String {
    match effect {
        Effect::Keep(member) => format!("keep {}", name(*member)),
        Effect::Forget(member) => format!("forget {}", name(*member)),
        Effect::Propose { version, map } => format!("propose v{version} {}", text(map)),
        Effect::Refuse => "refuse".to_owned(),
        Effect::Silent(member) => format!("silent {}", name(*member)),
        Effect::Log(Event::Left(member)) => format!("log: {} has left", name(*member)),
        Effect::Log(Event::Lapsed(member)) => format!("log: the lease of {} has ended", name(*member)),
        Effect::Log(Event::Taken(map)) => format!("log: taken {}", text(map)),
        Effect::Log(Event::Foreign { reason }) => format!("log: foreign, {reason}"),
        Effect::Log(Event::StoreAway { reason }) => format!("log: the store is away, {reason}"),
        Effect::Log(Event::StoreBack) => "log: the store is back".to_owned(),
    }
}

/// The transcript of one script.
pub(crate) fn play(script: &str) -> String {
    let mut actual = String::new();
    let mut machine = controller();
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        writeln!(actual, "{line}").unwrap();
        if line.starts_with("case ") {
            machine = controller();
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |time: Time| {
            if line.starts_with("ticks") { format!("{} ", time.0 / 1000) } else { String::new() }
        };
        for (time, input) in parse(line) {
            let Some(input) = input else {
                writeln!(actual, "> {}", machine.told().map_or("nothing".to_owned(), text)).unwrap();
                continue;
            };
            let mut effects = Vec::new();
            machine.step(time, input, &mut effects);
            for effect in &effects {
                writeln!(actual, "> {}{}", at(time), show(effect)).unwrap();
            }
        }
    }
    actual
}
