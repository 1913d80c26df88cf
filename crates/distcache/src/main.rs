//! The `distcache` command line: parses, dispatches, turns errors into one line and an exit code. No rule of the protocol.

mod commands;
mod guard;
mod launch;
mod logging;
mod proxy;
mod usage;
mod version;

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use lab::terminal;

/// Flags of every command come last in its help.
const LOGGING: &str = "Logging";

/// One big coherent cache in front of Redis: hot keys no longer melt one server.
///
/// Unmodified Redis clients connect to a router; shims stand in front of the storage servers; cache nodes in layers
/// hold the hot objects. All of it is described by one TOML file.
#[derive(Debug, Parser)]
#[command(name = "distcache", version = version::LONG, propagate_version = true)]
struct CommandLine {
    /// What to log on stderr: error, warn, info, debug, trace, or a filter such as info,router=debug
    /// [default: warn; demo and doctor: error]
    #[arg(long, global = true, env = "DISTCACHE_LOG", value_name = "FILTER", help_heading = LOGGING)]
    log: Option<String>,
    /// How log lines look
    #[arg(
        long,
        global = true,
        env = "DISTCACHE_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        help_heading = LOGGING
    )]
    log_format: logging::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(lab::demo::Arguments),
    Bench(lab::bench::Arguments),
    Proxy(proxy::Arguments),
    Init(commands::init::Arguments),
    Up(commands::up::Arguments),
    Run(commands::run::Arguments),
    Check(commands::check::Arguments),
    Doctor(commands::doctor::Arguments),
    Status(commands::status::Arguments),
    Inspect(commands::inspect::Arguments),
    Top(commands::top::Arguments),
    Drain(commands::drain::Arguments),
    Purge(commands::purge::Arguments),
    Reload(commands::reload::Arguments),
    Sim(lab::sim::Arguments),
    Plan(lab::plan::Arguments),
    Policies(lab::policies::Arguments),
    Study(lab::study::Arguments),
    Reproduce(lab::reproduce::Arguments),
    Trace(lab::trace::Arguments),
    Flash(lab::flash::Arguments),
    Completions(commands::generate::Completions),
    Man(commands::generate::Man),
    Version(version::Arguments),
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return ExitCode::from(usage::print(&error, CommandLine::command())),
    };
    // Members of the demonstration come and go while others talk to them; that would spoil its picture.
    // The doctor says itself what is wrong.
    let quiet = matches!(line.command, Command::Demo(_) | Command::Doctor(_));
    let default = if quiet { "error" } else { "warn" };
    let done = logging::start(line.log.as_deref(), default, line.log_format)
        .and_then(|()| dispatch(line.command))
        .and_then(|()| terminal::printed());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<terminal::ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            // Where an exit code says it all, there is nothing to add to what was printed.
            if !error.is::<commands::MembersLost>() {
                terminal::say(&format!("distcache: {error:#}"));
            }
            exit_code(&error)
        }
    }
}

/// 2 for mistakes on the command line and in files, 3 where a member is lost, 1 for work that failed.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    let mistake =
        |cause: &(dyn Error + 'static)| cause.is::<terminal::BadInput>() || cause.is::<config::ConfigError>();
    match () {
        () if error.is::<commands::MembersLost>() => ExitCode::from(3),
        // The context of an error is asked for by itself: it stands in no chain.
        () if error.is::<terminal::BadInput>() || error.chain().any(mistake) => ExitCode::from(2),
        () => ExitCode::FAILURE,
    }
}

fn dispatch(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(arguments) => lab::demo::run(arguments),
        Command::Bench(arguments) => lab::bench::run(arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Init(arguments) => commands::init::run(&arguments),
        Command::Up(arguments) => commands::up::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Status(arguments) => commands::status::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Top(arguments) => commands::top::run(&arguments),
        Command::Drain(arguments) => commands::drain::run(&arguments),
        Command::Purge(arguments) => commands::purge::run(&arguments),
        Command::Reload(arguments) => commands::reload::run(&arguments),
        Command::Plan(arguments) => lab::plan::run(&arguments),
        Command::Policies(arguments) => lab::policies::run(&arguments),
        Command::Sim(arguments) => lab::sim::run(&arguments),
        Command::Study(arguments) => lab::study::run(&arguments),
        Command::Reproduce(arguments) => lab::reproduce::run(&arguments),
        Command::Trace(arguments) => lab::trace::run(&arguments),
        Command::Flash(arguments) => lab::flash::run(&arguments),
        Command::Completions(arguments) => arguments.run(&mut CommandLine::command()),
        Command::Man(arguments) => arguments.run(CommandLine::command()),
        Command::Version(arguments) => version::run(&arguments),
    }
}
