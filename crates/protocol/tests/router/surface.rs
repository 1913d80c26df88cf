//! That the written surface is what a router does: each command is sent to one, and what leaves it is looked at.

use std::collections::BTreeSet;

use protocol::router::{
    ClientId, CommandClass, CommandSpread, Effect, Input, RouterConfig, Treatment, shortest, surface,
};
use protocol::time::Time;
use wire::resp::Command;
use wire::{Message, Peer};

use crate::world::{map, router};

const SHIMS: u16 = 4;

/// What became of one command.
#[derive(Debug, Default)]
struct Seen {
    reads: usize,
    executes: usize,
    peers: BTreeSet<Peer>,
    reply: Option<String>,
    subscribes: usize,
}

fn send(command: Command) -> Seen {
    let mut router = router(RouterConfig::default(), map(SHIMS, 1, SHIMS, &[]));
    let (client, mut effects) = (ClientId(0), Vec::new());
    router.step(Time(0), Input::Opened { client }, &mut effects);
    router.step(Time(0), Input::Command { client, command }, &mut effects);
    let mut seen = Seen::default();
    for effect in effects {
        match effect {
            Effect::Send { to, message } => {
                seen.peers.insert(to);
                match message {
                    Message::Read(_) => seen.reads += 1,
                    Message::Execute(_) => seen.executes += 1,
                    Message::Subscribe(_) => seen.subscribes += 1,
                    other => panic!("a router does not send {other:?} here"),
                }
            }
            Effect::Reply { bytes, .. } | Effect::Push { bytes, .. } | Effect::Part { bytes, .. } => {
                seen.reply = Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            _ => {}
        }
    }
    seen
}

/// A whole command with `keys` keys that live on different servers, where its form is easily told.
fn command(treatment: &Treatment, keys: usize) -> Option<Command> {
    let key: Vec<String> = (0..keys).map(|index| format!("key{index}")).collect();
    let line = match (treatment.spec.name, keys) {
        ("mset" | "msetnx", _) => key.iter().map(|key| format!(" {key} v")).collect(),
        ("blpop" | "brpop" | "bzpopmin" | "bzpopmax", _) => format!(" {} 0", key.join(" ")),
        ("eval" | "evalsha" | "fcall" | "eval_ro" | "evalsha_ro" | "fcall_ro", _) => {
            format!(" s {keys} {}", key.join(" "))
        }
        ("sintercard" | "zunion" | "zinter" | "zdiff" | "zintercard" | "lmpop" | "zmpop", _) => {
            format!(" {keys} {} MIN", key.join(" "))
        }
        (
            "del" | "unlink" | "exists" | "touch" | "mget" | "sinter" | "sunion" | "sdiff" | "pfcount"
            | "watch" | "pfmerge",
            _,
        ) => format!(" {}", key.join(" ")),
        _ => return None,
    };
    let name = treatment.spec.name.replace('|', " ");
    Some(Command::from_args(&(name + &line).split(' ').collect::<Vec<_>>()))
}

fn fits(treatment: &Treatment, seen: &Seen) -> bool {
    let servers = seen.peers.len();
    match (&treatment.class, treatment.spread) {
        (CommandClass::Refused(text), _) => {
            let reply = seen.reply.as_deref().unwrap_or_default();
            servers == 0 && reply.starts_with('-') && reply.contains(text.as_str())
        }
        (_, CommandSpread::Nowhere) => servers == 0,
        (CommandClass::Subscription, _) => seen.subscribes > 0 || seen.reply.is_some(),
        (_, CommandSpread::Everywhere) => {
            servers == usize::from(SHIMS) || treatment.spec.name.starts_with("command")
        }
        (CommandClass::CachedRead, CommandSpread::EachKey | CommandSpread::OneKey) => {
            seen.reads > 0 && seen.executes == 0
        }
        // One key alone is a cached read.
        (CommandClass::CachedRead, CommandSpread::Split) => seen.reads == 1,
        (_, CommandSpread::Split) => seen.executes == servers && servers > 0,
        _ => {
            seen.executes + seen.reads == 1 || seen.reply.as_deref().is_some_and(|text| text.starts_with('-'))
        }
    }
}

#[test]
fn every_command_is_treated_as_it_is_written_down() {
    let rows = surface();
    assert!(rows.len() > 350, "the table has {} commands only", rows.len());
    for row in &rows {
        let seen = send(match row.spec.name {
            // Not every parameter may be set.
            "config|set" => Command::from_args(&["CONFIG", "SET", "hz", "10"]),
            _ => shortest(row.spec),
        });
        assert!(fits(row, &seen), "{}: {row:?} but {seen:?}", row.spec.name);
    }
}

#[test]
fn keys_on_several_servers_are_treated_as_it_is_written_down() {
    let mut tried = 0;
    for row in surface() {
        let Some(command) = command(&row, 12) else { continue };
        tried += 1;
        let seen = send(command);
        let reply = seen.reply.as_deref().unwrap_or_default();
        let right = match row.spread {
            CommandSpread::SameServer => seen.peers.is_empty() && reply.starts_with("-CROSSSLOT"),
            CommandSpread::EachKey => seen.reads == 12 && seen.peers.len() > 1,
            CommandSpread::Split => seen.peers.len() > 1 && seen.executes == seen.peers.len(),
            _ => false,
        };
        assert!(right, "{}: {:?} but {seen:?}", row.spec.name, row.spread);
    }
    assert!(tried >= 25, "{tried}");
}
