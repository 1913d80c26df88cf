//! A router on real sockets before a shim that is played here: a map in memory behind the peers' protocol.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use config::{Config, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig};
use runtime::instance::Instance;
use runtime::peers::{MemberIdentity, PeerEvent, Peers};
use runtime::reactor::{self, Address, Driver, Event, Io};
use runtime::status::{MemberStatus, RouterStatus};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::message::Reply;
use wire::resp::{Command, reply};
use wire::{Message, Partition, Peer, ShimId, Status};

const SECRET: Secret = Secret(*b"0123456789abcdef");

pub(crate) struct Stage {
    pub(crate) config: Arc<Config>,
    pub(crate) stop: Stop,
    pub(crate) router: Option<Instance>,
    shim_stop: Stop,
    shim: Option<JoinHandle<()>>,
}

impl Stage {
    /// `adjust` may change the configuration before the router starts.
    pub(crate) fn new(adjust: impl FnOnce(&mut Config)) -> Stage {
        let mut io = Io::new().unwrap();
        let listener = io.listen(&local()).unwrap();
        let shim_address = io.local_address(listener);
        let mut config = Config::new("test", SECRET);
        config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Hash });
        // Nobody listens there: a cache without nodes is only slower.
        config.nodes.push(NodeConfig::new("leaf-0", "leaf", None, "127.0.0.1:1".parse().unwrap()));
        config.shims.push(ShimConfig::new("shim-0", "r0", shim_address, StorageConfig::Embedded));
        config.routers.push(RouterConfig::new("router-0", local()));
        adjust(&mut config);
        let config = Arc::new(config);
        let mut peers = Peers::new(
            MemberIdentity { peer: Peer::Shim(ShimId(0)), secret: SECRET, agreement: config.agreement() },
            Duration::from_secs(5),
        );
        peers.accept_on(listener);
        let shim_stop = Stop::new();
        let flag = shim_stop.clone();
        let shim = std::thread::spawn(move || {
            let mut driver = PlayedShim { peers, events: Vec::new(), values: HashMap::new() };
            reactor::run(io, &mut driver, &flag).unwrap();
        });
        let stop = Stop::new();
        let router = router::spawn(&config, &Certificates::default(), "router-0", &stop).unwrap();
        Stage { config, stop, router: Some(router), shim_stop, shim: Some(shim) }
    }

    /// A client whose first command has been answered by the shim.
    pub(crate) fn connect(&self) -> TcpClient {
        loop {
            let mut client = self.connect_raw();
            client.send(b"DBSIZE\r\n");
            if client.line().starts_with(':') {
                return client;
            }
            // The router has not reached the shim yet.
            std::thread::yield_now();
        }
    }

    pub(crate) fn connect_raw(&self) -> TcpClient {
        let Address::Tcp(address) = &self.router.as_ref().unwrap().addresses[0] else { panic!("no TCP") };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.set_nodelay(true).unwrap();
        TcpClient { stream }
    }

    /// Waits until the status fulfils `wanted`.
    pub(crate) fn status(&self, wanted: impl Fn(&RouterStatus) -> bool) -> RouterStatus {
        loop {
            if let MemberStatus::Router(status) = self.router.as_ref().unwrap().status.get()
                && wanted(&status)
            {
                return status;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(router) = self.router.take() {
            let in_order = router.join();
            assert!(in_order || std::thread::panicking(), "the router's thread has panicked");
        }
        self.shim_stop.stop();
        let ended = self.shim.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the shim's thread has panicked");
    }
}

fn local() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) struct TcpClient {
    pub(crate) stream: TcpStream,
}

impl TcpClient {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.stream.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    pub(crate) fn expect(&mut self, expected: &str) {
        let mut got = vec![0; expected.len()];
        self.stream.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), expected);
    }

    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.stream.read(&mut [0; 16]).unwrap(), 0, "the connection is still open");
    }
}

struct PlayedShim {
    peers: Peers,
    events: Vec<PeerEvent>,
    values: HashMap<Bytes, Bytes>,
}

impl PlayedShim {
    fn read(&self, key: &Bytes) -> (Status, Bytes) {
        let Some(value) = self.values.get(key) else { return (Status::Nil, Bytes::new()) };
        let mut out = Vec::new();
        reply::bulk(value, &mut out);
        (Status::Ok, out.into())
    }

    /// `None`: it blocks for ever.
    fn execute(&mut self, command: &Command) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match command.name().to_ascii_uppercase().as_slice() {
            b"SET" => {
                self.values
                    .insert(Bytes::copy_from_slice(command.arg(1)), Bytes::copy_from_slice(command.arg(2)));
                out.extend_from_slice(reply::OK);
            }
            b"INCR" => {
                let value = self.values.entry(Bytes::copy_from_slice(command.arg(1))).or_default();
                let number = std::str::from_utf8(value).unwrap().parse::<i64>().unwrap_or(0) + 1;
                *value = number.to_string().into();
                reply::integer(number, &mut out);
            }
            b"DEL" => {
                let removed = command.args().skip(1).filter(|key| self.values.remove(*key).is_some()).count();
                reply::integer(removed as i64, &mut out);
            }
            b"DBSIZE" => reply::integer(self.values.len() as i64, &mut out),
            b"BLPOP" => return None,
            _ => reply::error(b"ERR not played", &mut out),
        }
        Some(out)
    }
}

impl Driver for PlayedShim {
    fn event(&mut self, io: &mut Io, event: Event) {
        let mut events = std::mem::take(&mut self.events);
        let foreign = self.peers.event(io, event, &mut events);
        assert!(matches!(foreign, None | Some(Event::Tick | Event::Woken)), "unexpected {foreign:?}");
        for event in events.drain(..) {
            let PeerEvent::Message { from, message, .. } = event else { continue };
            let answer = match message {
                Message::Read(read) => {
                    let (status, value) = self.read(&read.key.bytes);
                    Some(Reply { request: read.request, status, value, ..Reply::default() })
                }
                Message::Execute(execute) => {
                    let command = Command::parse(execute.command).unwrap();
                    let value = self.execute(&command);
                    let request = execute.request;
                    value.map(|value| Reply { request, value: value.into(), ..Reply::default() })
                }
                _ => None,
            };
            if let Some(answer) = answer {
                self.peers.send(io, from, &Message::Reply(answer));
            }
        }
        self.events = events;
    }
}
