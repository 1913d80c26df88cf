//! What every command writes and how it fails: lines for standard output and error, and mistakes of whoever asked. Not
//! what a command says.

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// What was asked for makes no sense: exit code 2, as for flags that do not parse.
#[derive(Debug)]
pub struct BadInput(pub String);

impl BadInput {
    /// Why something cannot be done as asked for.
    pub fn of(error: impl std::fmt::Display) -> anyhow::Error {
        BadInput(error.to_string()).into()
    }
}

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// An error about what somebody asked for, with all that it says.
pub fn mistake(error: anyhow::Error) -> anyhow::Error {
    BadInput(format!("{error:#}")).into()
}

/// Who reads what this command writes has seen enough: the end of the command, and no error.
#[derive(Debug)]
pub struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output has gone")
    }
}

impl std::error::Error for ReaderGone {}

/// Why not all that was printed is there.
static PRINTING: OnceLock<io::Error> = OnceLock::new();

/// Writes one line to stdout at once. A reader that has gone away is not an error worth dying for; for any other,
/// `printed` tells.
pub fn print(line: &str) {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => drop(PRINTING.set(error)),
        _ => {}
    }
}

/// Whether everything has been printed so far.
pub fn printed() -> anyhow::Result<()> {
    PRINTING.get().map_or(Ok(()), |error| Err(anyhow::anyhow!("standard output: {error}")))
}

/// Writes one line to stderr.
pub fn say(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}
