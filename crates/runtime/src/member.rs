//! A member on a thread of its own: where it listens, what it is told there, when it shows itself. Not what its role does.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use config::{Address, Config};
use protocol::placement::Placement;
use protocol::time::Time;
use tracing::Span;
use wire::Peer;

use crate::clock;
use crate::instance::{Instance, MapCell, NewPlacement, StartError};
use crate::orders::{Order, Orders, PurgeScope, Purged};
use crate::peers::{MemberIdentity, Peers};
use crate::reactor::{self, ConnectionId, Driver, Event, Io, ListenerId, Waker};
use crate::spans::SpanQueue;
use crate::status::{HotKeyView, MemberStatus, StatusCell};
use crate::stop::Stop;
use crate::tls::{Acceptor, Certificates};

/// Between two statuses of a member. Shorter, and it counts for nobody; longer, and what changes is seen late.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// What a role does of its own on the thread of its member. [`NewMember::run`] has the rest.
pub trait Role: Send + 'static {
    const NAME: &'static str;
    /// From the start of a member to its first status; until then it says that it has no map.
    const STATUS_FIRST: Duration = STATUS_EVERY;

    /// Acts on `event` and gives it back if others have to know of it, as of every `Tick` and `Woken`.
    fn event(&mut self, io: &mut Io, event: Event) -> Option<Event>;

    /// `shows`: its status is asked for next.
    fn tick(&mut self, io: &mut Io, now: Time, shows: bool);

    fn status(&mut self, now: Time) -> MemberStatus;

    /// Epoch of the map that it acts on.
    fn epoch(&self) -> u32;

    /// Acts on a newer map from now on.
    fn adopt(&mut self, io: &mut Io, map: NewPlacement);

    /// Acts on a newer configuration, as far as a member can while it serves.
    fn set(&mut self, io: &mut Io, config: Arc<Config>);

    /// Drops copies. Only shims know who has some.
    fn purge(&mut self, _io: &mut Io, _scope: PurgeScope, _done: Purged) {}

    /// Takes what is hot in the cluster now. Only routers tell it to clients.
    fn tell_hot_keys(&mut self, _io: &mut Io, _hot: &[HotKeyView]) {}

    /// Takes new clients from now on, or no more: another process does. Only routers have some.
    fn take_new_clients(&mut self, _io: &mut Io, _taken: bool) {}

    /// As [`Driver::rest`].
    fn rest(&mut self, now: Time) -> Duration;

    /// As [`Driver::ended`].
    fn ended(&mut self, _io: &mut Io, _connection: ConnectionId) -> bool {
        false
    }

    /// As [`Driver::stopping`].
    fn stopping(&mut self, io: &mut Io) -> bool;
}

/// A member that has no thread yet.
#[derive(Debug)]
pub struct NewMember<'a> {
    pub id: &'a str,
    pub config: &'a Arc<Config>,
    pub certificates: &'a Certificates,
    pub io: Io,
    /// For members whose commands are sampled.
    pub spans: SpanQueue,
    addresses: Vec<Address>,
}

impl<'a> NewMember<'a> {
    /// # Errors
    /// A system without sockets.
    pub fn new(
        config: &'a Arc<Config>,
        certificates: &'a Certificates,
        id: &'a str,
    ) -> Result<NewMember<'a>, StartError> {
        let io = Io::new().map_err(StartError::system(id, "cannot wait for sockets"))?;
        let (spans, addresses) = (SpanQueue::default(), Vec::new());
        Ok(NewMember { id, config, certificates, io, spans, addresses })
    }

    /// Listens from now on, with TLS if there is an `acceptor`.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub fn listen(
        &mut self,
        address: &Address,
        acceptor: Option<&Acceptor>,
    ) -> Result<ListenerId, StartError> {
        let listener = self.io.listen_tls(address, acceptor);
        let listener = listener.map_err(StartError::listen(self.id, address.clone()))?;
        self.addresses.push(self.io.local_address(listener));
        Ok(listener)
    }

    /// Wakes the reactor that `run` starts.
    pub fn waker(&self) -> Waker {
        self.io.waker()
    }

    /// Links to the members that dial `listener`, and to those that will be dialled.
    pub fn peers(&self, own: Peer, listener: ListenerId) -> Peers {
        let mut peers = peers(own, self.config);
        peers.accept_on(listener);
        peers.secure(self.certificates.peers_dialer());
        peers
    }

    /// Where the keys are until a controller tells of a newer map.
    ///
    /// # Errors
    /// A configuration without a usable map.
    pub fn placement(&self) -> Result<Arc<Placement>, StartError> {
        let placement = self.config.placement(self.config.map());
        placement.map(Arc::new).map_err(|error| StartError::refused(self.id, error))
    }

    /// Runs `role` until `stop`, on a thread whose log lines are those of `span`. Until it first shows itself it has `status`.
    ///
    /// # Errors
    /// A system without threads.
    pub fn run<R: Role>(
        self,
        span: Span,
        status: MemberStatus,
        role: R,
        stop: &Stop,
    ) -> Result<Instance, StartError> {
        run_threads(vec![(self, role)], &span, &status, stop)
    }

    /// The same member once more, for another of its threads: it shares the listeners that there are.
    ///
    /// # Errors
    /// A system without sockets.
    pub fn another(&self) -> Result<NewMember<'a>, StartError> {
        let mut another = NewMember::new(self.config, self.certificates, self.id)?;
        for _ in &self.addresses {
            another.io.share_listener(&self.io);
        }
        another.spans = self.spans.clone();
        Ok(another)
    }
}

/// Runs the threads of one member, each with its role, as [`NewMember::run`] does one. The first is the one that listens.
///
/// # Errors
/// A system without threads.
///
/// # Panics
/// If there are no threads.
pub fn run_threads<R: Role>(
    threads: Vec<(NewMember<'_>, R)>,
    span: &Span,
    status: &MemberStatus,
    stop: &Stop,
) -> Result<Instance, StartError> {
    let count = threads.len();
    let (first, _) = threads.first().expect("a member has a thread");
    let (status, orders) = (StatusCell::of_threads(status, count), Orders::of_threads(count));
    let (addresses, spans) = (first.addresses.clone(), first.spans.clone());
    let mut instance = Instance {
        id: first.id.to_owned(),
        addresses,
        status,
        maps: MapCell::default(),
        orders,
        spans,
        threads: Vec::with_capacity(count),
    };
    for (index, (member, role)) in threads.into_iter().enumerate() {
        let thread = start(&instance, index, member, role, (span.clone(), stop.clone()))?;
        instance.threads.push(thread);
    }
    Ok(instance)
}

fn start<R: Role>(
    instance: &Instance,
    index: usize,
    member: NewMember<'_>,
    role: R,
    (span, stop): (Span, Stop),
) -> Result<JoinHandle<()>, StartError> {
    let NewMember { id, config, io, .. } = member;
    let (maps, orders) = (instance.maps.clone(), instance.orders.of_thread(index));
    let waker = io.waker();
    maps.register(move || waker.wake());
    let waker = io.waker();
    orders.register(move || waker.wake());
    let mut running = Running {
        role,
        config: Arc::clone(config),
        status: instance.status.of_thread(index),
        status_next: clock::now().after(R::STATUS_FIRST),
        maps,
        orders,
    };
    let name = if index == 0 { id.to_owned() } else { format!("{id}/{index}") };
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let _member = span.entered();
        if let Err(error) = reactor::run(io, &mut running, &stop) {
            tracing::error!(%error, "the {} has ended", R::NAME);
        }
    });
    thread.map_err(StartError::system(id, "cannot start a thread"))
}

/// Links of `own` to the members that will be dialled, without TLS as yet.
pub fn peers(own: Peer, config: &Config) -> Peers {
    let identity = MemberIdentity { peer: own, secret: *config.secret(), agreement: config.agreement() };
    let mut peers = Peers::new(identity, Duration::from_millis(config.limits.handshake_ms_max));
    peers.limit_unread(config.limits.unread_replies_bytes_max.0 as usize);
    peers
}

/// A role with what its process tells it.
struct Running<R> {
    role: R,
    /// As it was at the start: what placement follows from never changes.
    config: Arc<Config>,
    status: StatusCell,
    status_next: Time,
    maps: MapCell,
    orders: Orders,
}

impl<R: Role> Running<R> {
    fn tick(&mut self, io: &mut Io) {
        let now = clock::now();
        let shows = now >= self.status_next;
        self.role.tick(io, now, shows);
        if shows {
            // Ticks that come a little late do not add up.
            self.status_next = self.status_next.after(STATUS_EVERY).max(now.after(STATUS_EVERY / 2));
            self.status.set(self.role.status(now));
            // Hot keys wake nobody.
            self.take_orders(io);
        }
    }

    fn woken(&mut self, io: &mut Io) {
        if let Some(map) = self.maps.placement_newer_than(&self.config, self.role.epoch()) {
            self.role.adopt(io, map);
        }
        self.take_orders(io);
    }

    fn take_orders(&mut self, io: &mut Io) {
        for order in self.orders.take() {
            match order {
                Order::Settings(config) => self.role.set(io, config),
                Order::Purge { scope, done } => self.role.purge(io, scope, done),
                Order::HotKeys(hot) => self.role.tell_hot_keys(io, &hot),
                Order::NewClients { taken } => self.role.take_new_clients(io, taken),
            }
        }
    }
}

impl<R: Role> Driver for Running<R> {
    fn event(&mut self, io: &mut Io, event: Event) {
        match self.role.event(io, event) {
            Some(Event::Tick) => self.tick(io),
            Some(Event::Woken) => self.woken(io),
            _ => {}
        }
    }

    fn ended(&mut self, io: &mut Io, connection: ConnectionId) -> bool {
        self.role.ended(io, connection)
    }

    fn rest(&mut self, now: Time) -> Duration {
        self.role.rest(now)
    }

    fn stopping(&mut self, io: &mut Io) -> bool {
        self.role.stopping(io)
    }
}
