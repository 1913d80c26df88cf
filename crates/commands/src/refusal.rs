//! Why a command is not carried out, in the words that its client reads.

use wire::resp::Command;

use super::reason::RefusalReason;
use super::table::REDIS_VERSION;

/// Redis shows at most so many bytes of a name and of the arguments.
const SHOWN_BYTES_MAX: usize = 128;

/// `Display` is the text of the error reply, its code included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    #[error(
        "ERR unknown command '{name}', with args beginning with: {args} (DistCache knows the commands of Redis {})",
        REDIS_VERSION
    )]
    UnknownCommand { name: Box<str>, args: Box<str> },
    #[error("ERR unknown subcommand '{name}'. Try {container} HELP.")]
    UnknownSubcommand { container: Box<str>, name: Box<str> },
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    #[error("ERR Bad number of keys provided")]
    BadKeyCount,
    #[error("ERR Number of keys can't be negative")]
    NegativeKeyCount,
    #[error("ERR Number of keys can't be greater than number of args")]
    TooManyKeys,
    #[error("ERR numkeys should be greater than 0")]
    KeyCountNotPositive,
    #[error("ERR at least 1 input key is needed for '{0}' command")]
    NoInputKey(&'static str),
    #[error("ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.")]
    UnbalancedStreams,
    #[error("ERR This instance has cluster support disabled")]
    NoCluster,
    #[error("ERR DistCache does not carry '{name}': {reason}")]
    Unsupported { name: &'static str, reason: RefusalReason },
}

impl CommandRefusal {
    pub(super) fn unknown_command(command: &Command) -> CommandRefusal {
        let mut args = String::new();
        for arg in command.args().skip(1) {
            let Some(left) = SHOWN_BYTES_MAX.checked_sub(args.len()).filter(|left| *left > 0) else { break };
            args.push('\'');
            args.push_str(&shown(arg, left));
            args.push_str("' ");
        }
        CommandRefusal::UnknownCommand {
            name: shown(command.name(), SHOWN_BYTES_MAX).into(),
            args: args.into(),
        }
    }

    /// For a command whose second argument names no subcommand of its first.
    pub fn unknown_subcommand(command: &Command) -> CommandRefusal {
        let container = shown(command.name(), SHOWN_BYTES_MAX).to_ascii_uppercase().into();
        let name = command.get(1).map(|name| shown(name, SHOWN_BYTES_MAX)).unwrap_or_default();
        CommandRefusal::UnknownSubcommand { container, name: name.into() }
    }

    pub(super) fn unsupported(name: &'static str, reason: RefusalReason) -> CommandRefusal {
        match reason {
            RefusalReason::Cluster => CommandRefusal::NoCluster,
            reason => CommandRefusal::Unsupported { name, reason },
        }
    }
}

/// At most `bytes_max` bytes, up to a NUL (Redis prints C strings), with line breaks as blanks.
fn shown(text: &[u8], bytes_max: usize) -> String {
    let text = &text[..text.len().min(bytes_max)];
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use wire::resp::Command;

    use super::CommandRefusal;

    #[test]
    fn unknown_commands_are_shown_as_redis_shows_them_and_cut() {
        let long = "x".repeat(200);
        let text =
            CommandRefusal::unknown_command(&Command::from_args(&["fo\r\no", "a", "b\nc"])).to_string();
        assert!(
            text.starts_with("ERR unknown command 'fo  o', with args beginning with: 'a' 'b c' "),
            "{text}"
        );
        let text = CommandRefusal::unknown_command(&Command::from_args(&[&long, &long, &long])).to_string();
        assert!(text.contains(&format!("'{}', with", "x".repeat(128))), "{text}");
        assert!(text.contains(&format!("with: '{}'  (", "x".repeat(128))), "{text}");
        let text = CommandRefusal::unknown_subcommand(&Command::from_args(&["config", "nO"])).to_string();
        assert_eq!(text, "ERR unknown subcommand 'nO'. Try CONFIG HELP.");
    }
}
