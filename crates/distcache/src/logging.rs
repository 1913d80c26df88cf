//! Where log lines go and how they look. Who writes them says so with a span: `id` and `role` of a member.

use std::io::IsTerminal;
use std::sync::OnceLock;

use config::{Config, Member};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt, reload};

use lab::terminal::BadInput;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    /// One object for each line.
    Json,
}

/// What the configuration may change; nothing if the command line says what to log.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// `filter` as the command line has it.
pub(crate) fn start(filter: Option<&str>, default: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter_text = filter.unwrap_or(default);
    let wanted = parse(filter_text).map_err(|error| {
        BadInput::of(format!(
            "--log {filter_text:?} (or DISTCACHE_LOG): {error}; write for example info,router=debug"
        ))
    })?;
    let (wanted, handle) = reload::Layer::new(wanted);
    if filter.is_none() {
        // There is one process and one start.
        let _ = FILTER.set(handle);
    }
    let lines = match format {
        LogFormat::Text => {
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let colours = wanted && std::io::stderr().is_terminal();
            fmt::layer().with_ansi(colours).with_writer(std::io::stderr).boxed()
        }
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(std::io::stderr)
            .boxed(),
    };
    tracing_subscriber::registry().with(wanted).with(lines).init();
    Ok(())
}

/// A level, or a list of TARGET=LEVEL. A single word that is no level would silence everything.
pub(crate) fn parse(filter: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| {
        LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word)) || word.parse::<u8>().is_ok()
    };
    let mut words = filter.split(',').map(str::trim).filter(|word| !word.contains(['=', '[']));
    if let Some(word) = words.find(|word| !word.is_empty() && !is_level(word)) {
        return Err(format!("{word:?} is no level: error, warn, info, debug or trace, or TARGET=LEVEL"));
    }
    EnvFilter::try_new(filter).map_err(|error| error.to_string())
}

/// What the log lines of a process say that are not about one of its members: who they are, or that they are several.
pub(crate) fn process(config: &Config, ids: &[&str]) -> tracing::Span {
    let role = match ids {
        [id] => match config.member(id) {
            Some(Member::Controller(_)) => "controller",
            Some(Member::Node(_)) => "node",
            Some(Member::Shim(_)) => "shim",
            Some(Member::Router(_)) => "router",
            None => "process",
        },
        _ => "process",
    };
    tracing::error_span!("member", id = ids.join(" "), role)
}

/// Logs what the configuration says from now on, if it says anything and the command line does not.
pub(crate) fn follow(config: &Config) {
    let (Some(handle), Some(filter)) = (FILTER.get(), &config.log.filter) else { return };
    match parse(filter) {
        Ok(wanted) => drop(handle.reload(wanted)),
        Err(error) => tracing::error!("[log] filter = {filter:?}: {error}; write for example \"info\""),
    }
}
