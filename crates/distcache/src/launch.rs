//! Starts members in this process with their admin ports and heartbeat, and stops them in order. Not what they do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use config::{Config, ConfigError, Member, StorageConfig};
use runtime::admin::{self, HttpListener};
use runtime::heartbeat::{self, Pulse};
use runtime::instance::{Instance, StartError, listen_advice};
use runtime::reload::Reloader;
use runtime::status::{MemberStatus, StatusCell};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use runtime::upgrade::{Predecessor, Successor};
use sd_notify::NotifyState;

/// How often a process looks whether a member has ended although nobody stopped it.
const WATCH: Duration = Duration::from_millis(200);
/// How often routers are asked whether they are linked.
const LINKS_POLL: Duration = Duration::from_millis(10);

/// The members of this process. Each stage has its own stop flag, so that routers drain while there is somebody to
/// answer them.
pub(crate) struct RunningMembers {
    stages: [LaunchStage; 4],
    services: Stop,
    threads: Vec<JoinHandle<()>>,
    reloader: Option<Arc<Reloader>>,
    /// How long routers go on after the process has said that it stops.
    linger: Duration,
    /// How long routers go on for the clients that they have once another process has taken this one's place.
    retirement: Duration,
    /// A shim whose data live in this process alone.
    in_memory: Option<String>,
}

#[derive(Default)]
struct LaunchStage {
    stop: Stop,
    instances: Vec<Instance>,
}

impl LaunchStage {
    /// Stops its members; the ids of those that did not end well.
    fn end(&mut self) -> Vec<String> {
        self.stop.stop();
        let ended = self.instances.drain(..).map(|instance| (instance.id.clone(), instance.join()));
        ended.filter(|(_, in_order)| !in_order).map(|(id, _)| id).collect()
    }

    fn has_clients(&self) -> bool {
        let mut statuses = self.instances.iter().map(|instance| instance.status.get());
        statuses.any(|status| matches!(status, MemberStatus::Router(router) if router.clients > 0))
    }
}

/// The stage that stops first has the lowest index.
fn stage_of(member: Member) -> usize {
    match member {
        Member::Router(_) => 0,
        Member::Node(_) => 1,
        Member::Shim(_) => 2,
        Member::Controller(_) => 3,
    }
}

/// A configuration, and what the files hold that it names.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Arc<Config>,
    pub(crate) certificates: Certificates,
}

impl Loaded {
    pub(crate) fn new(config: Config) -> Result<Loaded, ConfigError> {
        let certificates = Certificates::load(&config)?;
        Ok(Loaded { config: Arc::new(config), certificates })
    }
}

/// Starts the members called `ids`; every listener accepts when it returns. On an error nothing is left running.
pub(crate) fn launch(loaded: &Loaded, ids: &[&str], stop: &Stop) -> anyhow::Result<RunningMembers> {
    let mut running = RunningMembers::none(loaded, ids);
    if let Err(error) = running.start(loaded, ids, stop) {
        running.end();
        return Err(error);
    }
    Ok(running)
}

/// As [`launch`], in place of another process, which has its members until then and ends once its clients have left.
pub(crate) fn launch_after(
    mut predecessor: Predecessor,
    loaded: &Loaded,
    ids: &[&str],
    stop: &Stop,
) -> anyhow::Result<RunningMembers> {
    predecessor.take_sockets().context("the process before does not give its sockets")?;
    let mut running = RunningMembers::none(loaded, ids);
    let mut take = || {
        let is_router = |id: &&&str| matches!(loaded.config.member(id), Some(Member::Router(_)));
        let (routers, others): (Vec<&str>, Vec<&str>) = ids.iter().partition(is_router);
        running.spawn(loaded, &routers, stop)?;
        running.wait_linked(Predecessor::LINKS_MAX, stop)?;
        running.stages[0].instances.iter().for_each(|router| router.orders.take_new_clients(true));
        predecessor.take_members().context("the process before does not hand over")?;
        running.spawn(loaded, &others, stop)?;
        running.serve(loaded, ids, stop)
    };
    if let Err(error) = take() {
        running.end();
        return Err(error);
    }
    tell_supervisor(&[NotifyState::MainPid(std::process::id()), NotifyState::Ready]);
    predecessor.finish();
    Ok(running)
}

/// Every listener accepts: says so to whoever reads standard output, and to the supervisor.
pub(crate) fn tell_ready() {
    tell_supervisor(&[NotifyState::Ready]);
    lab::terminal::print("ready");
}

/// As systemd has it: only where there is one, and it wants to know.
fn tell_supervisor(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor cannot be told ($NOTIFY_SOCKET)");
    }
}

impl RunningMembers {
    fn none(loaded: &Loaded, ids: &[&str]) -> RunningMembers {
        RunningMembers {
            stages: Default::default(),
            services: Stop::new(),
            threads: Vec::new(),
            reloader: None,
            linger: linger(&loaded.config, ids),
            retirement: retirement(&loaded.config, ids),
            in_memory: in_memory(&loaded.config, ids),
        }
    }

    fn start(&mut self, loaded: &Loaded, ids: &[&str], stop: &Stop) -> anyhow::Result<()> {
        // Bound before members start, so that a port in use is found before anything serves.
        let listeners = bind_admin(&loaded.config, ids)?;
        self.spawn(loaded, ids, stop)?;
        self.serve_beside(loaded, listeners, stop)
    }

    /// Starts what stands beside the members, all of which run.
    fn serve(&mut self, loaded: &Loaded, ids: &[&str], stop: &Stop) -> anyhow::Result<()> {
        let listeners = bind_admin(&loaded.config, ids)?;
        self.serve_beside(loaded, listeners, stop)
    }

    fn spawn(&mut self, loaded: &Loaded, ids: &[&str], stop: &Stop) -> anyhow::Result<()> {
        let config = &loaded.config;
        for id in ids {
            if stop.is_set() {
                bail!("stopped before every member had started");
            }
            let member = config.member(id).with_context(|| format!("no member has the id {id:?}"))?;
            let stage = &mut self.stages[stage_of(member)];
            let instance = spawn(loaded, member, id, &stage.stop)?;
            let addresses: Vec<String> = instance.addresses.iter().map(ToString::to_string).collect();
            tracing::info!(id, addresses = addresses.join(" "), "started");
            stage.instances.push(instance);
        }
        Ok(())
    }

    fn serve_beside(
        &mut self,
        loaded: &Loaded,
        listeners: Vec<(HttpListener, Vec<&str>)>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let Loaded { config, certificates } = loaded;
        let orders = self.stages.iter().flat_map(|stage| &stage.instances);
        let orders = orders.map(|instance| instance.orders.clone()).collect();
        let reloader = Reloader::new(config, certificates, orders, Box::new(crate::logging::follow));
        let reloader = Arc::new(reloader.checking(Box::new(|config| router::users(config).map(drop))));
        self.reloader = Some(Arc::clone(&reloader));
        for (listener, ids) in listeners {
            let process = admin::AdminProcess {
                members: ids.iter().filter_map(|id| self.status(id)).collect(),
                reloader: Arc::clone(&reloader),
                certificates: certificates.clone(),
                guard: admin::HttpGuard::new(config),
                leaving: stop.clone(),
            };
            self.threads.push(admin::start(listener, process, &self.services)?);
        }
        #[cfg(feature = "otel")]
        {
            let instances = self.stages.iter().flat_map(|stage| &stage.instances);
            let queues = instances.map(|instance| (instance.id.clone(), instance.spans.clone())).collect();
            self.threads.extend(runtime::spans::start(&config.tracing, queues, &self.services)?);
        }
        let pulses: Vec<Pulse> =
            self.stages[..3].iter().flat_map(|stage| &stage.instances).map(Pulse::from).collect();
        if !pulses.is_empty() && !config.controllers.is_empty() {
            self.threads.extend(heartbeat::start(
                config,
                certificates,
                pulses,
                Some(&reloader),
                &self.services,
            )?);
        }
        Ok(())
    }

    /// What reads the configuration again for the members that have been started.
    pub(crate) fn reloader(&self) -> Arc<Reloader> {
        Arc::clone(self.reloader.as_ref().expect("it is there once the members have started"))
    }

    /// What still keeps clients of the routers here from being served, as members have said it last.
    pub(crate) fn lacks(&self) -> Option<String> {
        let instances = self.stages.iter().flat_map(|stage| &stage.instances);
        instances.map(|instance| instance.status.get()).find_map(|status| match status {
            MemberStatus::Shim(shim) if !shim.storage_up && !shim.standing_by => {
                Some(format!("the storage of {} is not up yet", shim.id))
            }
            MemberStatus::Router(router) if router.epoch == 0 => {
                Some(format!("{} has no cluster map yet", router.id))
            }
            MemberStatus::Router(router) if !router.shims_missing.is_empty() => {
                Some(format!("{} is not linked to {} yet", router.id, router.shims_missing.join(", ")))
            }
            _ => None,
        })
    }

    fn status(&self, id: &str) -> Option<StatusCell> {
        let mut instances = self.stages.iter().flat_map(|stage| &stage.instances);
        instances.find(|instance| instance.id == id).map(|instance| instance.status.clone())
    }

    /// Waits until the routers reach all shims. Where there are none to reach, clients are better off with routers that say so.
    fn wait_linked(&self, patience: Duration, stop: &Stop) -> anyhow::Result<()> {
        let until = Instant::now() + patience;
        while let Some(lack) = self.lacks() {
            if Instant::now() >= until {
                tracing::warn!("{lack}; it takes the place of the process before all the same");
                break;
            }
            if stop.wait_timeout(LINKS_POLL) {
                bail!("stopped before every member had started");
            }
        }
        Ok(())
    }

    /// Runs until `stop`, then stops gracefully; until another process has taken this one's place, once `upgrade` is set. An error
    /// if a member ended by itself or in disorder.
    pub(crate) fn wait(self, stop: &Stop, upgrade: &AtomicBool) -> anyhow::Result<()> {
        let mut ended = None;
        while ended.is_none() && !stop.wait_timeout(WATCH) {
            if upgrade.swap(false, Ordering::AcqRel)
                && let Some(successor) = self.begin_upgrade()
            {
                return self.give_way(successor, stop);
            }
            let mut instances = self.stages.iter().flat_map(|stage| &stage.instances);
            let finished = instances.find(|instance| instance.has_ended());
            ended = finished.map(|instance| instance.id.clone());
        }
        tell_supervisor(&[NotifyState::Stopping]);
        if ended.is_none() {
            linger_for(self.linger);
        }
        let disordered = self.end();
        match (ended, disordered.as_slice()) {
            (Some(id), _) => bail!("{id} ended by itself; see the log above"),
            (None, []) => Ok(()),
            (None, ids) => bail!("{} did not stop in good order; see the log above", ids.join(", ")),
        }
    }

    /// The next process, once it serves new clients. One that does not come so far has changed nothing.
    fn begin_upgrade(&self) -> Option<Successor> {
        tracing::info!("SIGUSR2: another process takes the place of this one");
        if let Some(shim) = &self.in_memory {
            tracing::error!("what {shim} stores in memory would be lost; this process goes on");
            return None;
        }
        let begun = Successor::start().and_then(|mut successor| successor.let_serve().map(|()| successor));
        begun
            .inspect_err(|error| {
                tracing::error!(%error, "no other process takes the place of this one, which goes on");
            })
            .ok()
    }

    /// New clients are the next process's already: it gets all members but the routers, which go on for their clients.
    fn give_way(mut self, mut successor: Successor, stop: &Stop) -> anyhow::Result<()> {
        let [routers, others @ ..] = &mut self.stages;
        routers.instances.iter().for_each(|router| router.orders.take_new_clients(false));
        let mut disordered: Vec<String> = others.iter_mut().flat_map(LaunchStage::end).collect();
        disordered.extend(self.end_services());
        let given = successor.give_members();
        if given.is_ok() {
            tracing::info!(successor = successor.id(), "another process has taken the place of this one");
            let until = Instant::now() + self.retirement;
            while self.stages[0].has_clients() && Instant::now() < until && !stop.wait_timeout(WATCH) {}
        }
        disordered.extend(self.end());
        given.context("the next process has not brought up its members")?;
        match disordered.as_slice() {
            [] => Ok(()),
            ids => bail!("{} did not stop in good order; see the log above", ids.join(", ")),
        }
    }

    /// Stops everything, stage by stage; the ids of those that did not end well.
    fn end(mut self) -> Vec<String> {
        let mut disordered: Vec<String> = self.stages.iter_mut().flat_map(LaunchStage::end).collect();
        disordered.extend(self.end_services());
        disordered
    }

    fn end_services(&mut self) -> Vec<String> {
        let mut disordered = Vec::new();
        self.services.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                disordered.push("the admin port, heartbeat or spans".to_owned());
            }
        }
        disordered
    }
}

fn bind_admin<'a>(config: &Config, ids: &[&'a str]) -> anyhow::Result<Vec<(HttpListener, Vec<&'a str>)>> {
    let addresses = admin_addresses(config, ids).into_iter();
    addresses
        .map(|(address, ids)| {
            let listener = admin::bind(address).map_err(|error| {
                let advice = listen_advice(&error, "admin");
                anyhow!("{}: cannot listen on admin = \"{address}\": {advice}", ids.join(", "))
            })?;
            Ok((listener, ids))
        })
        .collect()
}

fn spawn(loaded: &Loaded, member: Member, id: &str, stop: &Stop) -> Result<Instance, StartError> {
    let Loaded { config, certificates } = loaded;
    match member {
        Member::Controller(_) => controller::spawn(config, certificates, id, stop),
        Member::Node(_) => node::spawn(config, certificates, id, stop),
        Member::Shim(_) => shim::spawn(config, certificates, id, stop),
        Member::Router(_) => router::spawn(config, certificates, id, stop),
    }
}

/// How long this process still serves: a load balancer needs that long to see that it is not ready any more.
fn linger(config: &Config, ids: &[&str]) -> Duration {
    let routers = config.routers.iter().filter(|router| ids.contains(&router.id.as_str()));
    Duration::from_millis(routers.map(|router| router.drain_ms).max().unwrap_or(0))
}

fn in_memory(config: &Config, ids: &[&str]) -> Option<String> {
    let mut shims = config.shims.iter().filter(|shim| ids.contains(&shim.id.as_str()));
    let shim = shims.find(|shim| matches!(shim.storage, StorageConfig::Embedded))?;
    Some(shim.id.clone())
}

/// How long clients that it has are served once another process takes new ones.
fn retirement(config: &Config, ids: &[&str]) -> Duration {
    let routers = config.routers.iter().filter(|router| ids.contains(&router.id.as_str()));
    Duration::from_millis(routers.map(|router| router.retire_ms_max).max().unwrap_or(0))
}

fn linger_for(duration: Duration) {
    let until = Instant::now() + duration;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Members of one process may share an admin port.
fn admin_addresses<'a>(config: &Config, ids: &[&'a str]) -> BTreeMap<SocketAddr, Vec<&'a str>> {
    let mut addresses: BTreeMap<SocketAddr, Vec<&str>> = BTreeMap::new();
    for id in ids {
        if let Some(address) = config.admin(id) {
            addresses.entry(address).or_default().push(id);
        }
    }
    addresses
}
