//! The router as a library: an application reaches the cache without the hop. The routing itself is the machine's.

mod answer;
mod asynchronous;
mod calls;
mod driver;
mod error;
mod turns;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use config::Config;
use protocol::router::UserSource;
use runtime::heartbeat::{self, Pulse};
use runtime::orders::Orders;
use runtime::reactor::Io;
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::RouterId;
use wire::resp::{Command, Value};

pub use asynchronous::AsyncClient;
pub use error::{ConnectError, Error};

use crate::engine::Engine;
use crate::siblings::Siblings;
use answer::{CallAnswer, own_waker};
use driver::{ClientDriver, Renew};
use turns::Turns;

/// First of the router ids that libraries take, at random; the lower ones are the configuration's.
const LIBRARY_FIRST: u16 = 0x8000;
/// How the names of all commands that subscribe, or give it up, end.
const SUBSCRIBE: &[u8] = b"SUBSCRIBE";

/// A connection to the whole cache, for any number of threads; clones share it. It runs one thread, and one more for
/// each controller of the configuration, which tells it of nodes that come and go. They end with the last clone.
///
/// Commands of one call take effect in their order per key, and so do successive calls of one thread. Calls of
/// different threads do not wait for each other.
///
/// ```no_run
/// use std::path::Path;
///
/// let config = config::Config::load(Path::new("cluster.toml"))?;
/// let client = router::Client::connect(&config)?;
/// client.set("visits", "0")?;
/// let counting: Vec<_> = (0..4)
///     .map(|_| {
///         let client = client.clone();
///         std::thread::spawn(move || client.command(&["INCR", "visits"]))
///     })
///     .collect();
/// for thread in counting {
///     thread.join().expect("it does not panic")?;
/// }
/// assert_eq!(client.get("visits")?.as_deref(), Some(&b"4"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    turns: Arc<Turns>,
    stop: Stop,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stop", &self.stop).finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let own = std::thread::current().id();
        // The last clone may be a future's that a waker ends.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            // It ends within the drain time; a panic there has been reported already.
            let _ = thread.join();
        }
    }
}

impl Client {
    /// Connects to every node and shim of `config` and waits until all storage is reachable, at most 5 s.
    ///
    /// Nodes that are not there are done without, as in a router. What can never work is refused at once:
    ///
    /// ```
    /// use router::{Client, ConnectError};
    /// use config::{Config, Secret};
    ///
    /// let without_storage = Config::new("shop", Secret(*b"0123456789abcdef"));
    /// let error = Client::connect(&without_storage).unwrap_err();
    /// assert!(matches!(error, ConnectError::Map(_)), "{error}");
    /// ```
    ///
    /// # Errors
    /// A configuration without a usable map or with wrong certificates, a system without sockets or threads, or shims that do not answer.
    pub fn connect(config: &Config) -> Result<Client, ConnectError> {
        Client::connect_as(config, random_id)
    }

    fn connect_as(config: &Config, id: NewId) -> Result<Client, ConnectError> {
        let (client, connected) = Client::begin(config, id)?;
        match connected.wait() {
            Some(_) => Ok(client),
            None => Err(ConnectError::late(client.shared.turns.refusals())),
        }
    }

    /// A client whose links are being made, and what says that they are, or that it took too long.
    fn begin(config: &Config, id: NewId) -> Result<(Client, Arc<CallAnswer>), ConnectError> {
        let mut io = Io::new().map_err(ConnectError::System)?;
        let certificates = Certificates::load(config)?;
        let config = Arc::new(config.clone());
        let renew = renew(Arc::clone(&config), certificates.clone(), id);
        let engine = renew(&mut io).map_err(ConnectError::Map)?;
        let stop = Stop::new();
        let connected = CallAnswer::new(own_waker());
        let driver = ClientDriver::new(Arc::clone(&config), engine, renew, &io, Arc::clone(&connected));
        let (maps, waker) = (driver.maps.clone(), io.waker());
        let turns = Arc::new(Turns::new(io, driver, stop.clone()));
        let kept = Arc::clone(&turns);
        let thread = std::thread::Builder::new().name("distcache-client".to_owned());
        let thread = thread.spawn(move || kept.keep()).map_err(ConnectError::System)?;
        let keeper = thread.thread().clone();
        stop.register(move || {
            waker.wake();
            keeper.unpark();
        });
        // Maps come from the controllers; without one the configuration's map holds.
        let pulse = Pulse { status: None, maps, orders: Orders::default() };
        let followers = heartbeat::start(&config, &certificates, vec![pulse], None, &stop);
        let mut threads = followers.map_err(ConnectError::System)?;
        threads.push(thread);
        let shared = Shared { turns, stop, threads: Mutex::new(threads) };
        Ok((Client { shared: Arc::new(shared) }, connected))
    }

    /// Runs one command, its name first, and waits for the reply.
    ///
    /// ```no_run
    /// # fn example(client: &router::Client) -> Result<(), router::Error> {
    /// use router::Error;
    /// use wire::resp::Value;
    ///
    /// assert_eq!(client.command(&["RPUSH", "queue", "a", "b"])?, Value::Integer(2));
    /// match client.command(&["INCR", "queue"]) {
    ///     Err(Error::Reply(text)) => assert!(text.starts_with("WRONGTYPE")),
    ///     other => panic!("a list is no number: {other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Error::Reply` for an error reply, of storage or of DistCache.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Result<Value, Error> {
        let reply = self.call(vec![command_of(arguments)?])?.pop();
        value(reply.ok_or(Error::Closed)?)
    }

    /// Starts a batch of commands that travel together.
    pub fn pipeline(&self) -> Pipeline<'_, Client> {
        Pipeline { client: self, commands: Vec::new() }
    }

    /// The string at `key`, or `None` if there is none.
    ///
    /// ```no_run
    /// # fn example(client: &router::Client) -> Result<(), router::Error> {
    /// client.set("greeting", "hello")?;
    /// assert_eq!(client.get("greeting")?.as_deref(), Some(&b"hello"[..]));
    /// assert!(client.del("greeting")?);
    /// assert_eq!(client.get("greeting")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `command`; a value that is not a string is one of them.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>, Error> {
        found(self.command(&[b"GET", key.as_ref()])?)
    }

    /// # Errors
    /// As `command`.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.command(&[b"SET", key.as_ref(), value.as_ref()]).map(drop)
    }

    /// Whether there was such a key.
    ///
    /// # Errors
    /// As `command`.
    pub fn del(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        deleted(self.command(&[b"DEL", key.as_ref()])?)
    }

    /// Ends the client for all clones: calls that wait get `Error::Closed`, and so do later ones.
    pub fn close(&self) {
        self.shared.stop.stop();
    }

    fn call(&self, commands: Vec<Command>) -> Result<Vec<Bytes>, Error> {
        check(&commands)?;
        self.shared.turns.call(commands).ok_or(Error::Closed)
    }
}

/// Commands to be sent together. Per key they take effect in their order; across keys they may overtake.
///
/// ```no_run
/// # fn example(client: &router::Client) -> Result<(), router::Error> {
/// use wire::resp::Value;
///
/// let replies = client
///     .pipeline()
///     .command(&["SET", "a", "1"])
///     .command(&["INCR", "a"])
///     .command(&["LPUSH", "a", "x"])
///     .run()?;
/// assert!(matches!(replies[1], Ok(Value::Integer(2))));
/// assert!(replies[2].is_err(), "one command's error is its own");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pipeline<'a, C> {
    client: &'a C,
    commands: Vec<Command>,
}

impl<C> Pipeline<'_, C> {
    /// # Panics
    /// When `arguments` is empty.
    #[must_use]
    pub fn command<A: AsRef<[u8]>>(mut self, arguments: &[A]) -> Self {
        self.commands.push(Command::from_args(arguments));
        self
    }
}

impl Pipeline<'_, Client> {
    /// Sends them and waits for all replies, one per command and in their order.
    ///
    /// # Errors
    /// Only if the client has ended; error replies are in the vector.
    pub fn run(self) -> Result<Vec<Result<Value, Error>>, Error> {
        if self.commands.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.client.call(self.commands)?.into_iter().map(value).collect())
    }
}

/// What gives a client its id; asked again if that is taken.
type NewId = fn() -> RouterId;

fn random_id() -> RouterId {
    RouterId(rand::random_range(LIBRARY_FIRST..=u16::MAX))
}

/// Makes engines for this configuration.
fn renew(config: Arc<Config>, certificates: Certificates, id: NewId) -> Renew {
    Box::new(move |io| {
        // Whoever has the cluster's secret has the data.
        let owner = UserSource::Given(Arc::default());
        let mut engine = Engine::new(&config, id(), owner, Siblings::alone(io.waker()), false)?;
        engine.secure(&certificates);
        engine.dial(io, &config);
        Ok(engine)
    })
}

/// Refuses commands that a call cannot have.
fn check(commands: &[Command]) -> Result<(), Error> {
    if commands.iter().any(silences) {
        return Err(Error::Reply("ERR DistCache: CLIENT REPLY makes no sense in a library".to_owned()));
    }
    if commands.iter().any(listens) {
        let error =
            "ERR DistCache: a call ends with its reply, so nobody would listen; subscribe at a router";
        return Err(Error::Reply(error.to_owned()));
    }
    Ok(())
}

fn command_of<A: AsRef<[u8]>>(arguments: &[A]) -> Result<Command, Error> {
    match arguments {
        [] => Err(Error::Reply("ERR a command has at least its name".to_owned())),
        arguments => Ok(Command::from_args(arguments)),
    }
}

/// A call waits for one reply per command.
fn silences(command: &Command) -> bool {
    let is = |index, name: &[u8]| command.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(name));
    is(0, b"CLIENT") && is(1, b"REPLY")
}

/// Subscribing, and giving up what a call cannot have.
fn listens(command: &Command) -> bool {
    let name = command.name();
    name.len() >= SUBSCRIBE.len() && name[name.len() - SUBSCRIBE.len()..].eq_ignore_ascii_case(SUBSCRIBE)
}

/// A string, as GET answers it.
fn found(value: Value) -> Result<Option<Bytes>, Error> {
    match value {
        Value::Bulk(bytes) => Ok(Some(bytes)),
        Value::Null => Ok(None),
        other => Err(Error::Unexpected(Box::new(other))),
    }
}

/// Whether there was something, as DEL answers it.
fn deleted(value: Value) -> Result<bool, Error> {
    match value {
        Value::Integer(count) => Ok(count > 0),
        other => Err(Error::Unexpected(Box::new(other))),
    }
}

fn value(reply: Bytes) -> Result<Value, Error> {
    match Value::parse(&reply)? {
        Value::Error(text) => Err(Error::Reply(String::from_utf8_lossy(&text).into_owned())),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::time::Duration;

    use config::{Config, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig};
    use runtime::peers::{MemberIdentity, PeerEvent, Peers};
    use runtime::reactor::{self, Driver, Event, Io};
    use runtime::stop::Stop;
    use wire::{Partition, Peer, RouterId, ShimId};

    use super::{Client, LIBRARY_FIRST};

    /// Takes everybody in, and keeps who is.
    struct Shim {
        peers: Peers,
        linked: Arc<std::sync::Mutex<Vec<Peer>>>,
    }

    impl Driver for Shim {
        fn event(&mut self, io: &mut Io, event: Event) {
            let mut events = Vec::new();
            self.peers.event(io, event, &mut events);
            let linked = events.into_iter().filter_map(|event| match event {
                PeerEvent::Linked(peer) => Some(peer),
                _ => None,
            });
            self.linked.lock().unwrap().extend(linked);
        }
    }

    /// Every second client draws an id that another has.
    fn unlucky() -> RouterId {
        static DRAWN: AtomicU16 = AtomicU16::new(0);
        RouterId(LIBRARY_FIRST + DRAWN.fetch_add(1, Ordering::Relaxed) / 2)
    }

    #[test]
    fn a_client_whose_id_another_has_takes_another_id() {
        let local = || "127.0.0.1:0".parse().unwrap();
        let mut io = Io::new().unwrap();
        let listener = io.listen(&local()).unwrap();
        let secret = Secret(*b"0123456789abcdef");
        let mut config = Config::new("test", secret);
        config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Hash });
        config.nodes.push(NodeConfig::new("leaf-0", "leaf", None, "127.0.0.1:1".parse().unwrap()));
        let address = io.local_address(listener);
        config.shims.push(ShimConfig::new("shim-0", "r0", address, StorageConfig::Embedded));
        config.routers.push(RouterConfig::new("router-0", local()));
        let identity = MemberIdentity { peer: Peer::Shim(ShimId(0)), secret, agreement: config.agreement() };
        let mut peers = Peers::new(identity, Duration::from_secs(5));
        peers.accept_on(listener);
        let linked = Arc::default();
        let (stop, mut shim) = (Stop::new(), Shim { peers, linked: Arc::clone(&linked) });
        let flag = stop.clone();
        let shim = std::thread::spawn(move || reactor::run(io, &mut shim, &flag).unwrap());
        let clients: Vec<Client> =
            (0..4).map(|_| Client::connect_as(&config, unlucky).expect("an id that is free")).collect();
        let router = |id: u16| Peer::Router(RouterId(LIBRARY_FIRST + id));
        assert_eq!(*linked.lock().unwrap(), [router(0), router(1), router(2), router(3)]);
        drop(clients);
        stop.stop();
        shim.join().unwrap();
    }
}
