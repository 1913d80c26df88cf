//! The machine with its links to nodes and shims, shared by the front door and the library. Not their clients.

use std::time::Duration;

use bytes::Bytes;
use commands::memcached::Dialect;
use config::{Address, Config};
use protocol::router::{
    ClientId, CloseReason, Effect, Input, Router, RouterConfig, RouterSettings, Routing, UserSource,
};
use protocol::time::Time;
use runtime::clock;
use runtime::instance::NewPlacement;
use runtime::member;
use runtime::peers::{PeerEvent, Peers};
use runtime::reactor::{Event, Io};
use runtime::tls::Certificates;
use wire::{NodeId, Peer, RouterId, ShimId};

use crate::siblings::Siblings;

/// Far below what ends a link, far above what a link in good health ever has.
const CONGESTED_BYTES: usize = 8 << 20;

/// What has clients: connections, or threads of this process.
pub(crate) trait Front {
    fn reply(&mut self, io: &mut Io, client: ClientId, bytes: Bytes);
    /// The next bytes of a large reply. Whether there is room for more at once; if not, `Input::Drained` follows.
    fn part(&mut self, io: &mut Io, client: ClientId, bytes: Bytes) -> bool;
    /// Something that the client has not asked for now.
    fn push(&mut self, io: &mut Io, client: ClientId, bytes: Bytes);
    /// After its replies have been written, or at once, by the reason. The machine has forgotten the client by now.
    fn close(&mut self, io: &mut Io, client: ClientId, reason: &CloseReason);
    fn resume(&mut self, io: &mut Io, client: ClientId);
}

pub(crate) struct Engine {
    pub(crate) router: Router,
    pub(crate) peers: Peers,
    /// The threads of its router.
    pub(crate) siblings: Siblings,
    shims_linked: usize,
    shims_count: usize,
    nodes_dialled: usize,
    effects: Vec<Effect>,
    peer_events: Vec<PeerEvent>,
}

impl Engine {
    /// `Err` is the reason why the map cannot be used. `streams`: clients take a large reply in parts.
    pub(crate) fn new(
        config: &Config,
        id: RouterId,
        users: UserSource,
        siblings: Siblings,
        streams: bool,
    ) -> Result<Engine, String> {
        let place = siblings.place();
        let mut engine = Engine {
            router: Router::new(RouterConfig { users, place, streams, ..machine_config(config) }),
            siblings,
            peers: member::peers(Peer::Router(id), config),
            shims_linked: 0,
            shims_count: config.shims.len(),
            nodes_dialled: 0,
            effects: Vec::with_capacity(64),
            peer_events: Vec::with_capacity(64),
        };
        let placement = config.placement(config.map()).map_err(|error| error.to_string())?;
        engine.router.step(Time(0), Input::Map(placement.into()), &mut engine.effects);
        Ok(engine)
    }

    /// Shows and demands certificates on the links that are dialled from now on.
    pub(crate) fn secure(&mut self, certificates: &Certificates) {
        self.peers.secure(certificates.peers_dialer());
    }

    pub(crate) fn dial(&mut self, io: &mut Io, config: &Config) {
        self.dial_nodes(io, config.nodes.iter().map(|node| &node.listen));
        for shim in (0..config.shims.len()).map(|index| ShimId(index as u16)) {
            self.peers.dial_shim(io, shim, config.shim_addresses(shim));
        }
    }

    /// Dials the nodes that it has not dialled before, of all in the order of their numbers.
    fn dial_nodes<'a>(&mut self, io: &mut Io, addresses: impl Iterator<Item = &'a Address>) {
        for (index, address) in addresses.enumerate().skip(self.nodes_dialled) {
            self.peers.dial(io, Peer::Node(NodeId(index as u16)), address.clone());
            self.nodes_dialled = index + 1;
        }
    }

    /// Whether a node or shim has so much to take yet that large commands had better wait.
    pub(crate) fn is_congested(&self, io: &Io) -> bool {
        self.peers.out_bytes_max(io) > CONGESTED_BYTES
    }

    /// For how long no tick is needed if nothing happens.
    pub(crate) fn rest(&self, now: Time) -> Duration {
        self.peers.rest(now, self.router.rest(now))
    }

    /// Whether every key can be reached.
    pub(crate) fn is_connected(&self) -> bool {
        self.shims_linked == self.shims_count
    }

    /// Acts on a newer map from now on.
    pub(crate) fn adopt(&mut self, io: &mut Io, map: NewPlacement, front: &mut impl Front) {
        self.dial_nodes(io, map.addresses.iter());
        self.step(io, io.now(), Input::Map(map.placement), front);
    }

    /// Takes what is the peers' and gives back the rest.
    pub(crate) fn event(&mut self, io: &mut Io, event: Event, front: &mut impl Front) -> Option<Event> {
        let mut events = std::mem::take(&mut self.peer_events);
        let foreign = self.peers.event(io, event, &mut events);
        for event in events.drain(..) {
            match event {
                PeerEvent::Message { from, now, message } => {
                    self.step(io, now, Input::Message { from, message }, front);
                }
                PeerEvent::Linked(peer) => {
                    self.shims_linked += usize::from(matches!(peer, Peer::Shim(_)));
                    self.step(io, io.now(), Input::Linked(peer), front);
                }
                PeerEvent::Unlinked(peer) => {
                    self.shims_linked -= usize::from(matches!(peer, Peer::Shim(_)));
                    self.step(io, io.now(), Input::Unlinked(peer), front);
                }
            }
        }
        self.peer_events = events;
        foreign
    }

    pub(crate) fn step(&mut self, io: &mut Io, now: Time, input: Input, front: &mut impl Front) {
        let mut effects = std::mem::take(&mut self.effects);
        self.router.step(now, input, &mut effects);
        // What an effect leads to comes behind all that are here.
        let mut later = Vec::new();
        while !effects.is_empty() {
            for effect in effects.drain(..) {
                match effect {
                    Effect::Send { to, message } => {
                        // What cannot be sent is lost with its link, and `Unlinked` is on its way.
                        self.peers.send(io, to, &message);
                    }
                    Effect::Reply { client, bytes } => front.reply(io, client, bytes),
                    Effect::Push { client, bytes } => front.push(io, client, bytes),
                    Effect::Part { client, bytes } => {
                        if front.part(io, client, bytes) {
                            self.router.step(now, Input::Drained { client }, &mut later);
                        }
                    }
                    Effect::Resume { client } => front.resume(io, client),
                    Effect::Tell { thread, message } => self.siblings.tell(thread, message),
                    Effect::Close { client, reason } => {
                        self.router.step(now, Input::Closed { client }, &mut later);
                        front.close(io, client, &reason);
                    }
                }
            }
            effects.append(&mut later);
        }
        self.effects = effects;
    }
}

pub(crate) fn settings(config: &Config) -> RouterSettings {
    let mut settings = config.router_settings();
    settings.slow_log.epoch = clock::epoch();
    settings
}

fn machine_config(config: &Config) -> RouterConfig {
    RouterConfig {
        routing: match config.cluster.routing {
            config::Routing::Learned => Routing::Learned,
            config::Routing::OnPath => Routing::OnPath,
        },
        seed: rand::random(),
        tracked_max: config.limits.tracking_keys_max,
        bounded: config.cluster.bounded().is_some(),
        dialect: match config.has_memcached_storage() {
            true => Dialect::Memcached,
            false => Dialect::Redis,
        },
        value_bytes_max: config.limits.command_bytes_max.0 as usize,
        shim_names: config.shims.iter().map(|shim| shim.id.clone()).collect(),
        has_standby: (0..config.shims.len())
            .map(|index| config.standbys_of(ShimId(index as u16)).next().is_some())
            .collect(),
        lease: config.cluster.lease_terms(),
        settings: settings(config),
        ..RouterConfig::default()
    }
}
