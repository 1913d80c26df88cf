//! From a command to how it is treated: its table entry, its kind and its keys.

use smallvec::SmallVec;
use wire::resp::Command;

use super::keys;
use super::lookup::{self, find, find_subcommand};
use super::own;
use super::parameter;
use super::reason::RefusalReason;
use super::refusal::CommandRefusal;
use super::spec::{CommandGroup, CommandRule, CommandSpec};

/// How a command is treated (design, sections 6 and 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// A deterministic read of exactly one key: cached as a view of that key.
    Read,
    /// Any other read of keys: never cached, never invalidates.
    Query,
    /// Invalidates all its keys before it runs.
    Write,
    /// May wait for another client's write: its keys get no grants from their INV until its reply.
    BlockingWrite,
    /// XREAD BLOCK: waits, but writes nothing.
    BlockingQuery,
    /// WATCH: a read of its keys on a connection that stays the client's until EXEC.
    Watch,
    /// Writes keys that nobody can name: everything granted is revoked first.
    Barrier,
    /// Neither names nor writes a key.
    Keyless,
    /// About the client's own connection, MULTI and its like included: the router answers it.
    Connection,
    /// Starts or ends subscriptions of the client's own connection.
    Subscription,
    /// Goes to the server of its channel, which is no key.
    Publish,
    /// Drops copies of its key or, without one, of many, and leaves the data.
    Purge,
}

/// Which keys a command reads that no argument names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnnamedKeys {
    #[default]
    None,
    /// Keys with the hash tag of those that are named, as Redis Cluster has hash tags.
    Tagged,
    Any,
}

/// What is known about a command that can be carried out.
#[derive(Clone, Debug)]
pub struct Classified {
    pub spec: &'static CommandSpec,
    pub kind: CommandKind,
    /// Indexes of the arguments that are keys. A key that is given twice is there twice.
    pub keys: SmallVec<[usize; 1]>,
    /// SORT with a BY or GET pattern: its reply is right only where all that it reads is on one storage server.
    pub unnamed_keys: UnnamedKeys,
    /// It runs a script, or is a transaction that does: storage has a connection of its own for those.
    pub script: bool,
}

/// Looks a command up and finds its keys. The error is what its client gets to read.
pub fn classify(command: &Command) -> Result<Classified, CommandRefusal> {
    // Most commands are one of these, and all there is to say of them is known.
    let (spec, kind) = match command.len() {
        2 if command.name().eq_ignore_ascii_case(b"get") => (lookup::GET, CommandKind::Read),
        3 if command.name().eq_ignore_ascii_case(b"set") => (lookup::SET, CommandKind::Write),
        _ => return looked_up(command),
    };
    Ok(Classified { keys: SmallVec::from_buf([1]), ..Classified::without_keys(spec, kind) })
}

fn looked_up(command: &Command) -> Result<Classified, CommandRefusal> {
    let spec = resolve(command)?;
    if !spec.accepts(command.len()) {
        return Err(CommandRefusal::Arity(spec.name));
    }
    let keyed = match spec.rule {
        CommandRule::Refuse(reason) => return Err(CommandRefusal::unsupported(spec.name, reason)),
        CommandRule::Connection => return Ok(Classified::without_keys(spec, CommandKind::Connection)),
        CommandRule::Keyless if spec.name == "config|set" && !sets_harmless_parameters(command) => {
            return Err(CommandRefusal::unsupported(spec.name, RefusalReason::Configuration));
        }
        CommandRule::Subscription => return Ok(Classified::without_keys(spec, CommandKind::Subscription)),
        CommandRule::Purge => {
            let (_, key) = own::scope(command).ok_or(CommandRefusal::Syntax)?;
            let keys = key.into_iter().collect();
            return Ok(Classified { keys, ..Classified::without_keys(spec, CommandKind::Purge) });
        }
        CommandRule::Publish => return Ok(Classified::without_keys(spec, CommandKind::Publish)),
        CommandRule::Keyless => return Ok(Classified::without_keys(spec, CommandKind::Keyless)),
        keyed => keyed,
    };
    let keys = keys::extract(command, spec)?;
    let blocks = || {
        spec.group != CommandGroup::Stream || keys::stream_options(command).is_some_and(|found| found.blocks)
    };
    let kind = match keyed {
        CommandRule::Write if keys.is_empty() => CommandKind::Barrier,
        CommandRule::BlockingWrite if blocks() => CommandKind::BlockingWrite,
        CommandRule::Write | CommandRule::BlockingWrite => CommandKind::Write,
        _ if keys.is_empty() => CommandKind::Keyless,
        CommandRule::BlockingQuery if blocks() => CommandKind::BlockingQuery,
        CommandRule::Watch => CommandKind::Watch,
        CommandRule::Read if keys.len() == 1 => CommandKind::Read,
        _ => CommandKind::Query,
    };
    if spec.name == "copy" && names_database(command) {
        return Err(CommandRefusal::unsupported(spec.name, RefusalReason::OtherDatabase));
    }
    let unnamed_keys = match spec.group == CommandGroup::Generic && spec.name.starts_with("sort") {
        true => keys::sort_derives(command),
        false => UnnamedKeys::None,
    };
    Ok(Classified { spec, kind, keys, unnamed_keys, script: spec.runs_script() })
}

/// What a command of this name is, whatever its arguments, if they name keys wherever they can.
pub fn kind_of(spec: &'static CommandSpec) -> Result<CommandKind, CommandRefusal> {
    Ok(match spec.rule {
        CommandRule::Refuse(reason) => return Err(CommandRefusal::unsupported(spec.name, reason)),
        CommandRule::Connection => CommandKind::Connection,
        CommandRule::Subscription => CommandKind::Subscription,
        CommandRule::Publish => CommandKind::Publish,
        CommandRule::Purge => CommandKind::Purge,
        CommandRule::Keyless => CommandKind::Keyless,
        CommandRule::Write if !spec.names_keys() => CommandKind::Barrier,
        CommandRule::Write => CommandKind::Write,
        CommandRule::BlockingWrite => CommandKind::BlockingWrite,
        CommandRule::BlockingQuery => CommandKind::BlockingQuery,
        CommandRule::Watch => CommandKind::Watch,
        CommandRule::Read => CommandKind::Read,
        CommandRule::Query => CommandKind::Query,
    })
}

impl CommandRefusal {
    /// Whether Redis finds out only when it carries the command out, so that a transaction takes it.
    pub fn is_of_execution(&self, command: &Command) -> bool {
        match self {
            CommandRefusal::UnknownCommand { .. } | CommandRefusal::UnknownSubcommand { .. } => false,
            // CONFIG SET is only looked at when it is carried out.
            CommandRefusal::Unsupported { reason: RefusalReason::Configuration, .. } => true,
            CommandRefusal::NoCluster | CommandRefusal::Unsupported { .. } => false,
            CommandRefusal::Arity(_) => is_whole(command),
            _ => true,
        }
    }
}

/// Whether a command has as many arguments as the table asks for.
fn is_whole(command: &Command) -> bool {
    resolve(command).is_ok_and(|spec| spec.accepts(command.len()))
}

impl Classified {
    pub fn without_keys(spec: &'static CommandSpec, kind: CommandKind) -> Classified {
        Classified { spec, kind, keys: SmallVec::new(), unnamed_keys: UnnamedKeys::None, script: false }
    }
}

/// The entry of the command or, for a container, of its subcommand.
pub fn resolve(command: &Command) -> Result<&'static CommandSpec, CommandRefusal> {
    let spec = find(command.name()).ok_or_else(|| CommandRefusal::unknown_command(command))?;
    if spec.subcommands.is_empty() || command.len() == 1 {
        return Ok(spec);
    }
    match find_subcommand(spec, command.arg(1)) {
        Some(subcommand) => Ok(subcommand),
        // CLIENT has subcommands that are newer than the table; what it does is up to the router.
        None if spec.group == CommandGroup::Connection => Ok(spec),
        None => Err(CommandRefusal::unknown_subcommand(command)),
    }
}

/// Whether COPY would write to another database than the connection's. What is no number storage refuses.
fn names_database(command: &Command) -> bool {
    let place = (3..command.len()).find(|place| command.arg(*place).eq_ignore_ascii_case(b"db"));
    let database = place.and_then(|place| command.get(place + 1)).and_then(keys::integer);
    database.is_some_and(|database| database != 0)
}

/// CONFIG SET name value [name value]...
fn sets_harmless_parameters(command: &Command) -> bool {
    (2..command.len()).step_by(2).all(|place| parameter::may_be_set(command.arg(place)))
}

#[cfg(test)]
mod tests {
    use wire::resp::Command;

    use super::{classify, looked_up};

    #[test]
    fn what_is_known_without_a_search_is_what_the_table_says() {
        for words in [
            &["GET", "key"][..],
            &["gEt", ""],
            &["GET"],
            &["GET", "a", "b"],
            &["SET", "key"],
            &["SET", "key", "value"],
            &["seT", "key", ""],
            &["SET", "key", "value", "NX"],
            &["PUT", "key"],
        ] {
            let command = Command::from_args(words);
            assert_eq!(
                format!("{:?}", classify(&command)),
                format!("{:?}", looked_up(&command)),
                "{words:?}"
            );
        }
    }
}
