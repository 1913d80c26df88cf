//! A member of a role that only tells what it is told, on its own thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use config::{Config, LayerConfig, NodeConfig, Secret, ShimConfig, StorageConfig};
use protocol::time::Time;
use runtime::instance::{Instance, NewPlacement, StartError};
use runtime::member::{NewMember, Role};
use runtime::orders::{PurgeScope, Purged};
use runtime::reactor::{Event, Io, TICK};
use runtime::status::{HotKeyView, MemberStatus, NodeStatus};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::{ClusterMap, Partition, SHARE_WHOLE};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
enum Told {
    Shown { ticks: usize },
    Map { epoch: u32, addresses: usize },
    Config(String),
    Purge(PurgeScope),
    HotKeys(usize),
    Stopping,
}

struct Parrot {
    told: Sender<Told>,
    epoch: u32,
    ticks: usize,
}

impl Parrot {
    fn tell(&self, told: Told) {
        self.told.send(told).expect("the test listens");
    }
}

impl Role for Parrot {
    const NAME: &'static str = "node";

    fn event(&mut self, _: &mut Io, event: Event) -> Option<Event> {
        Some(event)
    }

    fn tick(&mut self, _: &mut Io, _: Time, shows: bool) {
        self.ticks += 1;
        if shows {
            let ticks = std::mem::take(&mut self.ticks);
            self.tell(Told::Shown { ticks });
        }
    }

    fn status(&mut self, _: Time) -> MemberStatus {
        MemberStatus::Node(NodeStatus { epoch: self.epoch, ..NodeStatus::default() })
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn adopt(&mut self, _: &mut Io, map: NewPlacement) {
        self.epoch = map.placement.epoch();
        self.tell(Told::Map { epoch: self.epoch, addresses: map.addresses.len() });
    }

    fn rest(&mut self, _: Time) -> Duration {
        TICK
    }

    fn set(&mut self, _: &mut Io, config: Arc<Config>) {
        self.tell(Told::Config(config.cluster.name.clone()));
    }

    fn purge(&mut self, _: &mut Io, scope: PurgeScope, done: Purged) {
        self.tell(Told::Purge(scope));
        done(7);
    }

    fn tell_hot_keys(&mut self, _: &mut Io, hot: &[HotKeyView]) {
        self.tell(Told::HotKeys(hot.len()));
    }

    fn stopping(&mut self, _: &mut Io) -> bool {
        self.tell(Told::Stopping);
        true
    }
}

fn config() -> Arc<Config> {
    let mut config = Config::new("shop", Secret([1; 16]));
    let local: config::Address = "127.0.0.1:0".parse().unwrap();
    config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("n0", "spine", None, local.clone()));
    config.shims.push(ShimConfig::new("s0", "r0", local, StorageConfig::Embedded));
    Arc::new(config)
}

fn start(config: &Arc<Config>, stop: &Stop) -> (Instance, Receiver<Told>) {
    let certificates = Certificates::default();
    let mut member = NewMember::new(config, &certificates, "n0").unwrap();
    member.listen(&config.nodes[0].listen, None).unwrap();
    let (told, heard) = channel();
    let role = Parrot { told, epoch: member.placement().unwrap().epoch(), ticks: 0 };
    let status = MemberStatus::Node(NodeStatus::default());
    (member.run(tracing::Span::none(), status, role, stop).unwrap(), heard)
}

fn not_shown(heard: &Receiver<Told>) -> Told {
    loop {
        match heard.recv_timeout(PATIENCE).expect("something is told") {
            Told::Shown { .. } => {}
            told => return told,
        }
    }
}

#[test]
fn a_member_acts_on_what_its_process_tells_it_until_it_is_stopped() {
    let (config, stop) = (config(), Stop::new());
    let (member, heard) = start(&config, &stop);
    assert!(matches!(&member.addresses[..], [config::Address::Tcp(address)] if address.port() != 0));
    let first = config.map().epoch;
    let map = |epoch| Arc::new(config.map_with(epoch, 1, |_| SHARE_WHOLE));
    let unusable =
        Arc::new(ClusterMap { layers: Vec::new(), ..config.map_with(first + 1, 1, |_| SHARE_WHOLE) });
    let addresses: Arc<[config::Address]> = Arc::from([config.nodes[0].listen.clone()]);
    member.maps.publish(&unusable, &addresses);
    member.maps.publish(&map(first + 2), &addresses);
    assert_eq!(not_shown(&heard), Told::Map { epoch: first + 2, addresses: 1 });
    member.orders.set(&Arc::new(Config::new("store", Secret([1; 16]))));
    assert_eq!(not_shown(&heard), Told::Config("store".to_owned()));
    let (done, copies) = channel();
    assert!(member.orders.purge(PurgeScope::All, Box::new(move |count| done.send(count).unwrap())));
    assert_eq!(not_shown(&heard), Told::Purge(PurgeScope::All));
    assert_eq!(copies.recv_timeout(PATIENCE), Ok(7));
    member.orders.tell_hot_keys(&Arc::from([HotKeyView::default()]));
    assert_eq!(not_shown(&heard), Told::HotKeys(1), "with a status, though they wake nobody");
    assert_eq!(member.status.get().epoch(), first + 2);
    stop.stop();
    assert_eq!(not_shown(&heard), Told::Stopping);
    assert!(member.join());
}

#[test]
fn a_member_shows_itself_about_every_tenth_tick() {
    let stop = Stop::new();
    let (member, heard) = start(&config(), &stop);
    for _ in 0..3 {
        let Ok(Told::Shown { ticks }) = heard.recv_timeout(PATIENCE) else {
            panic!("nobody tells it anything")
        };
        // On a busy machine ticks are late, and fewer are enough; one or two make up for that.
        assert!((1..=12).contains(&ticks), "{ticks}");
    }
    assert_eq!(member.status.get().epoch(), config().map().epoch);
    stop.stop();
    assert!(member.join());
}

#[test]
fn what_keeps_a_member_from_starting_names_it() {
    let (config, certificates) = (config(), Certificates::default());
    let stop = Stop::new();
    let (first, _heard) = start(&config, &stop);
    let mut second = NewMember::new(&config, &certificates, "n0").unwrap();
    let error = second.listen(&first.addresses[0], None).unwrap_err();
    assert!(
        matches!(&error, StartError::Listen { id, address, .. } if id == "n0" && *address == first.addresses[0])
    );
    let mapless = Arc::new(Config::new("shop", Secret([1; 16])));
    let error = NewMember::new(&mapless, &certificates, "n0").unwrap().placement().unwrap_err();
    assert!(matches!(&error, StartError::Refused { id, .. } if id == "n0"), "{error}");
    stop.stop();
    assert!(first.join());
}
