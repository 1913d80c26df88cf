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
    log_format: logging::LogFormat,
    #[command(subcommand)]
    command: MainCommand,
}

#[derive(Debug, Subcommand)]
enum MainCommand {
    Demo(lab::demo::DemoArguments),
    Bench(lab::bench::BenchArguments),
    Proxy(proxy::ProxyArguments),
    Init(commands::init::InitArguments),
    Up(commands::up::UpArguments),
    Run(commands::run::RunArguments),
    Check(commands::check::CheckArguments),
    Doctor(commands::doctor::DoctorArguments),
    Status(commands::status::StatusArguments),
    Inspect(commands::inspect::InspectArguments),
    Top(commands::top::TopArguments),
    Drain(commands::drain::DrainArguments),
    Storage(commands::storage::StorageArguments),
    Purge(commands::purge::PurgeArguments),
    Token(commands::token::TokenArguments),
    Reload(commands::reload::ReloadArguments),
    Sim(lab::sim::SimArguments),
    Plan(lab::plan::PlanArguments),
    Policies(lab::policies::PoliciesArguments),
    Study(lab::study::StudyArguments),
    Reproduce(lab::reproduce::ReproduceArguments),
    Trace(lab::trace::TraceArguments),
    Flash(lab::flash::FlashArguments),
    Completions(commands::generate::Completions),
    Man(commands::generate::Man),
    Version(version::VersionArguments),
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return ExitCode::from(usage::print(&error, CommandLine::command())),
    };
    // Members of the demonstration come and go while others talk to them; that would spoil its picture.
    // The doctor says itself what is wrong.
    let quiet = matches!(line.command, MainCommand::Demo(_) | MainCommand::Doctor(_));
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

fn dispatch(command: MainCommand) -> anyhow::Result<()> {
    match command {
        MainCommand::Demo(arguments) => lab::demo::run(arguments),
        MainCommand::Bench(arguments) => lab::bench::run(arguments),
        MainCommand::Proxy(arguments) => proxy::run(&arguments),
        MainCommand::Init(arguments) => commands::init::run(&arguments),
        MainCommand::Up(arguments) => commands::up::run(&arguments),
        MainCommand::Run(arguments) => commands::run::run(&arguments),
        MainCommand::Check(arguments) => commands::check::run(&arguments),
        MainCommand::Doctor(arguments) => commands::doctor::run(&arguments),
        MainCommand::Status(arguments) => commands::status::run(&arguments),
        MainCommand::Inspect(arguments) => commands::inspect::run(&arguments),
        MainCommand::Top(arguments) => commands::top::run(&arguments),
        MainCommand::Drain(arguments) => commands::drain::run(&arguments),
        MainCommand::Storage(arguments) => commands::storage::run(&arguments),
        MainCommand::Purge(arguments) => commands::purge::run(&arguments),
        MainCommand::Token(arguments) => commands::token::run(&arguments),
        MainCommand::Reload(arguments) => commands::reload::run(&arguments),
        MainCommand::Plan(arguments) => lab::plan::run(&arguments),
        MainCommand::Policies(arguments) => lab::policies::run(&arguments),
        MainCommand::Sim(arguments) => lab::sim::run(&arguments),
        MainCommand::Study(arguments) => lab::study::run(&arguments),
        MainCommand::Reproduce(arguments) => lab::reproduce::run(&arguments),
        MainCommand::Trace(arguments) => lab::trace::run(&arguments),
        MainCommand::Flash(arguments) => lab::flash::run(&arguments),
        MainCommand::Completions(arguments) => arguments.run(&mut CommandLine::command()),
        MainCommand::Man(arguments) => arguments.run(CommandLine::command()),
        MainCommand::Version(arguments) => version::run(&arguments),
    }
}
