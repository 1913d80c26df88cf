//! Connections to a Redis server that are none of DistCache's, and whether they write. Not what is done about them.

use std::fmt;
use std::time::Duration;

use commands::{CommandGroup, Flag, resolve};
use wire::resp::Command;

use super::acl::is_incarnation;

/// What lists connections, without those of replicas and subscribers.
pub const QUESTION: &[&str] = &["CLIENT", "LIST", "TYPE", "normal"];

/// A connection whose last command is older than this does not count.
const WRITTEN_MAX: Duration = Duration::from_secs(60);

/// A connection to storage that is none of DistCache's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignConnection {
    pub address: String,
    /// Empty where storage knows no users, nor what it was asked last.
    pub user: String,
    /// As CLIENT SETNAME has it; may be empty.
    pub name: String,
    /// Its last one, in lower case.
    pub command: String,
}

impl ForeignConnection {
    /// Whether the other is of the same application, as far as it shows: host, user and name. Ports come and go.
    pub fn is_like(&self, other: &ForeignConnection) -> bool {
        let who = |connection: &ForeignConnection| {
            let host = connection.address.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
            (host, connection.user.clone(), connection.name.clone())
        };
        who(self) == who(other)
    }
}

impl fmt::Display for ForeignConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForeignConnection { address, user, name, command } = self;
        if user.is_empty() {
            return formatter.write_str(address);
        }
        write!(formatter, "{address} (user {user}")?;
        if !name.is_empty() {
            write!(formatter, ", name {name}")?;
        }
        write!(formatter, ", last command {})", command.to_ascii_uppercase().replace('|', " "))
    }
}

/// How surely a command of this name writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Scripts, transactions, and what writes only with an option.
    Maybe,
    Surely,
}

impl Writing {
    /// By a name as CLIENT LIST has it: `set`, `xgroup|create`.
    fn by(command: &str) -> Option<Writing> {
        let words: Vec<&str> = command.split('|').collect();
        let spec = resolve(&Command::from_args(&words)).ok()?;
        match spec.name {
            "exec" | "sort" | "georadius" | "georadiusbymember" | "getex" | "bitfield" => {
                Some(Writing::Maybe)
            }
            _ if spec.runs_script() && !spec.has(Flag::Readonly) => Some(Writing::Maybe),
            // What loads functions writes no keys.
            _ if spec.group == CommandGroup::Scripting => None,
            _ => spec.has(Flag::Write).then_some(Writing::Surely),
        }
    }
}

/// Connections in the text of CLIENT LIST that are none of DistCache's and have written within a minute. `seeks`: somebody must
/// have, so that those who may have count if nobody surely has.
pub fn foreign_connections(clients: &str, seeks: bool) -> Vec<ForeignConnection> {
    let (mut sure, mut possible) = (Vec::new(), Vec::new());
    for line in clients.lines() {
        let word = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let (Some(command), Some(user)) = (word("cmd"), word("user")) else { continue };
        let idle = word("idle").and_then(|idle| idle.parse().ok()).map(Duration::from_secs);
        if is_incarnation(user) || idle.is_some_and(|idle| idle > WRITTEN_MAX) {
            continue;
        }
        let own = |key| word(key).unwrap_or_default().to_owned();
        let found = || ForeignConnection {
            address: own("addr"),
            user: own("user"),
            name: own("name"),
            command: command.to_ascii_lowercase(),
        };
        match Writing::by(command) {
            Some(Writing::Surely) => sure.push(found()),
            Some(Writing::Maybe) if seeks => possible.push(found()),
            _ => {}
        }
    }
    if sure.is_empty() { possible } else { sure }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as Redis 7 has them, shortened.
    fn line(user: &str, idle: u64, command: &str) -> String {
        format!(
            "id=7 addr=10.0.0.7:4123 laddr=10.0.0.1:6379 name=app age=9 idle={idle} flags=N cmd={command} user={user} redir=-1\n"
        )
    }

    #[test]
    fn who_wrote_within_the_last_minute_is_a_writer() {
        for (command, idle, sure, possible) in [
            ("set", 0, true, true),
            ("SET", 60, true, true),
            ("set", 61, false, false),
            ("flushall", 0, true, true),
            ("xgroup|create", 0, true, true),
            ("eval", 0, false, true),
            ("exec", 0, false, true),
            ("sort", 0, false, true),
            ("eval_ro", 0, false, false),
            ("get", 0, false, false),
            ("info", 0, false, false),
            ("client|list", 0, false, false),
            ("function|load", 0, false, false),
            ("acl|setuser", 0, false, false),
            ("replconf", 0, false, false),
            ("publish", 0, false, false),
            ("NULL", 0, false, false),
        ] {
            let line = line("default", idle, command);
            assert_eq!(foreign_connections(&line, false).len(), usize::from(sure), "{line}");
            assert_eq!(foreign_connections(&line, true).len(), usize::from(possible), "{line}");
        }
        let own = line("distcache:demo:shim-0:00000000000000ab:1021:x", 0, "set");
        assert!(foreign_connections(&own, true).is_empty());
        let both = line("default", 0, "eval") + &line("default", 0, "del") + &own;
        assert_eq!(foreign_connections(&both, true).len(), 1);
        assert!(foreign_connections("-NOPERM\n\nid=1 cmd=set\n", true).is_empty());
    }

    #[test]
    fn writers_are_told_as_people_look_for_them() {
        let told = |line: &str| foreign_connections(line, false)[0].to_string();
        let line = line("app", 0, "xgroup|create");
        assert_eq!(told(&line), "10.0.0.7:4123 (user app, name app, last command XGROUP CREATE)");
        let connection = |line: &str| foreign_connections(line, false).remove(0);
        let is_like = |other: &str| connection(&line).is_like(&connection(other));
        assert!(is_like(&line.replace(":4123", ":4124").replace("xgroup|create", "set")));
        assert!(
            !is_like(&line.replace("10.0.0.7", "10.0.0.8")) && !is_like(&line.replace("name=app", "name="))
        );
        let nameless = line.replace("name=app", "name=");
        assert_eq!(told(&nameless), "10.0.0.7:4123 (user app, last command XGROUP CREATE)");
    }
}
