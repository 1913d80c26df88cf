//! Runs the controller's machine over a store: heartbeats and what the store says go in by numbers and come out by names.
//! No HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::{Config, ConfigError, Roster};
use protocol::controller::partitions::Terms;
use protocol::controller::resharding::ReshardingReport;
use protocol::controller::{self, Beat, Controller, ControllerConfig, Effect, Event, Input};
use protocol::placement::agreement::Disagreement;
use protocol::time::Time;
use runtime::heartbeat::{Heartbeat, HeartbeatReply};
use runtime::status::{ClusterStatus, ControllerStatus, MemberStatus};
use wire::{ClusterMap, LEVELS, NodeId, Peer, ShimId};

use crate::hot::hottest;
use crate::members::Configured;
use crate::orders::OpenOrders;
use crate::store::{self, ControllerStore, StoreChange, StoreError, UnknownFields};

/// Time in which each member has sent several heartbeats.
const HEARD_ALL: Duration = Duration::from_secs(5);
const RELEASE_LETTERS_MAX: usize = 64;
/// How long a refused heartbeat says how its members are.
const DISAGREES: Duration = Duration::from_secs(5);

/// What is wrong with a store that has the map of other members.
const FOREIGN: &str = "the store's map is not this configuration's; this controller changes nothing";

/// Why a heartbeat was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeartbeatRefusal {
    #[error("this heartbeat, or a later one of the same agent, was here before")]
    Replay,
    #[error(
        "member {0:?} is not a {1} in the controller's configuration; give all processes the same file, and let \
         `distcache reload` tell the controller of members that were added"
    )]
    Stranger(String, &'static str),
    #[error(
        "its configuration is another one than this controller's: {0}; members that differ in it look for the same key in \
         different places: give all of them the same file"
    )]
    Disagreement(Disagreement),
    #[error("this controller has just started and waits for its store: {0}")]
    Unread(StoreError),
}

pub(crate) struct Service {
    pub(crate) machine: Controller<Configured>,
    id: String,
    store: Box<dyn ControllerStore>,
    /// What members said that this replica has heard of within a lease.
    pub(crate) statuses: BTreeMap<String, MemberStatus>,
    /// The releases that members have said they are of, also those that are silent now.
    releases: BTreeMap<String, String>,
    /// How many shims the files of members list, of those that say so.
    shims_listed: BTreeMap<String, usize>,
    /// What only a later release knows of the store's map.
    unknown: UnknownFields,
    /// From when on every member that lives has been heard of.
    heard_all: Time,
    /// When a heartbeat of a member came whose configuration differs, and in what.
    disagreeing: BTreeMap<String, (Time, Disagreement)>,
    pub(crate) orders: OpenOrders,
    /// Heartbeats that were not authentic or came from strangers.
    refused: u64,
}

impl Service {
    pub(crate) fn new(
        now: Time,
        config: Arc<Config>,
        index: usize,
        store: Box<dyn ControllerStore>,
    ) -> Service {
        let own = &config.controllers[index];
        let id = own.id.clone();
        let settings = ControllerConfig {
            terms: Terms {
                lease: own.member_lease(),
                grace: own.grace(),
                step: own.return_step(),
                level_max: LEVELS.max,
            },
            by: format!("{id} {:016x}", rand::random::<u64>()),
            history: rand::random(),
            members: Configured(config),
        };
        Service {
            heard_all: now.after(settings.terms.lease.min(HEARD_ALL)),
            machine: Controller::new(now, settings),
            id,
            store,
            statuses: BTreeMap::new(),
            releases: BTreeMap::new(),
            shims_listed: BTreeMap::new(),
            unknown: UnknownFields::default(),
            disagreeing: BTreeMap::new(),
            orders: OpenOrders::new(rand::random()),
            refused: 0,
        }
    }

    /// With the members that were added since the start.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.machine.members().0
    }

    /// Takes an authenticated heartbeat and answers with the newest map.
    pub(crate) fn heartbeat(
        &mut self,
        now: Time,
        heartbeat: Heartbeat,
    ) -> Result<HeartbeatReply, HeartbeatRefusal> {
        let theirs = heartbeat.known;
        let members: Vec<String> = heartbeat.members.iter().map(|member| member.id().to_owned()).collect();
        let routes = heartbeat.members.iter().any(|member| matches!(member, MemberStatus::Router(_)));
        self.take(now, heartbeat)?;
        self.tick(now);
        let Some(map) = self.machine.told() else {
            return Err(HeartbeatRefusal::Unread(self.problem().unwrap_or_else(not_read)));
        };
        let known = map.roster.size();
        let longer = known.exceeds(&theirs);
        Ok(HeartbeatReply {
            epoch: map.epoch,
            history: map.history,
            level: map.level,
            level_max: LEVELS.max,
            known,
            shares: store::shares(map),
            parts: store::parts(map),
            roster: longer.then(|| map.roster.clone()),
            orders: self.orders.of(&members),
            hot: if routes { hottest(self.statuses.values()) } else { Vec::new() },
        })
    }

    /// Members that are heard of and those that are not, once that means something: a controller that has just started
    /// waits.
    pub(crate) fn heard(&self, now: Time) -> Option<(BTreeSet<String>, Vec<String>)> {
        let config = self.config();
        let members = config.member_ids().filter(|id| config.process(id).is_some()).map(str::to_owned);
        let (heard, unheard): (Vec<_>, Vec<_>) = members.partition(|id| self.statuses.contains_key(id));
        (unheard.is_empty() || now >= self.heard_all).then(|| (heard.into_iter().collect(), unheard))
    }

    /// A heartbeat that was not authentic.
    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
    }

    fn take(&mut self, now: Time, heartbeat: Heartbeat) -> Result<(), HeartbeatRefusal> {
        self.agree(now, &heartbeat).inspect_err(|_| self.refused += 1)?;
        let said = self.numbered(&heartbeat).inspect_err(|_| self.refused += 1)?;
        let mut effects = Vec::new();
        self.machine.step(now, Input::Heartbeat(said), &mut effects);
        if effects.contains(&Effect::Refuse) {
            return Err(HeartbeatRefusal::Replay);
        }
        let release = shown_release(&heartbeat.release);
        let ids = || heartbeat.members.iter().map(|status| status.id().to_owned());
        self.releases.extend(ids().map(|id| (id, release.clone())));
        self.shims_listed.extend(ids().map(|id| (id, heartbeat.known.shims)));
        self.statuses.extend(heartbeat.members.into_iter().map(|status| (status.id().to_owned(), status)));
        heartbeat.reports.into_iter().for_each(|report| self.orders.report(report));
        self.carry_out(now, effects);
        Ok(())
    }

    /// A member that looks for data elsewhere is none, until it is started with this configuration.
    fn agree(&mut self, now: Time, heartbeat: &Heartbeat) -> Result<(), HeartbeatRefusal> {
        let config = Arc::clone(self.config());
        let difference = config.agreement().difference(&heartbeat.agreement);
        for id in heartbeat.members.iter().map(MemberStatus::id).filter(|id| config.member(id).is_some()) {
            let earlier = match &difference {
                None => self.disagreeing.remove(id),
                Some(difference) => self.disagreeing.insert(id.to_owned(), (now, difference.clone())),
            };
            if let Some(reason) =
                difference.as_ref().filter(|reason| earlier.is_none_or(|(_, told)| told != **reason))
            {
                tracing::warn!(id, %reason, "its heartbeats are refused: it has another configuration");
            }
        }
        difference.map_or(Ok(()), |difference| Err(HeartbeatRefusal::Disagreement(difference)))
    }

    /// Living members that were started with a file without the newest shims.
    pub(crate) fn with_fewer_shims(&self) -> Vec<&str> {
        let all = self.config().shims.len();
        let fewer = |id: &&String| self.shims_listed.get(*id).is_none_or(|shims| *shims < all);
        self.statuses.keys().filter(fewer).map(String::as_str).collect()
    }

    /// In what a member's configuration differs, if it says so still.
    pub(crate) fn disagreement(&self, now: Time, id: &str) -> Option<&Disagreement> {
        let (when, reason) = self.disagreeing.get(id)?;
        (now < when.after(DISAGREES)).then_some(reason)
    }

    /// Members that leave and are not known are left out: there is nothing to take from them.
    fn numbered(&self, heartbeat: &Heartbeat) -> Result<controller::Heartbeat, HeartbeatRefusal> {
        let beat = |status: &MemberStatus| {
            let empty = matches!(status, MemberStatus::Node(node) if node.statistics.objects == 0);
            let resharding = match status {
                MemberStatus::Shim(shim) if shim.storage_up => {
                    let place = self.config().shim_place(&shim.id);
                    place.map(|place| ReshardingReport { shim: place.shim, phase: shim.resharding.phase() })
                }
                _ => None,
            };
            Ok(Beat { member: self.peer(status)?, epoch: status.epoch(), empty, resharding })
        };
        Ok(controller::Heartbeat {
            agent: heartbeat.agent,
            sequence: heartbeat.sequence,
            history: heartbeat.history,
            level: heartbeat.level,
            members: heartbeat.members.iter().map(beat).collect::<Result<_, _>>()?,
            leaving: heartbeat.leaving.iter().filter_map(|id| self.config().process(id)).collect(),
        })
    }

    fn peer(&self, member: &MemberStatus) -> Result<Peer, HeartbeatRefusal> {
        let peer = self.config().process(member.id());
        let (matches, role) = match member {
            MemberStatus::Node(_) => (matches!(peer, Some(Peer::Node(_))), "node"),
            MemberStatus::Shim(_) => (matches!(peer, Some(Peer::Shim(_))), "shim"),
            MemberStatus::Router(_) => (matches!(peer, Some(Peer::Router(_))), "router"),
            MemberStatus::Controller(_) => (false, "member with a heartbeat"),
        };
        peer.filter(|_| matches).ok_or_else(|| HeartbeatRefusal::Stranger(member.id().to_owned(), role))
    }

    /// Takes a node's partition away, or lets the node have it back. It shows in the store's map once it is done.
    pub(crate) fn drain(&mut self, now: Time, node: NodeId, drained: bool) {
        self.step(now, Input::Drain { node, drained });
        self.tick(now);
    }

    /// Lets keys go to a shim that has none, or all keys of one to the others.
    pub(crate) fn reshard(&mut self, now: Time, shim: ShimId, joins: bool) {
        self.step(now, Input::Reshard { shim, joins });
        self.tick(now);
    }

    /// Takes the members that `newer`, another version of the configuration, has more.
    pub(crate) fn reload(&mut self, now: Time, newer: &Config) -> Result<(), ConfigError> {
        if let Some(grown) = self.config().grown_to(newer)? {
            self.step(now, Input::Grown(Configured(Arc::new(grown))));
            self.tick(now);
        }
        Ok(())
    }

    /// Lets time pass: lapsed leases, other controllers' maps, grace periods.
    pub(crate) fn tick(&mut self, now: Time) {
        self.look(now);
        self.step(now, Input::Tick);
        if self.machine.problem().is_none() {
            // What was proposed may be there already.
            self.look(now);
        }
    }

    fn look(&mut self, now: Time) {
        match self.store.changes(now) {
            Ok(changes) => {
                for change in changes {
                    // A map may bring the members that later changes are about.
                    if let Some(change) = self.numbered_change(change) {
                        self.step(now, Input::Changed(change));
                    }
                }
                self.step(now, Input::Read);
            }
            Err(StoreError(reason)) => self.step(now, Input::Away { reason }),
        }
    }

    fn numbered_change(&mut self, change: StoreChange) -> Option<controller::Change<Roster>> {
        Some(match change {
            StoreChange::Registered { member } => {
                controller::Change::Registered(self.config().process(&member)?)
            }
            StoreChange::Gone { member } => controller::Change::Gone(self.config().process(&member)?),
            StoreChange::NoMap => controller::Change::NoMap,
            StoreChange::Map { version, value } => {
                let map = store::parse_map(&value).map_err(|error| error.to_string());
                let map = map.map(|(map, unknown)| {
                    self.unknown = unknown;
                    map
                });
                controller::Change::Map { version, map }
            }
        })
    }

    fn step(&mut self, now: Time, input: Input<Configured>) {
        let mut effects = Vec::new();
        self.machine.step(now, input, &mut effects);
        self.carry_out(now, effects);
    }

    fn carry_out(&mut self, now: Time, effects: Vec<Effect<Roster>>) {
        for effect in effects {
            match effect {
                Effect::Keep(member) => self.store.keep(now, &self.machine.members().0.peer_name(member)),
                Effect::Forget(member) => self.store.forget(now, &self.machine.members().0.peer_name(member)),
                Effect::Propose { version, map } => {
                    self.store.propose(now, version, &store::map_text(&map, &self.unknown));
                }
                Effect::Silent(member) => drop(self.statuses.remove(&self.config().peer_name(member))),
                // Who sent it is told so.
                Effect::Refuse => {}
                Effect::Log(event) => self.log(event),
            }
        }
    }

    fn log(&self, event: Event<Roster>) {
        let id = |member| self.config().peer_name(member);
        match event {
            Event::Left(member) => tracing::info!(id = id(member), "has left"),
            Event::Lapsed(member) => tracing::info!(id = id(member), "its lease has ended"),
            Event::Taken(map) => {
                let shares = store::shares(&map);
                tracing::info!(epoch = map.epoch, by = map.by, ?shares, "the map of the store");
            }
            Event::Foreign { reason } => tracing::error!(reason, "{FOREIGN}"),
            Event::StoreAway { reason } => {
                tracing::warn!(problem = %StoreError(reason), "going on with the last map");
            }
            Event::StoreBack => tracing::info!("the store answers again"),
        }
    }

    /// Why the store cannot be asked, if it cannot.
    pub(crate) fn problem(&self) -> Option<StoreError> {
        self.machine.problem().map(|reason| StoreError(reason.to_owned()))
    }

    /// Why nothing that is decided here would last.
    pub(crate) fn foreign(&self) -> Option<String> {
        let reason = self.machine.foreign()?;
        Some(format!("{FOREIGN}: {reason}"))
    }

    /// Why it cannot tell the map yet.
    pub(crate) fn unread(&self) -> Option<StoreError> {
        self.machine.told().is_none().then(|| self.problem().unwrap_or_else(not_read))
    }

    /// The store's map with the members of this configuration.
    pub(crate) fn map(&self) -> ClusterMap {
        let committed = self.machine.committed();
        let mut map = self.config().map_with(committed.epoch, committed.level, |node| committed.share(node));
        for (shim, part) in map.shims.iter_mut().zip(&committed.shims) {
            *shim = part.of(shim);
        }
        map
    }

    /// The live members, in the order of the configuration.
    pub(crate) fn status(&self) -> ClusterStatus {
        let members = self.config().member_ids().filter_map(|id| self.statuses.get(id).cloned());
        let cluster = ClusterStatus::of(self.machine.committed().epoch, members);
        let heard = |id: &&String| self.statuses.contains_key(*id);
        let releases = self.releases.iter().filter(|(id, _)| heard(id));
        let releases = releases.map(|(id, release)| (id.clone(), release.clone())).collect();
        ClusterStatus { level: self.machine.committed().level, releases, ..cluster }
    }

    pub(crate) fn own_status(&self) -> ControllerStatus {
        let members_up = self.statuses.len() as u64;
        let statistics = self.machine.statistics();
        ControllerStatus {
            id: self.id.clone(),
            epoch: self.machine.committed().epoch,
            store_up: self.machine.problem().is_none(),
            members_up,
            members_down: (self.machine.liveness().count() as u64).saturating_sub(members_up),
            statistics,
            heartbeats_refused_total: self.refused + statistics.replays,
        }
    }
}

/// Something that has proven the secret has said it, and people will read it.
fn shown_release(told: &str) -> String {
    match told.chars().filter(|letter| !letter.is_control()).take(RELEASE_LETTERS_MAX).collect::<String>() {
        none if none.is_empty() => "unknown".to_owned(),
        told => told,
    }
}

fn not_read() -> StoreError {
    StoreError("it was not asked yet".to_owned())
}

#[cfg(test)]
mod tests;
