//! Mistakes on the command line in sentences: what the parser says, and what to write. Not what the arguments mean.

use std::io::IsTerminal;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

/// The parser's words for numbers that are none, and ours.
const NUMBERS: [(&str, &str); 4] = [
    ("invalid digit found in string", "write a whole number, such as 10"),
    ("invalid float literal", "write a number, such as 0.5"),
    ("cannot parse float from empty string", "write a number, such as 0.5"),
    ("cannot parse integer from empty string", "write a whole number, such as 10"),
];
const MORE: &str = "\nFor more information";

/// Prints what the parser found, help and version included; the exit code.
pub(crate) fn print(error: &Error, mut command: Command) -> u8 {
    if !error.use_stderr() {
        // Nobody reads any more: nothing to tell.
        let _ = error.print();
        return 0;
    }
    // Before that its arguments cannot be shown.
    command.build();
    let rendered = error.render();
    let text = match std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    let text = NUMBERS.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours));
    let hints: String = hints(error, &command).into_iter().map(|hint| format!("\n  {hint}\n")).collect();
    let text = match text.rfind(MORE).filter(|_| !hints.is_empty()) {
        Some(end) => {
            format!("{}{}{}", text[..end].trim_end_matches('\n').to_owned() + "\n", hints, &text[end..])
        }
        None => text,
    };
    lab::terminal::say(text.trim_end());
    2
}

/// What to write, from the descriptions of the arguments concerned.
fn hints(error: &Error, command: &Command) -> Vec<String> {
    let command = deepest(command);
    let named: Vec<String> = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    };
    match error.kind() {
        ErrorKind::MissingRequiredArgument | ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let arguments = command.get_arguments().filter(|argument| named.contains(&argument.to_string()));
            arguments.filter_map(description).collect()
        }
        ErrorKind::UnknownArgument
            if command.get_arguments().any(|argument| argument.get_id() == "config") =>
        {
            let files = named.iter().filter(|name| name.ends_with(".toml"));
            files.map(|file| format!("tip: write --config {file}")).collect()
        }
        _ => Vec::new(),
    }
}

/// The subcommand that the command line names.
fn deepest(command: &Command) -> &Command {
    let words = std::env::args().skip(1);
    words.fold(command, |command, word| command.find_subcommand(&word).unwrap_or(command))
}

fn description(argument: &Arg) -> Option<String> {
    let help = argument.get_help()?.to_string().replace('\n', " ");
    let variable = argument.get_env().map(|name| format!(" [or the variable {}]", name.to_string_lossy()));
    Some(format!("{argument}: {help}{}", variable.unwrap_or_default()))
}
