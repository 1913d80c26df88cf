//! What becomes of each command of the table, for those who write it down: asked of the rules, plans and answers by which
//! a router acts. Not a rule of its own.

use smallvec::SmallVec;
use wire::resp::Command;

use crate::router::flow::plan::{self, CommandPlan};
use crate::router::words;
use crate::router::{ClientId, Effect, Input, Router, RouterConfig};
use crate::time::Time;
use commands::{Classified, CommandKind, CommandRefusal, CommandSpec};

/// One command or subcommand that stands for itself; containers are there only as their subcommands.
#[derive(Debug)]
pub struct Treatment {
    pub spec: &'static CommandSpec,
    pub class: CommandClass,
    /// Also without a key: then it is a barrier or, of a read, goes to any server.
    pub may_lack_keys: bool,
    pub spread: CommandSpread,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandClass {
    /// Refused always, with the words that the client gets.
    Refused(String),
    /// By the router, without storage.
    Answered,
    CachedRead,
    Read,
    Write,
    /// A write or a read that may wait for another client.
    Blocking,
    /// Everything cached is dropped first.
    Barrier,
    /// Neither names nor writes a key.
    Keyless,
    /// Holds a storage connection of its own.
    Pinned,
    Subscription,
    Publish,
}

/// What it does where several storage servers stand behind the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandSpread {
    /// Never leaves the router.
    Nowhere,
    /// To the server of its key.
    OneKey,
    /// All its keys have to be on one server.
    SameServer,
    /// Each key on its own, the replies put together.
    EachKey,
    /// Once per server with that server's keys, the replies added or reduced to one.
    Split,
    /// To every server, the replies put together.
    Everywhere,
    /// Through the servers one after the other.
    InTurn,
    Anywhere,
    /// Always to the same one.
    First,
    /// To the server of its channel; patterns to every server.
    Channel,
}

/// All commands, by name.
pub fn surface() -> Vec<Treatment> {
    let leaves = |spec: &'static CommandSpec| {
        if spec.subcommands.is_empty() { std::slice::from_ref(spec) } else { spec.subcommands }
    };
    commands::all().iter().flat_map(leaves).map(treatment).collect()
}

/// The shortest command of this name that has enough arguments.
pub fn shortest(spec: &'static CommandSpec) -> Command {
    let mut words: Vec<&str> = spec.name.split('|').collect();
    words.resize(words.len().max(usize::from(spec.arity.unsigned_abs())), "1");
    Command::from_args(&words)
}

fn treatment(spec: &'static CommandSpec) -> Treatment {
    let command = shortest(spec);
    let kind = match commands::kind_of(spec) {
        Ok(kind) => kind,
        Err(refusal) => return refused(spec, &refusal.to_string()),
    };
    if let Some(text) = (kind == CommandKind::Connection).then(|| refusal_of(&command)).flatten() {
        return refused(spec, &text);
    }
    let names_keys = spec.names_keys();
    let keys: SmallVec<[usize; 1]> = match (names_keys, spec.may_name_several_keys()) {
        (false, _) => SmallVec::new(),
        (true, false) => SmallVec::from_slice(&[1]),
        (true, true) => SmallVec::from_slice(&[1, 2]),
    };
    let classified = Classified { keys, ..Classified::without_keys(spec, kind) };
    let may_lack_keys = names_keys && spec.may_name_no_key();
    Treatment { spec, class: class(kind), may_lack_keys, spread: spread(&command, &classified) }
}

fn refused(spec: &'static CommandSpec, text: &str) -> Treatment {
    let text = text.strip_prefix("ERR ").unwrap_or(text).to_owned();
    Treatment {
        spec,
        class: CommandClass::Refused(text),
        may_lack_keys: false,
        spread: CommandSpread::Nowhere,
    }
}

/// What a router says to it that answers for itself, if that is a refusal.
fn refusal_of(command: &Command) -> Option<String> {
    let mut router = Router::new(RouterConfig::default());
    let (client, mut effects) = (ClientId(0), Vec::new());
    router.step(Time(0), Input::Opened { client }, &mut effects);
    router.step(Time(0), Input::Command { client, command: command.clone() }, &mut effects);
    let replies = effects.into_iter().filter_map(|effect| match effect {
        Effect::Reply { bytes, .. } => String::from_utf8(bytes.to_vec()).ok(),
        _ => None,
    });
    let cluster = CommandRefusal::NoCluster.to_string();
    let mut refusals = replies.filter_map(|text| {
        let text = text.strip_prefix('-')?.trim_end().to_owned();
        (text.starts_with("ERR DistCache") || text == cluster).then_some(text)
    });
    refusals.next()
}

fn class(kind: CommandKind) -> CommandClass {
    match kind {
        CommandKind::Read => CommandClass::CachedRead,
        CommandKind::Query => CommandClass::Read,
        CommandKind::Write => CommandClass::Write,
        CommandKind::BlockingWrite | CommandKind::BlockingQuery => CommandClass::Blocking,
        CommandKind::Watch => CommandClass::Pinned,
        CommandKind::Barrier => CommandClass::Barrier,
        CommandKind::Keyless => CommandClass::Keyless,
        CommandKind::Connection | CommandKind::Purge => CommandClass::Answered,
        CommandKind::Subscription => CommandClass::Subscription,
        CommandKind::Publish => CommandClass::Publish,
    }
}

fn spread(command: &Command, classified: &Classified) -> CommandSpread {
    if classified.kind == CommandKind::Connection {
        // Of these the router puts its own facts before those of storage.
        let asks = words::is(command, 0, "INFO") || words::is(command, 0, "COMMAND");
        let help = words::is(command, 0, "CLIENT") && words::is(command, 1, "HELP");
        return match (asks, help) {
            (true, _) => CommandSpread::Everywhere,
            (_, true) => CommandSpread::Anywhere,
            _ => CommandSpread::Nowhere,
        };
    }
    match plan::plan(command, classified) {
        CommandPlan::Read => CommandSpread::OneKey,
        CommandPlan::Whole | CommandPlan::Watch if classified.keys.len() > 1 => CommandSpread::SameServer,
        CommandPlan::Whole | CommandPlan::Watch => CommandSpread::OneKey,
        CommandPlan::Each => CommandSpread::EachKey,
        CommandPlan::Grouped(_) => CommandSpread::Split,
        CommandPlan::Everywhere(_) | CommandPlan::Users | CommandPlan::Info => CommandSpread::Everywhere,
        CommandPlan::Anywhere => CommandSpread::Anywhere,
        CommandPlan::FirstShim => CommandSpread::First,
        CommandPlan::Scan | CommandPlan::RandomKey => CommandSpread::InTurn,
        CommandPlan::Subscription | CommandPlan::Publish => CommandSpread::Channel,
    }
}
