//! Keys that change their storage server during a round: one mover after the other (`distcache storage add`, then `remove`, and so on), killed
//! now and then, and what has to be so when keys rest again. Not what else goes wrong.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::cluster::{LayoutRole, MemberProcess, ProcessCluster, ask, client, mortal};

/// What the file of a new cluster says of its last shim.
pub(super) const FIRST: &str = "joining";
/// When nothing is wrong any more, keys come to rest within this, also on a busy machine.
const REST_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// The chance that a mover is killed instead of being left alone.
const KILLED: f64 = 0.3;
/// Words of a mover that could not begin, or not see the end, because something is wrong with the cluster just now.
const DISTURBED: [&str; 5] = [
    "no answer (",
    "the store does not answer",
    "nothing is heard of",
    "cannot be reached",
    "does not show the change",
];

/// Where keys are to go.
#[derive(Clone, Copy, PartialEq)]
enum ServerChange {
    Add,
    Remove,
}

impl ServerChange {
    fn verb(self) -> &'static str {
        match self {
            ServerChange::Add => "add",
            ServerChange::Remove => "remove",
        }
    }

    /// The state of the shim in the file as long as it lasts, and in the map when it is done.
    fn states(self) -> [&'static str; 2] {
        match self {
            ServerChange::Add => [FIRST, "normal"],
            ServerChange::Remove => ["leaving", "absent"],
        }
    }
}

/// The changes of one round.
pub(super) struct JepsenResharding {
    change: ServerChange,
    /// The shim that gets keys and loses them again.
    shim: String,
    mover: Option<MemberProcess>,
    log: PathBuf,
    random: SmallRng,
    pub(super) counts: ReshardingCounts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReshardingCounts {
    /// Changes that came to their end.
    pub(super) finished: u64,
    pub(super) movers_killed: u64,
}

impl JepsenResharding {
    pub(super) fn new(cluster: &ProcessCluster, seed: u64) -> anyhow::Result<JepsenResharding> {
        let shim = cluster.ids(LayoutRole::Shim).pop().context("there are shims")?;
        let log = cluster.folder().join("mover.log");
        let random = SmallRng::seed_from_u64(seed ^ 0x3e5a);
        let counts = ReshardingCounts::default();
        Ok(JepsenResharding { change: ServerChange::Add, shim, mover: None, log, random, counts })
    }

    /// Between two episodes of faults: a mover is started or killed, or a change that has come to its end is followed by the next one.
    pub(super) fn go_on(&mut self, cluster: &mut ProcessCluster) -> anyhow::Result<()> {
        if self.mover.is_some() && !self.has_ended(cluster)? {
            if self.random.random_bool(KILLED) {
                self.mover = None;
                self.counts.movers_killed += 1;
            }
            return Ok(());
        }
        if self.is_done(cluster)? {
            self.has_finished(cluster)?;
            self.change =
                if self.change == ServerChange::Add { ServerChange::Remove } else { ServerChange::Add };
            cluster.set_last_shim_state(self.change.states()[0])?;
        }
        self.start(cluster)
    }

    /// Until keys rest; nothing goes wrong any more.
    pub(super) fn finish(&mut self, cluster: &ProcessCluster) -> anyhow::Result<()> {
        let deadline = Instant::now() + REST_MAX;
        while !self.is_done(cluster)? {
            if self.mover.is_none() || self.has_ended(cluster)? {
                self.start(cluster)?;
            }
            ensure!(
                Instant::now() < deadline,
                "storage {} {} does not come to its end:\n{}",
                self.change.verb(),
                self.shim,
                self.situation(cluster)
            );
            std::thread::sleep(POLL);
        }
        self.mover = None;
        self.has_finished(cluster)
    }

    fn has_finished(&mut self, cluster: &ProcessCluster) -> anyhow::Result<()> {
        self.counts.finished += 1;
        crate::tell(&format!("         storage {} {} has come to its end", self.change.verb(), self.shim));
        self.check_homes(cluster)
    }

    fn start(&mut self, cluster: &ProcessCluster) -> anyhow::Result<()> {
        let mut command = mortal(cluster.binary());
        command.args(["storage", self.change.verb(), &self.shim]);
        let controllers: Vec<String> = cluster.ids(LayoutRole::Controller);
        let controller = controllers.choose(&mut self.random).context("there are controllers")?;
        command.args(["--controller", &format!("http://{}", cluster.member(controller)?.listen)]);
        command.arg("--config").arg(cluster.config());
        // Only what this one says.
        std::fs::write(&self.log, "")?;
        self.mover = Some(MemberProcess::start(command, Some(&self.log))?);
        Ok(())
    }

    /// Whether the mover has; one that fails has to have a reason, or has asked for what was done meanwhile.
    fn has_ended(&mut self, cluster: &ProcessCluster) -> anyhow::Result<bool> {
        let Some(status) = self.mover.as_mut().and_then(MemberProcess::end) else { return Ok(false) };
        self.mover = None;
        let said = self.said();
        let is_disturbed = DISTURBED.iter().any(|part| said.contains(part));
        let may = status.success() || is_disturbed || self.is_done(cluster)?;
        ensure!(may, "storage {} {}: {said}", self.change.verb(), self.shim);
        Ok(true)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What a person needs who wants to know why it does not go on, as each controller has it.
    fn situation(&self, cluster: &ProcessCluster) -> String {
        let of = |id: &String| {
            let address = cluster.member(id).ok()?.listen;
            let map = ask::json(address, "/v1/map").ok()?;
            let status = ask::json(address, "/v1/status").ok()?;
            let members = ["nodes", "routers", "shims"].map(|list| status[list].as_array().cloned());
            let members = members.into_iter().flatten().flatten().map(|member| {
                let parts = ["id", "epoch", "storage_up", "standing_by", "resharding"];
                let known = parts.iter().filter(|part| !member[**part].is_null());
                known.map(|part| format!("{part}={}", member[*part])).collect::<Vec<_>>().join(" ")
            });
            let members = members.collect::<Vec<_>>().join("\n");
            let log = cluster.log(id);
            Some(format!("{id}, map {}: {}\n{members}\n{log}\n", map["epoch"], map["shims"]))
        };
        let controllers = cluster.ids(LayoutRole::Controller);
        controllers.iter().filter_map(of).collect::<String>() + &self.said()
    }

    /// As any controller says that can be asked.
    fn is_done(&self, cluster: &ProcessCluster) -> anyhow::Result<bool> {
        for id in cluster.ids(LayoutRole::Controller) {
            let Ok(map) = ask::json(cluster.member(&id)?.listen, "/v1/map") else { continue };
            let shims = map["shims"].as_array().context("a map has shims")?;
            let shim = shims.iter().find(|shim| shim["id"] == *self.shim).context("the map has the shim")?;
            return Ok(shim["state"] == self.change.states()[1]);
        }
        Ok(false)
    }

    /// Each key is at one server when keys rest, and none at that of a shim that has none.
    fn check_homes(&self, cluster: &ProcessCluster) -> anyhow::Result<()> {
        let mut homes: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        let servers = cluster.ids(LayoutRole::Redis);
        for server in &servers {
            let keys: Vec<Vec<u8>> =
                redis::cmd("KEYS").arg("*").query(&mut client::connect(cluster.member(server)?.listen)?)?;
            let is_left = self.change == ServerChange::Remove && Some(server) == servers.last();
            ensure!(!is_left || keys.is_empty(), "{server} still has {} keys", keys.len());
            for key in keys {
                let name = String::from_utf8_lossy(&key).into_owned();
                if let Some(other) = homes.insert(key, server.clone()) {
                    anyhow::bail!("{name:?} is at {other} and at {server}");
                }
            }
        }
        Ok(())
    }
}
