//! `distcache proxy`: everything that one set of storage servers needs, in this process. What it runs is a plan's.

mod plan;
mod servers;
mod state;

use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use config::Address;
use config::{Config, FrontProtocol};
use runtime::stop::Stop;
use shim::survey::ServerSeen;

use crate::guard::{self, GuardDemand, KeysElsewhere};
use crate::launch::{self, Loaded, RunningMembers};
use lab::terminal::{BadInput, print, say};
pub(crate) use plan::quoted;
use plan::{ProxyPlan, cluster_name};
pub(crate) use servers::ProxyServers;
use state::ProxyState;

/// More nodes than cores take turns on them.
const NODES_MAX: usize = 64;
const NODES_MIN: usize = 2;
const NODES_USUAL_MAX: usize = 16;
/// As `[near] objects_max`.
const NEAR_MAX: usize = 1 << 16;
const CONTROLLER: &str = "127.0.0.1:7000";
/// Further ports that are tried where the controller's is taken and none was asked for.
const CONTROLLER_TRIES: u16 = 20;
/// How long the first clients are spared errors; storage may be down for longer.
const SERVING_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// What it was started with is for one process alone: its lock, and what it tells at its start.
static NO_UPGRADE: AtomicBool = AtomicBool::new(false);
/// How long servers may take to answer that are started just before.
const STARTING_MAX: Duration = Duration::from_secs(10);
const STARTING_POLL: Duration = Duration::from_millis(100);

/// Run DistCache before the servers that you have: one command, no file
///
/// Router, cache nodes, shims and a controller in this process; clients connect to --listen instead of the server.
/// Prints what it assumed, and `ready` once it serves. Several servers must be empty at the first start, or hold what
/// DistCache has put there; one server or a Redis Cluster may hold anything. Nobody else may write to them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProxyArguments {
    /// The servers: redis://HOST:PORT, redis+unix:///PATH, redis-cluster://H:P,H:P, redis+sentinel://H:P,H:P/NAME (with
    /// TLS: rediss...), memcached://HOST:PORT; several after commas. Logins stand in the URLs: redis://USER:PASSWORD@H:P
    #[arg(long, env = "DISTCACHE_STORAGE", hide_env_values = true, value_name = "URL,URL", required = true)]
    storage: Vec<String>,

    /// Where clients connect: IP:PORT or unix:///PATH [default: 127.0.0.1:6380; memcached: 127.0.0.1:11212]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,

    /// What clients speak [default: as storage]
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,

    /// Cache nodes, each a thread, in two layers [default: as many as there are cores, 2 to 16]
    #[arg(long, value_name = "N", value_parser = nodes)]
    nodes: Option<usize>,

    /// Threads of the router, behind one address [default: half as many as there are cores, 1 to 8]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,

    /// Hottest objects that each thread of the router holds itself and answers without a hop [default: 0]
    #[arg(long, value_name = "N", value_parser = near)]
    near: Option<usize>,

    /// Where the controller serves status and metrics [default: 127.0.0.1:7000, or the next port that is free]
    #[arg(long, value_name = "IP:PORT")]
    controller: Option<SocketAddr>,

    /// Serve /metrics, /health and /ready here
    #[arg(long, value_name = "IP:PORT")]
    admin: Option<SocketAddr>,

    /// The CA that signs the certificates of rediss:// servers (PEM)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Allow addresses that other machines reach, although nothing is encrypted and nobody is asked for a password
    #[arg(long)]
    insecure_listen: bool,

    /// Where secrets are kept, a folder for each set of servers; another secret would lose the keys
    /// [default: $XDG_STATE_HOME/distcache or ~/.local/state/distcache]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,

    /// Take the servers over as they are, whatever their marks say and wherever their keys lie
    #[arg(long)]
    adopt: bool,

    /// Print the configuration file that does the same, and run nothing
    #[arg(long)]
    print_config: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Redis,
    Memcached,
}

pub(crate) fn nodes(text: &str) -> Result<usize, String> {
    number(text, 1..=NODES_MAX)
}

fn threads(text: &str) -> Result<usize, String> {
    number(text, 1..=usize::from(config::THREADS_MAX))
}

fn near(text: &str) -> Result<usize, String> {
    number(text, 0..=NEAR_MAX)
}

fn number(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write {} to {}", range.start(), range.end()))
}

/// What clients speak, unless somebody has said so.
pub(crate) fn protocol(asked: Option<Protocol>, servers: &ProxyServers) -> anyhow::Result<FrontProtocol> {
    match (asked, servers.is_memcached()) {
        (Some(Protocol::Redis), true) => Err(BadInput::of(
            "--protocol redis: memcached:// storage knows no Redis commands; leave it away, or name Redis servers",
        )),
        (Some(Protocol::Memcached), _) | (None, true) => Ok(FrontProtocol::Memcached),
        (Some(Protocol::Redis) | None, _) => Ok(FrontProtocol::Redis),
    }
}

/// Where clients connect, unless somebody has said so.
pub(crate) fn listen(protocol: FrontProtocol) -> Address {
    let port = match protocol {
        FrontProtocol::Redis => 6380,
        FrontProtocol::Memcached => 11212,
    };
    Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
}

pub(crate) fn run(arguments: &ProxyArguments) -> anyhow::Result<()> {
    let plan = plan(arguments)?;
    let state = ProxyState::open(arguments.state.as_deref(), &plan.servers)?;
    if arguments.print_config {
        let text = plan.text(&state, &cluster_name(state.secret()?))?;
        Config::parse(&text).and_then(Loaded::new).map_err(BadInput::of)?;
        print(text.trim_end());
        return Ok(());
    }
    let _lock = state.lock()?;
    let secret = state.secret()?;
    let text = plan.text(&state, &cluster_name(secret))?;
    let first_life = !state.has_served(secret)?;
    let mut parsed = Config::parse(&text).map_err(BadInput::of)?;
    (parsed.first_life, parsed.adopts) = (first_life || arguments.adopt, arguments.adopt);
    let loaded = Loaded::new(parsed).map_err(BadInput::of)?;
    let config = &loaded.config;
    let ids: Vec<&str> = config.member_ids().collect();
    let _process = crate::logging::process(config, &ids).entered();
    let stop = Stop::on_signals()?;
    let seen = inspect(&plan, &loaded, &ids, first_life, &stop).map_err(|error| {
        match error.is::<KeysElsewhere>() && first_life {
            true => error.context(format!(
                "nothing was served before with the secret in {} (--state DIR names another place)",
                state.secret_path().display()
            )),
            false => error,
        }
    })?;
    state.keep_served(secret)?;
    tell(&plan, &state, config, &seen);
    serve(&loaded, &ids, &stop)
}

/// Looks whether the servers may be served. At the first start all of several have to be seen.
fn inspect(
    plan: &ProxyPlan,
    loaded: &Loaded,
    ids: &[&str],
    is_first: bool,
    stop: &Stop,
) -> anyhow::Result<Vec<ServerSeen>> {
    let needs_all = is_first && plan.servers.is_divided();
    let seen = look(loaded, ids, needs_all, stop)?;
    if needs_all {
        guard::check_all_seen(&seen)?;
    }
    Ok(seen)
}

/// Says what is assumed, and what could not be looked at.
fn tell(plan: &ProxyPlan, state: &ProxyState, config: &Config, seen: &[ServerSeen]) {
    plan.assumptions(state, config).iter().for_each(|line| say(line));
    if plan.servers.is_memcached() {
        say("note     memcached does not tell its keys: where they lie was not looked at");
    }
    for seen in seen {
        if let Some(trouble) = &seen.trouble {
            say(&format!("note     {} could not be looked at: {trouble}", seen.address));
        }
        if let Some(untold) = &seen.others_untold {
            say(&format!(
                "note     whether another DistCache is connected to {} is unknown: {untold}",
                seen.address
            ));
        }
    }
}

fn serve(loaded: &Loaded, ids: &[&str], stop: &Stop) -> anyhow::Result<()> {
    let running = launch::launch(loaded, ids, stop)?;
    if let Err(error) = guard::check_alone(loaded) {
        stop.stop();
        drop(running.wait(stop, &NO_UPGRADE));
        return Err(error);
    }
    if let Some(lacking) = awaited(&running, stop) {
        say(&format!("note     {lacking}; clients get errors until it is"));
    }
    launch::tell_ready();
    running.wait(stop, &NO_UPGRADE)
}

/// Looks at the servers; again and again for a while, if all are needed and some are not there yet.
fn look(loaded: &Loaded, ids: &[&str], needs_all: bool, stop: &Stop) -> anyhow::Result<Vec<ServerSeen>> {
    let started = Instant::now();
    let mut is_told = false;
    loop {
        let seen = guard::check(loaded, ids, GuardDemand::All, stop)?;
        let absent = seen.iter().find(|seen| seen.trouble.is_some() && !seen.has_answered);
        let Some(absent) = absent.filter(|_| needs_all && started.elapsed() < STARTING_MAX) else {
            return Ok(seen);
        };
        if !std::mem::replace(&mut is_told, true) {
            let trouble = absent.trouble.as_deref().unwrap_or_default();
            say(&format!("waiting  for {}: {trouble}", absent.address));
        }
        if stop.wait_timeout(STARTING_POLL) {
            return Ok(seen);
        }
    }
}

/// Waits until clients are served; what that still lacks when the patience ends.
fn awaited(running: &RunningMembers, stop: &Stop) -> Option<String> {
    let started = Instant::now();
    loop {
        let lacking = running.lacks()?;
        if started.elapsed() > SERVING_MAX || stop.wait_timeout(POLL) {
            return Some(lacking);
        }
    }
}

fn plan(arguments: &ProxyArguments) -> anyhow::Result<ProxyPlan> {
    let servers = ProxyServers::parse("--storage", &arguments.storage)?;
    let protocol = protocol(arguments.protocol, &servers)?;
    let cores = std::thread::available_parallelism().map_or(NODES_MIN, usize::from);
    let controller = match arguments.controller {
        Some(controller) => controller,
        None => controller(!arguments.print_config)?,
    };
    let plan = ProxyPlan {
        listen: arguments.listen.clone().unwrap_or_else(|| listen(protocol)),
        nodes: arguments.nodes.unwrap_or(cores.clamp(NODES_MIN, NODES_USUAL_MAX)),
        threads: arguments.threads,
        near: arguments.near.unwrap_or(0),
        servers,
        protocol,
        controller,
        admin: arguments.admin,
        ca_file: arguments.ca_file.clone(),
        insecure_listen: arguments.insecure_listen,
    };
    check(&plan)?;
    Ok(plan)
}

/// In the words of flags; the configuration would be refused in those of its sections.
fn check(plan: &ProxyPlan) -> anyhow::Result<()> {
    let addresses = [
        ("--listen", Some(plan.listen.clone())),
        ("--controller", Some(Address::Tcp(plan.controller))),
        ("--admin", plan.admin.map(Address::Tcp)),
    ];
    for (flag, address) in addresses {
        if let Some(address) = address.filter(|address| !address.is_local() && !plan.insecure_listen) {
            return Err(BadInput::of(format!(
                "{flag} {address}: reachable from other machines, and nothing is encrypted and nobody asked for a \
                 password; write a loopback address, or add --insecure-listen in a network that you trust; for TLS and \
                 users begin with the file that --print-config prints"
            )));
        }
    }
    check_ca(&plan.servers, plan.ca_file.as_deref())
}

pub(crate) fn check_ca(servers: &ProxyServers, ca_file: Option<&Path>) -> anyhow::Result<()> {
    match (servers.wants_tls(), ca_file) {
        (true, None) => Err(BadInput::of(
            "--ca-file is missing: --storage has servers with TLS; name the CA that signs their certificates (PEM)",
        )),
        (false, Some(file)) => Err(BadInput::of(format!(
            "--ca-file {}: no server of --storage has TLS; write rediss:// instead of redis://",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// Several proxies on one machine are usual, and nobody looks for the port of their controllers.
fn controller(now: bool) -> anyhow::Result<SocketAddr> {
    let first: SocketAddr = CONTROLLER.parse()?;
    let ports = first.port()..=first.port() + CONTROLLER_TRIES;
    let mut addresses = ports.map(|port| SocketAddr::new(first.ip(), port));
    let free = addresses.find(|address| TcpListener::bind(address).is_ok());
    Ok(free.filter(|_| now).unwrap_or(first))
}
