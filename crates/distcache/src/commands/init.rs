//! `distcache init`: asks the few facts that a cluster needs, or takes them as flags, and writes a configuration file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use anyhow::Context as _;
use config::Address;
use config::{Config, FrontProtocol};

use crate::launch::Loaded;
use crate::proxy::{self, Protocol, ProxyServers, quoted};
use lab::terminal::{BadInput, print, say};

/// Write a configuration file: asks what it needs to know, or takes it from the flags
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InitArguments {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "distcache.toml")]
    file: PathBuf,

    /// The storage servers: redis://HOST:PORT, redis+unix:///PATH, redis-cluster://H:P,H:P, memcached://HOST:PORT, ...;
    /// several after commas
    #[arg(long, env = "DISTCACHE_STORAGE", hide_env_values = true, value_name = "URL,URL")]
    storage: Vec<String>,

    /// Where clients connect: IP:PORT or unix:///PATH [default: 127.0.0.1:6380; memcached: 127.0.0.1:11212]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,

    /// What clients speak [default: as storage]
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,

    /// Cache nodes, in two layers [default: two for each server]
    #[arg(long, value_name = "N", value_parser = proxy::nodes)]
    nodes: Option<usize>,

    /// The CA that signs the certificates of rediss:// servers (PEM)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Overwrite the file if there is one
    #[arg(long)]
    force: bool,
}

/// What the file will say.
struct InitFacts {
    servers: ProxyServers,
    listen: Address,
    protocol: FrontProtocol,
    nodes: Option<usize>,
    ca_file: Option<PathBuf>,
}

pub(crate) fn run(arguments: &InitArguments) -> anyhow::Result<()> {
    let path = &arguments.file;
    let exists = || {
        BadInput::of(format!(
            "{}: the file exists; name another one, or overwrite it with --force",
            path.display()
        ))
    };
    if path.exists() && !arguments.force {
        return Err(exists());
    }
    let facts = facts(arguments)?;
    let text = text(&facts)?;
    // No secret is needed to see that the rest is right.
    let with_secret = format!("{text}\n[cluster]\nsecret = \"{}\"\n", "0".repeat(32));
    Config::parse(&with_secret).and_then(Loaded::new).map_err(BadInput::of)?;
    let mut options = File::options();
    // A login is nobody else's to read.
    let with_login = facts.servers.0.iter().any(|server| server.url.contains('@'));
    options.mode(if with_login { 0o600 } else { 0o644 });
    options.write(true).create(arguments.force).truncate(arguments.force).create_new(!arguments.force);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists()),
        written => written.with_context(|| format!("{}: cannot be written", path.display()))?,
    }
    let shown = path.display();
    print(&format!("{shown} is written. Next:"));
    print(&format!("  distcache check --config {shown}    # what it leaves out and is assumed"));
    print(&format!(
        "  distcache up --config {shown}       # runs it; the first start makes the secret beside the file"
    ));
    Ok(())
}

fn facts(arguments: &InitArguments) -> anyhow::Result<InitFacts> {
    if arguments.storage.is_empty() {
        if !io::stdin().is_terminal() {
            return Err(BadInput::of(
                "there is no terminal to ask at: write --storage redis://HOST:PORT,redis://HOST:PORT",
            ));
        }
        return ask(arguments, &mut io::stdin().lock());
    }
    let servers = ProxyServers::parse("--storage", &arguments.storage)?;
    proxy::check_ca(&servers, arguments.ca_file.as_deref())?;
    let protocol = proxy::protocol(arguments.protocol, &servers)?;
    let listen = arguments.listen.clone().unwrap_or_else(|| proxy::listen(protocol));
    Ok(InitFacts { servers, listen, protocol, nodes: arguments.nodes, ca_file: arguments.ca_file.clone() })
}

/// What flags say already is not asked.
fn ask(arguments: &InitArguments, input: &mut impl BufRead) -> anyhow::Result<InitFacts> {
    let servers =
        question(input, "Storage servers (URLs, commas between them)", "redis://127.0.0.1:6379", |text| {
            ProxyServers::parse("storage", &[text.to_owned()]).map_err(|error| error.to_string())
        })?;
    let ca_file = match &arguments.ca_file {
        None if servers.wants_tls() => {
            Some(question(input, "The CA that signs their certificates (a PEM file)", "ca.crt", ca_file)?)
        }
        given => given.clone(),
    };
    proxy::check_ca(&servers, ca_file.as_deref())?;
    let protocol = proxy::protocol(arguments.protocol, &servers)?;
    let listen = match &arguments.listen {
        Some(listen) => listen.clone(),
        None => {
            let usual = proxy::listen(protocol).to_string();
            question(input, "Where clients connect", &usual, |text| {
                text.parse::<Address>().map_err(|error| error.to_string())
            })?
        }
    };
    let usual = 2 * servers.0.len();
    let nodes = match arguments.nodes {
        Some(nodes) => Some(nodes),
        None => Some(question(input, "Cache nodes", &usual.to_string(), proxy::nodes)?)
            .filter(|nodes| *nodes != usual),
    };
    Ok(InitFacts { servers, listen, protocol, nodes, ca_file })
}

fn ca_file(text: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(text) {
        Ok(found) if found.is_file() => Ok(PathBuf::from(text)),
        Ok(_) => Err(format!("{text} is no file")),
        Err(error) => Err(format!("{text}: {error}")),
    }
}

/// Asks again until the answer makes sense; an empty one is `usual`.
fn question<T>(
    input: &mut impl BufRead,
    what: &str,
    usual: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<T> {
    loop {
        write!(io::stderr().lock(), "{what} [{usual}]: ").context("cannot ask")?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Err(BadInput::of(
                "the input ended before every question was answered; nothing is written",
            ));
        }
        let answer = Some(line.trim()).filter(|answer| !answer.is_empty()).unwrap_or(usual);
        match parse(answer) {
            Ok(answer) => return Ok(answer),
            Err(error) => say(&error),
        }
    }
}

fn text(facts: &InitFacts) -> anyhow::Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "# A DistCache cluster: `distcache check --config FILE` shows what this file leaves out and is assumed,\n\
         # `distcache up --config FILE` runs all of it, `distcache run --config FILE --id ID` one member.\n\
         #\n\
         # The first start makes the cluster's secret and keeps it beside this file, with the ending .secret: it places\n\
         # every key, so keep it, and copy it along with this file.\n\n\
         # The storage servers. Nobody else may write to them. With several of plain Redis, their number and order place\n\
         # every key: change neither once there are data.\n\
         # A login goes into the URL: redis://USER:PASSWORD@HOST:PORT"
    )?;
    for server in &facts.servers.0 {
        writeln!(out, "[[shim]]\nstorage = {}", quoted(&server.url))?;
    }
    if let Some(file) = &facts.ca_file {
        let file = quoted(std::path::absolute(file)?.display());
        writeln!(out, "\n# The CA that signs the servers' certificates.\n[tls.storage]\nca_file = {file}")?;
    }
    writeln!(out, "\n# Where clients connect.\n[[router]]\nlisten = {}", quoted(&facts.listen))?;
    if facts.protocol == FrontProtocol::Memcached {
        writeln!(out, "protocol = \"memcached\"")?;
    }
    writeln!(out, "# admin = \"127.0.0.1:6390\"        # /metrics, /health, /ready\n")?;
    writeln!(
        out,
        "# Status and metrics: http://127.0.0.1:7000\n[[controller]]\nlisten = \"127.0.0.1:7000\"\n"
    )?;
    match facts.nodes {
        None => writeln!(
            out,
            "# Cache nodes: two for each server are assumed, a leaf node and a spine node. List [[node]] entries to have\n\
             # others."
        )?,
        Some(nodes) => write_nodes(&mut out, nodes)?,
    }
    Ok(out)
}

fn write_nodes(out: &mut String, nodes: usize) -> std::fmt::Result {
    writeln!(
        out,
        "# The cache: a key has at most one copy in each layer, at nodes that two independent hashes choose."
    )?;
    let layers = [("leaf", nodes.div_ceil(2)), ("spine", nodes / 2)];
    for (name, _) in layers.iter().filter(|(_, count)| *count > 0) {
        writeln!(out, "[[layer]]\nname = \"{name}\"\npartition = \"hash\"")?;
    }
    writeln!(
        out,
        "# Each holds at most objects_max = 10000 objects in bytes_max = \"64MiB\", unless it says otherwise."
    )?;
    for (name, count) in layers {
        (0..count).try_for_each(|_| writeln!(out, "[[node]]\nlayer = \"{name}\""))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(flags: &[&str]) -> InitArguments {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: InitArguments,
        }
        let line = std::iter::once("init").chain(flags.iter().copied());
        <Line as clap::Parser>::parse_from(line).arguments
    }

    fn parse(text: &str) -> Config {
        let text = format!("{text}\n[cluster]\nsecret = \"{}\"\n", "0".repeat(32));
        Config::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_file_says_what_was_asked_for() {
        let check = |flags: &[&str], shims: usize, nodes: usize, listen: &str| {
            let config = parse(&text(&facts(&arguments(flags)).expect("facts")).expect("a file"));
            assert_eq!((config.shims.len(), config.nodes.len()), (shims, nodes), "{flags:?}");
            assert_eq!(config.routers[0].listen, listen.parse().ok(), "{flags:?}");
            assert_eq!(config.controllers.len(), 1);
        };
        let two = "redis://:p\"w\\@127.0.0.1:6391,redis://127.0.0.1:6392";
        check(&["--storage", two], 2, 4, "127.0.0.1:6380");
        check(
            &["--storage", two, "--nodes", "1", "--listen", "unix:///run/x.sock"],
            2,
            1,
            "unix:///run/x.sock",
        );
        check(&["--storage", two, "--nodes", "64"], 2, 64, "127.0.0.1:6380");
        check(&["--storage", "memcached://127.0.0.1"], 1, 2, "127.0.0.1:11212");
        check(&["--storage", two, "--protocol", "memcached"], 2, 4, "127.0.0.1:11212");
    }

    #[test]
    fn questions_have_usual_answers_and_are_asked_again() {
        let mut input =
            io::Cursor::new("redis://127.0.0.1:1,redis://127.0.0.1:2\nnowhere\n127.0.0.1:7777\n0\n3\n");
        let asked = ask(&arguments(&[]), &mut input).expect("facts");
        assert_eq!((asked.servers.0.len(), asked.listen.to_string().as_str()), (2, "127.0.0.1:7777"));
        assert_eq!(asked.nodes, Some(3));
        let usual = ask(&arguments(&[]), &mut io::Cursor::new("\n\n\n")).expect("facts");
        assert_eq!((usual.servers.names().as_str(), usual.nodes), ("redis://127.0.0.1:6379", None));
        assert!(ask(&arguments(&[]), &mut io::Cursor::new("\n")).is_err());
    }
}
