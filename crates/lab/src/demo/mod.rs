//! `distcache demo`: a whole cluster in this process, under load, drawn live. Not a benchmark of the machine.

mod arguments;
mod cluster;
mod cores;
mod directory;
mod figures;
mod hottest;
mod load;
mod picture;
mod play;
mod recent;
mod record;
mod redis;
mod sample;
mod screen;
mod script;
mod view;

use std::io::{self, Write};

use anyhow::Result;
use runtime::stop::Stop;

pub use arguments::DemoArguments;

use arguments::DemoStorage;
use cluster::DemoCluster;
use directory::TemporaryDirectory;
use play::Play;
use redis::Servers;

/// What the cache does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseKind {
    WithoutCache,
    WithCache,
}

impl PhaseKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PhaseKind::WithoutCache => "without cache",
            PhaseKind::WithCache => "with cache",
        }
    }

    pub(crate) fn other(self) -> PhaseKind {
        match self {
            PhaseKind::WithoutCache => PhaseKind::WithCache,
            PhaseKind::WithCache => PhaseKind::WithoutCache,
        }
    }
}

/// Runs the demonstration and prints its summary. Everything that it started is stopped however it ends.
pub fn run(arguments: DemoArguments) -> Result<()> {
    arguments.check().map_err(crate::terminal::mistake)?;
    let stop = Stop::on_signals()?;
    let directory = TemporaryDirectory::new()?;
    let servers = match arguments.storage {
        DemoStorage::Redis => Some(Servers::start(&directory, arguments.servers(), &stop)?),
        DemoStorage::Embedded => None,
    };
    let sockets = servers.as_ref().map_or(&[][..], |servers| &servers.sockets);
    load::allow_files()?;
    let mut cluster = DemoCluster::start(cluster::config(&arguments, &directory, sockets))?;
    let cast = cluster.cast();
    let linked = cluster.wait_until_linked(&stop);
    let played = linked.and_then(|()| Play::run(&arguments, &cast, &mut cluster, &stop));
    let stopped = cluster.stop();
    let (summary, errors) = played?;
    stopped?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&summary)?)?;
    } else {
        writeln!(out)?;
        picture::summary(&cast, &summary).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    errors.iter().try_for_each(|text| writeln!(io::stderr(), "the load met errors: {text}"))?;
    Ok(())
}
