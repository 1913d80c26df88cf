//! Redis servers of which sentinels choose the primary, and sentinels that hear of it late, in part or never. Not what a
//! machine makes of their answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use protocol::coherence::lease::EarlierIncarnations;
use protocol::storage::network::{Backend, ConnectionId, Endpoint};
use protocol::storage::redis::RedisSettings;
use protocol::storage::redis_sentinel::{RedisSentinel, RedisSentinelSettings};
use wire::resp::{Command, reply};

use super::redis::{self, redis_settings};
use super::world::{Event, HABITS, Party, Scene, World};
use crate::random::SimRandom;
use crate::shape::RefusedFences;
use crate::storage::Effect;
use crate::storage::redis::{Outcome, RedisServer, commands};
use crate::storage::site::{Done, Server, Site};

const SERVERS: usize = 3;
const SENTINELS: usize = 3;
/// Sentinels tell each other every two seconds.
const TOLD: u64 = 2_000_000;
/// One that is cut off from the others for a while.
const TOLD_LATE: u64 = 8_000_000;
/// The old primary takes itself for one until somebody tells it.
const DEMOTED: u64 = 3_000_000;
/// Everybody who can know of another primary knows by then: pauses that have begun before, and each sentinel's turn.
const FOLLOWED: u64 = 8_000_000;
/// The same where most of the sentinels have to say so, of which one is told late.
const AGREED: u64 = 12_000_000;
/// By then nobody serves on the word of the only sentinel that is left.
const ABANDONED: u64 = 7_000_000;

/// A replica is chosen only if it has followed for so long: then nothing is left in its buffers that came before.
const FOLLOWS: u64 = 2_000_000;

/// Which server a sentinel takes for the primary, and since which failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    primary: usize,
    epoch: u64,
}

#[derive(Debug)]
pub(super) struct SentinelScene {
    /// What the majority has agreed on.
    truth: View,
    /// At which failover each server became the primary last.
    epochs: [u64; SERVERS],
    /// The processes know that there are several of them.
    several: bool,
    /// Most of the sentinels stay away until then.
    lost_until: u64,
    /// This sentinel hears of nothing any more from now on.
    deaf: Option<usize>,
    /// Since when each server follows another one, and has read what came before.
    follows: [Option<u64>; SERVERS],
    /// What a sentinel has answered, on its way over this connection.
    said: BTreeMap<ConnectionId, View>,
    /// By process and server: the last failover to this server of which it has heard.
    heard: BTreeMap<(usize, usize), u64>,
    /// By process: the server before which it was up last.
    served: BTreeMap<usize, usize>,
}

#[derive(Debug)]
pub(super) enum SentinelEvent {
    /// A sentinel hears of a failover.
    Told { sentinel: usize, view: View },
    /// A sentinel has won the failover of this epoch, and waits for all replicas to follow.
    Leads { sentinel: usize, epoch: u64 },
    /// A server hears that it is a replica now, and closes its connections if `closes`.
    Demoted { server: usize, epoch: u64, closes: bool },
    /// A server or a sentinel that was gone is back.
    Back(usize),
    /// All who can know of another primary have had the time for it, undisturbed.
    Followed { epoch: u64 },
    /// All but one of the sentinels have been gone for long, undisturbed.
    Abandoned,
}

/// A server or a sentinel of the group.
pub(super) enum Member {
    Redis(RedisServer),
    Sentinel(Sentinel),
}

/// A sentinel of which nothing is asked but what it knows of the primary.
pub(super) struct Sentinel {
    view: View,
    /// It leads a failover: it has the new epoch and not yet the new address.
    is_leading: bool,
    clients: BTreeMap<u64, VecDeque<Command>>,
    clients_made: u64,
}

fn address(server: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1 + server as u8)), 6379)
}

impl Server for Sentinel {
    fn accept(&mut self, _from: SocketAddr) -> u64 {
        self.clients_made += 1;
        self.clients.insert(self.clients_made, VecDeque::new());
        self.clients_made
    }

    fn read(&mut self, _now: u64, client: u64, received: &mut BytesMut) {
        let commands = commands(received);
        if let Some(input) = self.clients.get_mut(&client) {
            input.extend(commands);
        }
    }

    fn end(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    fn knows(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    fn has_work(&self, client: u64) -> bool {
        self.clients.get(&client).is_some_and(|input| !input.is_empty())
    }

    fn execute(&mut self, _now_ms: u64, client: u64) -> Option<Outcome> {
        let command = self.clients.get_mut(&client)?.pop_front()?;
        let address = address(self.view.primary);
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let epoch = self.view.epoch.to_string();
        let flags = if self.is_leading { "master,failover_in_progress" } else { "master" };
        let fields = ["name", "group", "ip", &ip, "port", &port, "flags", flags, "config-epoch", &epoch];
        let mut out = Vec::new();
        reply::array_header(fields.len(), &mut out);
        fields.iter().for_each(|field| reply::bulk(field.as_bytes(), &mut out));
        Some(Outcome { command, reply: out.into(), killed: Vec::new(), effect: Effect::Read, tracked: None })
    }
}

impl Member {
    fn server(&self) -> &dyn Server {
        match self {
            Member::Redis(server) => server,
            Member::Sentinel(sentinel) => sentinel,
        }
    }

    fn server_mut(&mut self) -> &mut dyn Server {
        match self {
            Member::Redis(server) => server,
            Member::Sentinel(sentinel) => sentinel,
        }
    }
}

impl Server for Member {
    fn accept(&mut self, from: SocketAddr) -> u64 {
        self.server_mut().accept(from)
    }

    fn read(&mut self, now: u64, client: u64, received: &mut BytesMut) {
        self.server_mut().read(now, client, received);
    }

    fn end(&mut self, client: u64) {
        self.server_mut().end(client);
    }

    fn knows(&self, client: u64) -> bool {
        self.server().knows(client)
    }

    fn has_work(&self, client: u64) -> bool {
        self.server().has_work(client)
    }

    fn execute(&mut self, now_ms: u64, client: u64) -> Option<Outcome> {
        self.server_mut().execute(now_ms, client)
    }
}

impl SentinelScene {
    /// A random sentinel or server, but for the primary, is gone for a while.
    fn goes_away(world: &mut World<SentinelScene>) {
        let gone = world.random.index(SERVERS + SENTINELS);
        if gone != world.scene.truth.primary {
            world.sites[gone].refuses = true;
            world.own_event(3_000_000, SentinelEvent::Back(gone));
        }
    }

    /// Only one sentinel is left: who is cut off from the others sees no more of them either.
    fn lose_most(world: &mut World<SentinelScene>) {
        let left = world.random.index(SENTINELS);
        for sentinel in (0..SENTINELS).filter(|sentinel| *sentinel != left) {
            world.sites[SERVERS + sentinel].refuses = true;
            world.own_event(1, SentinelEvent::Back(SERVERS + sentinel));
        }
        world.alone_until = world.now + ABANDONED;
        world.scene.lost_until = world.alone_until;
        world.queue.push(world.alone_until, Event::Own(SentinelEvent::Abandoned));
    }

    /// The sentinels agree on another primary, whatever the old one does.
    fn fail_over(world: &mut World<SentinelScene>) {
        let old = world.scene.truth.primary;
        let follows =
            |server: &usize| world.scene.follows[*server].is_some_and(|since| world.now >= since + FOLLOWS);
        let candidates: Vec<usize> = (0..SERVERS).filter(follows).collect();
        if candidates.is_empty() {
            return;
        }
        let view = View { primary: world.random.pick(&candidates), epoch: world.scene.truth.epoch + 1 };
        (world.scene.truth, world.scene.epochs[view.primary]) = (view, view.epoch);
        world.sites[view.primary].refuses = false;
        redis_server(world, view.primary).set_primary(true);
        world.scene.follows[view.primary] = None;
        world.changes(view.primary);
        let leader = world.random.index(SENTINELS);
        let late = world.random.index(SENTINELS);
        world.own_event(1_000, SentinelEvent::Leads { sentinel: leader, epoch: view.epoch });
        for sentinel in (0..SENTINELS).filter(|sentinel| Some(*sentinel) != world.scene.deaf) {
            let most = if sentinel == late && sentinel != leader { TOLD_LATE } else { TOLD };
            let wait = 1_000 + world.random.below(most);
            world.queue.push(world.now + wait, Event::Own(SentinelEvent::Told { sentinel, view }));
        }
        let closes = world.random.percent(70);
        let followed = if world.scene.several { AGREED } else { FOLLOWED };
        let wait = if world.random.percent(20) { followed } else { world.random.below(DEMOTED) };
        let demoted = SentinelEvent::Demoted { server: old, epoch: view.epoch, closes };
        world.queue.push(world.now + wait, Event::Own(demoted));
        if wait == followed {
            world.alone_until = world.now + followed;
            world.queue.push(world.alone_until, Event::Own(SentinelEvent::Followed { epoch: view.epoch }));
        }
    }

    fn demote(world: &mut World<SentinelScene>, server: usize, closes: bool) {
        redis_server(world, server).set_primary(false);
        world.scene.follows[server] = Some(world.now);
        if closes {
            world.at_site(server, |site, at| {
                if let Member::Redis(server) = &mut site.server {
                    let gone = server.close_all();
                    site.cut(at, &gone);
                }
            });
        }
    }
}

fn redis_server(world: &mut World<SentinelScene>, server: usize) -> &mut RedisServer {
    match &mut world.sites[server].server {
        Member::Redis(server) => server,
        Member::Sentinel(_) => unreachable!("servers come before sentinels"),
    }
}

impl Scene for SentinelScene {
    type Server = Member;
    type Own = SentinelEvent;

    const LANES: bool = true;
    const NOTICED: u64 = 10_000_000;

    fn build(random: &mut SimRandom) -> (SentinelScene, Vec<Site<Member>>) {
        let truth = View { primary: 0, epoch: 1 };
        let servers = (0..SERVERS).map(|server| {
            let mut redis = RedisServer::new(RefusedFences::default());
            redis.set_primary(server == truth.primary);
            Member::Redis(redis)
        });
        let sentinels = (0..SENTINELS).map(|_| {
            Member::Sentinel(Sentinel {
                view: truth,
                is_leading: false,
                clients: BTreeMap::new(),
                clients_made: 0,
            })
        });
        let sites = servers.chain(sentinels).map(|member| Site::new(member, HABITS)).collect();
        let deaf = random.percent(30).then(|| random.index(SENTINELS));
        let follows = [None, Some(0), Some(0)];
        let several = random.percent(50);
        (
            SentinelScene {
                truth,
                several,
                lost_until: 0,
                epochs: [1, 0, 0],
                deaf,
                follows,
                said: BTreeMap::new(),
                heard: BTreeMap::new(),
                served: BTreeMap::new(),
            },
            sites,
        )
    }

    fn machine(&self, seed: u64) -> Box<dyn Backend> {
        Box::new(RedisSentinel::new(RedisSentinelSettings {
            sentinels: (SERVERS..SERVERS + SENTINELS).map(address).collect(),
            name: "group".to_owned(),
            sentinel_user: None,
            sentinel_password: None,
            server: RedisSettings {
                standby: self.several.then_some((seed >> 8) as u8 % 3),
                ..redis_settings(seed)
            },
        }))
    }

    fn site(&self, endpoint: Endpoint) -> usize {
        let all = 0..SERVERS + SENTINELS;
        let found = |site: &usize| endpoint == Endpoint::Discovered(address(*site));
        all.clone().find(found).unwrap_or(all.end)
    }

    fn is_storage(site: usize) -> bool {
        site < SERVERS
    }

    fn stays(&self, site: usize) -> bool {
        site == self.truth.primary
    }

    fn request(number: u64) -> Command {
        redis::request(number)
    }

    fn reply(number: u64) -> Bytes {
        redis::reply_to(number)
    }

    fn number(outcome: &Outcome) -> Option<u64> {
        redis::number(outcome)
    }

    fn trouble(world: &mut World<SentinelScene>, draw: u64) -> Result<(), String> {
        match draw {
            0..55 => SentinelScene::fail_over(world),
            55..60 => SentinelScene::lose_most(world),
            60..80 => SentinelScene::goes_away(world),
            80..90 => {
                // As a failover begins: the primary does not answer.
                let time = world.random.below(6_000_000);
                world.pause(Party::Server(world.scene.truth.primary), time);
                SentinelScene::fail_over(world);
            }
            _ => {
                let server = world.random.index(SERVERS);
                world.changes(server);
                world.at_site(server, |site, at| {
                    if let Member::Redis(server) = &mut site.server {
                        let was_primary = server.is_primary;
                        let gone = server.restart(at.random.percent(50), at.random.percent(30));
                        server.is_primary = was_primary;
                        site.cut(at, &gone);
                    }
                });
            }
        }
        Ok(())
    }

    fn end_trouble(world: &mut World<SentinelScene>) -> Result<(), String> {
        world.sites.iter_mut().for_each(|site| site.refuses = false);
        Ok(())
    }

    fn happens(world: &mut World<SentinelScene>, what: SentinelEvent) -> Result<(), String> {
        match what {
            SentinelEvent::Told { sentinel, view } => {
                if let Member::Sentinel(sentinel) = &mut world.sites[SERVERS + sentinel].server
                    && view.epoch >= sentinel.view.epoch
                {
                    (sentinel.view, sentinel.is_leading) = (view, false);
                }
            }
            SentinelEvent::Leads { sentinel, epoch } => {
                if let Member::Sentinel(sentinel) = &mut world.sites[SERVERS + sentinel].server
                    && epoch > sentinel.view.epoch
                {
                    (sentinel.view.epoch, sentinel.is_leading) = (epoch, true);
                }
            }
            SentinelEvent::Demoted { server, .. } if world.rests_until(Party::Server(server)).is_some() => {
                let due = world.rests_until(Party::Server(server)).unwrap_or_default() + 1;
                world.queue.push(due, Event::Own(what));
            }
            SentinelEvent::Demoted { server, epoch, closes } => {
                // It may have been chosen again meanwhile.
                if world.scene.epochs[server] < epoch {
                    SentinelScene::demote(world, server, closes);
                }
            }
            SentinelEvent::Back(site) if site >= SERVERS && world.now <= world.scene.lost_until => {
                let due = world.scene.lost_until + 1;
                world.queue.push(due, Event::Own(SentinelEvent::Back(site)));
            }
            SentinelEvent::Back(site) => world.sites[site].refuses = false,
            SentinelEvent::Followed { epoch } if epoch == world.scene.truth.epoch => {
                let (primary, processes) = (world.scene.truth.primary, 0..world.processes.len());
                let stale =
                    |process: &usize| world.is_up(*process) && world.processes[*process].server != primary;
                if let Some(process) = processes.clone().find(stale) {
                    return Err(format!(
                        "process {process} has not heard of the failover to server {primary}"
                    ));
                }
            }
            SentinelEvent::Followed { .. } => {}
            SentinelEvent::Abandoned
                if world.scene.several
                    && world.sites[SERVERS..].iter().filter(|sentinel| sentinel.refuses).count() > 1 =>
            {
                let mut processes = 0..world.processes.len();
                let serves = |process: usize| {
                    world.is_up(process) && world.rests_until(Party::Process(process)).is_none()
                };
                if let Some(process) = processes.find(|process| serves(*process)) {
                    return Err(format!("process {process} serves on the word of one sentinel"));
                }
            }
            SentinelEvent::Abandoned => {}
        }
        Ok(())
    }

    fn comes_up(
        world: &mut World<SentinelScene>,
        process: usize,
        _earlier: EarlierIncarnations,
    ) -> Result<(), String> {
        let (server, scene) = (world.processes[process].server, &mut world.scene);
        let before = scene.served.insert(process, server).unwrap_or(server);
        let heard = |server: usize| scene.heard.get(&(process, server)).copied().unwrap_or(0);
        match heard(server) < heard(before) {
            true => {
                Err(format!("process {process} goes back to server {server} from {before}, which came later"))
            }
            false => Ok(()),
        }
    }

    fn executes(world: &mut World<SentinelScene>, site: usize, done: &Done) {
        // Who leads a failover says nothing of its own about it.
        if let Member::Sentinel(Sentinel { view, is_leading: false, .. }) = &world.sites[site].server {
            world.scene.said.insert(done.connection, *view);
        }
    }

    fn hears(&mut self, process: usize, connection: ConnectionId) {
        if let Some(view) = self.said.remove(&connection) {
            let heard = self.heard.entry((process, view.primary)).or_default();
            *heard = view.epoch.max(*heard);
        }
    }

    fn check_served(world: &World<SentinelScene>, process: usize) -> Result<(), String> {
        let (served, primary) = (world.processes[process].server, world.scene.truth.primary);
        match served == primary {
            true => Ok(()),
            false => {
                Err(format!("process {process} serves server {served} although {primary} is the primary"))
            }
        }
    }
}
