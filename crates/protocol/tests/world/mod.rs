//! One shim, two nodes and storage on a scripted network and clock: the production machines, nothing else.

mod elastic;
mod gone;
mod settings;
mod storage;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits, LeaseTerms};
use protocol::heat::HeatConfig;
use protocol::node::{self, Admission, Node, NodeConfig, NodeSettings};
use protocol::placement::slot::slot;
use protocol::placement::{Placement, Secret};
use protocol::requests::RequestLimits;
use protocol::shim::{self, Bounded, ForeignWritePolicy, Shim, ShimConfig, ShimSettings};
use protocol::storage::{CommandControl, Lane, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use smallvec::SmallVec;
use storage::{MiniStorage, push};
use wire::message::{Execute, HandoverAck, Read, Window};
use wire::resp::Command;
use wire::resp::transaction::{self, Transaction};
use wire::{
    ClusterMap, Degree, Key, LayerMap, LayerSet, Message, NodeId, NodeMember, Partition, Peer, RackId,
    RouterId, SHARE_WHOLE, Sharding, ShimId, ShimMember, Status, View,
};

const ROUTER: Peer = Peer::Router(RouterId(0));
const SHIM: Peer = Peer::Shim(ShimId(0));
const LEASE: LeaseTerms = LeaseTerms { duration: Duration::from_secs(1), guard: Duration::from_millis(10) };

/// Something on its way. Storage's own traffic is on the way, too.
#[derive(Clone, Debug)]
enum Parcel {
    Message {
        from: Peer,
        to: Peer,
        message: Message,
    },
    Command(Store),
    Answer(StorageEvent),
    /// The same on the feed, in its order.
    Feed(StorageEvent),
}

pub(crate) struct World {
    now: Time,
    placement: Arc<Placement>,
    shim: Option<Shim>,
    /// By the last process that was the shim.
    handed_over: bool,
    nodes: [Option<Node>; 2],
    paused: [bool; 2],
    storage: MiniStorage,
    incarnation: u64,
    bounded: Option<Bounded>,
    /// Storage reports changes.
    feed: bool,
    /// Nothing reaches storage, and nobody can say when something will.
    gone: bool,
    /// It reports changes of what was read behind CLIENT CACHING, but for those by a command on the same connection.
    tracked: Option<BTreeMap<Vec<u8>, Vec<Lane>>>,
    /// Somebody else's command that comes behind the first of the next batch.
    between: Option<Command>,
    parcels: VecDeque<Parcel>,
    holds: Vec<String>,
    held: Vec<(String, Parcel)>,
    /// Commands whose connection broke while storage had them in its buffer.
    stranded: Vec<Store>,
    blocked: Vec<Store>,
    /// The replies that storage has begun, because they are large: those with a value that says so.
    begun: Option<StorageEvent>,
    reads: Vec<String>,
    log: String,
}

impl World {
    /// Two layers of one node each.
    pub(crate) fn new() -> World {
        World::with(2)
    }

    /// Two nodes in so many layers.
    fn with(layers: u16) -> World {
        let node = |id| NodeMember { id: NodeId(id), rack: None, capacity: 1000, share: SHARE_WHOLE };
        let layer = |name: &str, id| LayerMap {
            name: name.into(),
            partition: Partition::Hash,
            nodes: if layers == 1 { vec![node(0), node(1)] } else { vec![node(id)] },
        };
        let map = ClusterMap {
            epoch: 1,
            level: 1,
            layers: [("leaf", 0), ("spine", 1)].map(|(name, id)| layer(name, id))[..layers.into()].to_vec(),
            sharding: Sharding::Slots,
            shims: vec![ShimMember::new(ShimId(0), RackId(0))],
        };
        let placement = Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"));
        let mut world = World {
            now: Time(10_000_000),
            shim: None,
            handed_over: false,
            nodes: [None, None],
            paused: [false; 2],
            storage: MiniStorage::default(),
            incarnation: 0,
            bounded: None,
            feed: false,
            gone: false,
            tracked: None,
            between: None,
            parcels: VecDeque::new(),
            holds: Vec::new(),
            held: Vec::new(),
            stranded: Vec::new(),
            blocked: Vec::new(),
            begun: None,
            reads: Vec::new(),
            log: String::new(),
            placement,
        };
        world.start_node(0);
        world.start_node(1);
        world.start_shim();
        world.wait(2000);
        world.log.clear();
        world
    }

    /// Carries one line of a script out and returns what happened.
    pub(crate) fn command(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rest = |from: usize| words[from..].join(" ");
        match words[0] {
            "read" => self.read(words[1], words[3], (false, false), &words[4..]),
            "read3" => self.read(words[1], words[3], (true, false), &words[4..]),
            "follow" => self.read(words[1], words[3], (false, true), &words[4..]),
            "do" => self.execute(words[1], false, false, &words[2..]),
            "do3" => self.execute(words[1], true, false, &words[2..]),
            "multi" => self.transaction(words[1], (false, None), &words[2..]),
            "then_multi" => self.transaction(words[1], (true, None), &words[2..]),
            // `watch NAME FIRST KEY` belongs to the WATCH of name FIRST, or is it; `watched` is a transaction of it.
            "watch" => self.watch(words[1], words[2], words[3]),
            "watched" => {
                let watch = self.named(words[2]);
                self.transaction(words[1], (false, Some(watch)), &words[3..]);
            }
            "then" => self.execute(words[1], false, true, &words[2..]),
            "wait" => self.wait(words[1].parse().expect("milliseconds")),
            "hold" => self.holds.push(rest(1)),
            "release" => self.release(&rest(1)),
            "drop" => {
                let pattern = rest(1);
                self.holds.retain(|hold| *hold != pattern);
                self.held.retain(|(label, _)| !matches(&pattern, label));
            }
            "copy" => self.copy(&rest(1)),
            "pause" => self.paused[index(words[1])] = true,
            "resume" => self.paused[index(words[1])] = false,
            "leave" => self.leave(),
            "kill" if words[1] == "s0" => self.shim = None,
            "kill" => self.nodes[index(words[1])] = None,
            "start" if words[1] == "s0" => self.start_shim_before(words.get(2).copied()),
            "start" => self.start_node(index(words[1])),
            "break" | "empty" => self.break_storage(words[0] == "empty"),
            "apply" => self.apply_stranded(),
            "move" => self.move_slots(&words[1..]),
            "fence" => self.fence(),
            "policy" => self.policy(words[1], &words[2..]),
            "waits" => self.waits(&words[1..]),
            "purge" => self.purge(words[1].parse().expect("a number"), &words[2..]),
            "drain" => self.step_node(index(words[1]), node::Input::Drain),
            "offer" => self.offer(words[1], &words[2..]),
            "copies" => {
                let copies = self.shim.as_ref().map_or(0, Shim::copies);
                let _ = writeln!(self.log, "  copies: {copies}");
            }
            "observed" => {
                let counts = self.shim.as_ref().map(Shim::statistics).unwrap_or_default();
                let (reads, hits) = (counts.observed_reads, counts.observed_hits);
                let _ = writeln!(self.log, "  {hits} of {reads} reads would have been hits");
            }
            "lapses" => {
                let lapses = self.shim.as_ref().map_or(0, |shim| shim.statistics().leases_lost);
                let _ = writeln!(self.log, "  leases lost: {lapses}");
            }
            "remap" => self.remap(),
            "share" => self.share(index(words[1]), words[2].parse().expect("thousandths")),
            "link" => self.link(words[1], true),
            "unlink" => self.link(words[1], false),
            "unlink_router" => self.step_shim(shim::Input::Unlinked(ROUTER)),
            "cancel" => {
                let cancel = wire::message::Cancel { request: self.named(words[1]) };
                self.post(ROUTER, SHIM, Message::Cancel(cancel));
            }
            _ => self.feed_command(&words),
        }
        self.run();
        std::mem::take(&mut self.log)
    }

    /// What others do to storage, and what the shim hears of it.
    fn feed_command(&mut self, words: &[&str]) {
        match words[0] {
            // Somebody else, or storage itself, changes a key without the shim.
            "behind" => {
                self.storage.execute(self.now.0 / 1000, &Command::from_args(&words[1..]));
                self.report(None);
            }
            "tracks" => {
                self.tracked = Some(BTreeMap::new());
                self.start_shim();
                self.wait(2000);
                self.log.clear();
            }
            "cut_read_feed" => {
                self.tracked = Some(BTreeMap::new());
                self.held.retain(|(_, parcel)| !matches!(parcel, Parcel::Feed(_)));
                self.send(Parcel::Feed(StorageEvent::ReadFeedDown));
            }
            "foreign" => {
                let shim = self.shim.as_ref().expect("it runs");
                let shim::ForeignWritersSeen { changes, key, connections, eviction, refused } =
                    shim.foreign_writers();
                let last = if *changes > 0 { format!(", last of {key:?}") } else { String::new() };
                let connections: Vec<String> = connections.iter().map(ToString::to_string).collect();
                let caching = if *refused { "refused" } else { "allowed" };
                let _ = writeln!(
                    self.log,
                    "  foreign writes: {changes}{last}; writers {connections:?}; evicts {eviction:?}; caching {caching}"
                );
            }
            // Of these addresses, or so many changes.
            "others" => {
                let count = words[1].parse().expect("a number");
                let connections = words[2..].iter().map(|&address| address.to_owned()).collect();
                self.send(Parcel::Answer(StorageEvent::ForeignWrites { count, connections }));
            }
            // Somebody's script runs while the next read is announced, and has ended when it is carried out.
            "busy" => self.storage.is_busy = true,
            "evicts" => self.storage.eviction = words.get(1).map(|&policy| policy.to_owned()),
            "clients" => self.storage.clients = words[1..].join(" "),
            "refuse_foreign" => {
                let settings = ShimSettings { foreign_writes: ForeignWritePolicy::Refuse, ..shim_settings() };
                self.step_shim(shim::Input::Settings(Box::new(settings)));
            }
            "between" => self.between = Some(Command::from_args(&words[1..])),
            "bounded" => {
                let time = |word: &str| Duration::from_millis(word.parse().expect("milliseconds"));
                self.bounded = Some(Bounded { staleness: time(words[1]), age: time(words[2]) });
                self.start_shim();
                self.wait(2000);
                self.log.clear();
            }
            "cut_feed" => {
                self.feed = false;
                self.held.retain(|(_, parcel)| !matches!(parcel, Parcel::Feed(_)));
                self.send(Parcel::Feed(StorageEvent::FeedDown));
            }
            "trust" => {
                let state = self.shim.as_ref().map(|shim| shim.feed(self.now));
                let (open, ms) = state.map_or((false, 0), |feed| (feed.open, feed.staleness.as_millis()));
                let _ = writeln!(self.log, "  feed open: {open}, {ms} ms behind");
            }
            _ if self.gone_command(words) => {}
            _ => assert!(self.elastic_command(words), "unknown script command {words:?}"),
        }
    }

    fn start_node(&mut self, index: usize) {
        let config = NodeConfig {
            id: NodeId(index as u16),
            layer: self.placement.layer_of(NodeId(index as u16)),
            capacity: 1000,
            lease: LEASE,
            seed: index as u64 + self.now.0,
            settings: node_settings(),
        };
        let mut node = Node::new(config, Arc::clone(&self.placement));
        node.step(self.now, node::Input::Linked(SHIM), &mut Vec::new());
        self.nodes[index] = Some(node);
    }

    fn start_shim(&mut self) {
        self.incarnation += 1000;
        let config = ShimConfig {
            id: ShimId(0),
            lease: LEASE,
            lease_limits: LeaseLimits::default(),
            blocking_max: 10,
            large_replies_max: 128,
            early_value_bytes_max: 1 << 16,
            cache_expiring_hashes: false,
            tracked_max: 1000,
            bounded: self.bounded,
            seed: self.incarnation,
            settings: shim_settings(),
        };
        self.shim = Some(Shim::new(config, Arc::clone(&self.placement)));
        let (incarnation, traits) = (self.incarnation, self.traits());
        let earlier = match std::mem::take(&mut self.handed_over) {
            true => EarlierIncarnations { same_data: true, ..EarlierIncarnations::recorded(Duration::ZERO) },
            false => EarlierIncarnations::recorded(LEASE.restart_wait()),
        };
        self.parcels.push_back(Parcel::Answer(StorageEvent::Up { incarnation, traits, earlier }));
    }

    /// A process of the shim; `emptied`: before storage that has lost everything since the last one served it.
    fn start_shim_before(&mut self, storage: Option<&str>) {
        if storage != Some("emptied") {
            return self.start_shim();
        }
        self.storage = MiniStorage::default();
        self.start_shim();
        let Some(Parcel::Answer(StorageEvent::Up { earlier, .. })) = self.parcels.back_mut() else {
            panic!("storage is up");
        };
        earlier.same_data = false;
    }

    fn traits(&self) -> StorageTraits {
        StorageTraits { tracks_reads: self.tracked.is_some(), ..StorageTraits::default() }
    }

    fn read(&mut self, name: &str, via: &str, (resp3, ordered): (bool, bool), args: &[&str]) {
        let (key, view, command) = self.view(args);
        let (request, degree) = (self.request(name), Degree::BASE);
        let read = Read { request, key, view, resp3, ordered, streams: false, waited_ms: 0, degree, command };
        self.post(ROUTER, peer(via), Message::Read(read));
    }

    fn execute(&mut self, name: &str, resp3: bool, ordered: bool, args: &[&str]) {
        let command = Command::from_args(args);
        let key = args.get(1).map_or_else(Key::default, |key| self.key(key));
        let request = self.request(name);
        // A read in a pipeline behind a write of the same key goes to the shim, flagged.
        let message = if args[0] == "GET" {
            let command = Bytes::new();
            Message::Read(Read {
                request,
                key,
                view: View::GET,
                resp3,
                ordered,
                streams: false,
                waited_ms: 0,
                degree: Degree::BASE,
                command,
            })
        } else {
            Message::Execute(Execute {
                request,
                key,
                resp3,
                ordered,
                watch: None,
                waited_ms: 0,
                command: command.frame().clone(),
            })
        };
        self.post(ROUTER, SHIM, message);
    }

    /// Commands between MULTI and EXEC, with `/` between them.
    fn transaction(&mut self, name: &str, (ordered, watch): (bool, Option<u64>), words: &[&str]) {
        let mut whole = Transaction::default();
        for args in words.split(|word| *word == "/") {
            let command = Command::from_args(args);
            let classified = commands::classify(&command).expect("a command of the table");
            whole.push(&command, &classified.keys);
        }
        let whole = whole.finish();
        let key =
            whole.get(1).map_or_else(Key::default, |key| self.placement.key(0, Bytes::copy_from_slice(key)));
        let (request, resp3, command) = (self.request(name), false, whole.frame().clone());
        self.post(
            ROUTER,
            SHIM,
            Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms: 0, command }),
        );
    }

    fn watch(&mut self, name: &str, first: &str, key: &str) {
        let request = self.request(name);
        let (key, command) = (self.key(key), Command::from_args(&["WATCH", key]).frame().clone());
        let (watch, resp3, ordered) = (Some(self.named(first)), false, false);
        self.post(
            ROUTER,
            SHIM,
            Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms: 0, command }),
        );
    }

    /// The request of this name.
    fn named(&self, name: &str) -> u64 {
        self.reads.iter().position(|known| known == name).expect("a known request") as u64
    }

    /// The shim finds a key hot, by default its plain GET: one message makes a copy, if the node agrees.
    fn offer(&mut self, node: &str, words: &[&str]) {
        let args = if words.len() > 1 { words.to_vec() } else { vec!["GET", words[0]] };
        let (key, view, command) = self.view(&args);
        let offer = wire::message::Offer { key, view, resp3: false, heat: 100, command };
        self.post(SHIM, peer(node), Message::Offer(offer));
    }

    /// A cacheable read as routers send it.
    fn view(&self, args: &[&str]) -> (Key, View, Bytes) {
        let command = Command::from_args(args);
        let classified = commands::classify(&command).expect("a command of the table");
        let view = commands::view(self.placement.view_hash(), &command, &classified, false);
        let frame = if view == View::GET { Bytes::new() } else { command.frame().clone() };
        (self.key(args[1]), view, frame)
    }

    /// The controller takes n0 out of the map; n0 does not know yet.
    fn remap(&mut self) {
        let placement = self.placement_with(0, 0);
        self.step_shim(shim::Input::Map(placement));
    }

    /// A node has another share of its partition from now on, and hears so.
    fn share(&mut self, index: usize, share: u16) {
        self.placement = self.placement_with(index, share);
        self.step_shim(shim::Input::Map(Arc::clone(&self.placement)));
        self.step_node(index, node::Input::Map(Arc::clone(&self.placement)));
    }

    fn placement_with(&self, index: usize, share: u16) -> Arc<Placement> {
        let mut map = self.placement.map().clone();
        map.epoch += 1;
        let mut nodes = map.layers.iter_mut().flat_map(|layer| &mut layer.nodes);
        nodes.find(|node| usize::from(node.id.0) == index).expect("it is in the map").share = share;
        Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"))
    }

    /// Both connections between a node and the shim break or come back. What was on them is gone.
    fn link(&mut self, node: &str, up: bool) {
        let (index, node) = (index(node), peer(node));
        if up {
            self.step_node(index, node::Input::Linked(SHIM));
            self.step_shim(shim::Input::Linked(node));
        } else {
            self.held.clear();
            self.step_node(index, node::Input::Unlinked(SHIM));
            self.step_shim(shim::Input::Unlinked(node));
        }
    }

    fn request(&mut self, name: &str) -> u64 {
        self.reads.push(name.to_owned());
        self.reads.len() as u64 - 1
    }

    fn key(&self, text: &str) -> Key {
        self.placement.key(0, Bytes::copy_from_slice(text.as_bytes()))
    }

    fn wait(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.now = self.now.after(Duration::from_millis(10));
            self.step_shim(shim::Input::Tick);
            for index in 0..2 {
                self.step_node(index, node::Input::Tick);
            }
            self.run();
        }
    }

    fn post(&mut self, from: Peer, to: Peer, message: Message) {
        // There is one shim, whatever it says, and nobody who asks too much of it.
        if matches!(message, Message::Tenure(_)) || to == ROUTER && matches!(message, Message::Window(_)) {
            return;
        }
        self.send(Parcel::Message { from, to, message });
    }

    fn send(&mut self, parcel: Parcel) {
        let label = label(&parcel);
        if self.holds.iter().any(|hold| matches(hold, &label)) {
            let _ = writeln!(self.log, "  held: {label}");
            self.held.push((label, parcel));
        } else {
            self.parcels.push_back(parcel);
        }
    }

    fn release(&mut self, pattern: &str) {
        self.holds.retain(|hold| hold != pattern);
        let (released, held) =
            std::mem::take(&mut self.held).into_iter().partition(|(label, _)| matches(pattern, label));
        self.held = held;
        let released: Vec<(String, Parcel)> = released;
        self.parcels.extend(released.into_iter().map(|(_, parcel)| parcel));
    }

    /// Delivers what is held once more each time: the network repeats itself.
    fn copy(&mut self, pattern: &str) {
        let copies = self.held.iter().filter(|(label, _)| matches(pattern, label));
        self.parcels.extend(copies.map(|(_, parcel)| parcel.clone()));
    }

    fn run(&mut self) {
        let mut waiting = VecDeque::new();
        while let Some(parcel) = self.parcels.pop_front() {
            match parcel {
                Parcel::Message { to: Peer::Node(node), .. } if self.paused[usize::from(node.0)] => {
                    waiting.push_back(parcel);
                }
                parcel => self.deliver(parcel),
            }
        }
        self.parcels = waiting;
    }

    fn deliver(&mut self, parcel: Parcel) {
        let label = label(&parcel);
        if !label.contains("RENEW")
            && !label.contains("GRANT")
            && !label.contains("PING")
            && !label.contains("PONG")
        {
            let _ = writeln!(self.log, "  {label}");
        }
        match parcel {
            Parcel::Message { from, to: Peer::Router(_), message: Message::Reply(reply) } => {
                let name = &self.reads[reply.request as usize];
                let how = if reply.hit { " (hit)" } else { "" };
                let text = match reply.status {
                    Status::Large => "too large for a node".into(),
                    Status::Unlinked => "no link to the shim".into(),
                    _ if reply.value.is_empty() => "nil".into(),
                    _ => show(&reply.value),
                };
                let elsewhere = match (from, reply.status) {
                    (SHIM, Status::Refused) if reply.cached != LayerSet::EMPTY => " (a node may have it)",
                    _ => "",
                };
                let _ = writeln!(self.log, "{name} = {text}{how}{elsewhere}");
            }
            Parcel::Message { from, to: to @ Peer::Router(_), message: Message::Handover(handover) } => {
                let ack = HandoverAck { number: handover.number };
                self.post(to, from, Message::HandoverAck(ack));
            }
            Parcel::Message { from, to: Peer::Node(node), message } => {
                self.step_node(usize::from(node.0), node::Input::Message { from, message });
            }
            Parcel::Message { from, to: Peer::Shim(_), message } => {
                self.step_shim(shim::Input::Message { from, message });
            }
            Parcel::Message { .. } => panic!("nothing else goes to a router"),
            Parcel::Command(store) => self.store(store),
            Parcel::Answer(event) | Parcel::Feed(event) => {
                self.step_shim(shim::Input::Storage(event));
                let whole = self.begun.take().map(Parcel::Answer);
                self.parcels.extend(whole);
            }
        }
    }

    fn step_node(&mut self, index: usize, input: node::Input) {
        let mut effects = Vec::new();
        if let Some(node) = self.nodes[index].as_mut().filter(|_| !self.paused[index]) {
            node.step(self.now, input, &mut effects);
        }
        for node::Effect::Send { to, message } in effects {
            self.post(Peer::Node(NodeId(index as u16)), to, message);
        }
    }

    /// The shim's process ends in order. Its links have been there for long.
    fn leave(&mut self) {
        for peer in [Peer::Node(NodeId(0)), Peer::Node(NodeId(1)), ROUTER] {
            self.step_shim(shim::Input::Linked(peer));
        }
        self.step_shim(shim::Input::HandOver);
    }

    fn step_shim(&mut self, input: shim::Input) {
        let mut effects = Vec::new();
        if let Some(shim) = &mut self.shim {
            shim.step(self.now, input, &mut effects);
        }
        for effect in effects {
            match effect {
                shim::Effect::Send { to, message } => self.post(SHIM, to, message),
                shim::Effect::Store(store) => self.send(Parcel::Command(store)),
                shim::Effect::Release { number, clean } => {
                    self.storage.release(number);
                    let how = if clean { " clean" } else { "" };
                    let _ = writeln!(self.log, "  s0 releases connection {number}{how}");
                }
                shim::Effect::Control { control: CommandControl::Skip, .. } => {
                    self.begun.take().expect("only a large reply is skipped");
                    let _ = writeln!(self.log, "  s0 skips it");
                }
                shim::Effect::Control { control: CommandControl::Take { .. }, .. } => {
                    panic!("nobody here takes parts")
                }
                // There is no other, and nothing leaves.
                shim::Effect::Vacant { .. }
                | shim::Effect::Renew
                | shim::Effect::Migrate { .. }
                | shim::Effect::Prepare { .. }
                | shim::Effect::EndMigration => {}
                shim::Effect::HandOver => {
                    self.handed_over = true;
                    let _ = writeln!(self.log, "  s0 hands its storage over");
                    self.parcels.push_back(Parcel::Answer(StorageEvent::Left));
                }
                shim::Effect::Purged { number, copies } => {
                    let _ = writeln!(self.log, "  purge {number} is done, {copies} copies");
                }
                shim::Effect::Control { ticket, control: CommandControl::Unblock { error } } => {
                    self.blocked.retain(|store| store.ticket != ticket);
                    let reply: &[u8] = if error { b"-UNBLOCKED\r\n" } else { b"*-1\r\n" };
                    let replies = [Bytes::from_static(reply)].into_iter().collect();
                    self.parcels.push_back(Parcel::Answer(StorageEvent::Replies { ticket, replies }));
                }
                shim::Effect::Control { ticket, control: CommandControl::Abort } => {
                    self.blocked.retain(|store| store.ticket != ticket);
                    self.parcels.push_back(Parcel::Answer(StorageEvent::Lost { ticket, sent: true }));
                    self.parcels.push_back(Parcel::Answer(StorageEvent::Fenced));
                }
            }
        }
    }

    /// Storage carries a batch out; a write may let blocked commands go on.
    fn store(&mut self, store: Store) {
        let now_ms = self.now.0 / 1000;
        if self.gone {
            let lost = StorageEvent::Lost { ticket: store.ticket, sent: false };
            return self.send(Parcel::Answer(lost));
        }
        if matches!(store.lane, Lane::Feed | Lane::ReadFeed) {
            let word: &[u8] = if store.commands[0].ends_with(b"PING\r\n") { b"PONG" } else { b"OK" };
            self.feed = true;
            let mut reply = Vec::new();
            wire::resp::reply::simple(word, &mut reply);
            let replies = [Bytes::from(reply)].into_iter().collect();
            return self.send(Parcel::Feed(StorageEvent::Replies { ticket: store.ticket, replies }));
        }
        if let Some(other) = self.between.take_if(|_| store.commands.len() > 2) {
            return self.interrupted(&store, &other);
        }
        let replies = match store.lane {
            Lane::Watching { number, .. } => {
                Some(self.storage.execute_watching(now_ms, number, &store.commands))
            }
            _ => self.storage.execute_all(now_ms, &store.commands),
        };
        let Some(replies) = replies else { return self.blocked.push(store) };
        let replies: SmallVec<[Bytes; 2]> = replies.into();
        self.report(Some(store.lane));
        self.track(&store, &replies);
        let ticket = store.ticket;
        let large = |reply: &Bytes| reply.ends_with(b"\r\nlarge\r\n");
        if replies.last().is_some_and(large) {
            self.begun = Some(StorageEvent::Replies { ticket, replies });
            self.send(Parcel::Answer(StorageEvent::Large { ticket }));
        } else {
            self.send(Parcel::Answer(StorageEvent::Replies { ticket, replies }));
        }
        if store.lane == (Lane::Shared { resp3: false }) {
            for blocked in std::mem::take(&mut self.blocked) {
                self.store(blocked);
            }
        }
    }

    /// Storage carries a batch out, and somebody else's command behind its first.
    fn interrupted(&mut self, store: &Store, other: &Command) {
        let now_ms = self.now.0 / 1000;
        let [first, rest @ ..] = &store.commands[..] else { return };
        let mut replies =
            self.storage.execute_all(now_ms, std::slice::from_ref(first)).expect("it does not block");
        self.report(Some(store.lane));
        self.storage.execute(now_ms, other);
        self.report(None);
        replies.extend(self.storage.execute_all(now_ms, rest).expect("reads do not block"));
        self.track(store, &replies);
        let ticket = store.ticket;
        self.send(Parcel::Answer(StorageEvent::Replies { ticket, replies: replies.into() }));
    }

    /// Storage names what has changed since it did so last, by a command on this connection of the shim's.
    fn report(&mut self, writer: Option<Lane>) {
        let Some(changes) = self.storage.changes() else { return };
        let Some(tracked) = &mut self.tracked else {
            if self.feed {
                self.send(Parcel::Feed(StorageEvent::Changed(push(changes.as_deref()))));
            }
            return;
        };
        let mut pushes = Vec::new();
        match changes {
            None if tracked.is_empty() => {}
            None => {
                tracked.clear();
                pushes.push(push(None));
            }
            Some(keys) => {
                for key in keys {
                    let readers = tracked.remove(&key).unwrap_or_default();
                    let told = readers.iter().filter(|reader| Some(**reader) != writer);
                    pushes.extend(told.map(|_| push(Some(std::slice::from_ref(&key)))));
                }
            }
        }
        for push in pushes {
            self.send(Parcel::Feed(StorageEvent::ReadChanged(push)));
        }
    }

    fn track(&mut self, store: &Store, replies: &[Bytes]) {
        let Some(tracked) = &mut self.tracked else { return };
        let parse = |frame: &Bytes| Command::parse(frame.clone()).expect("only whole commands reach storage");
        for (pair, reply) in store.commands.windows(2).zip(replies) {
            if parse(&pair[0]).name() == b"CLIENT" && reply.starts_with(b"+") {
                let readers = tracked.entry(parse(&pair[1]).arg(1).to_vec()).or_default();
                if !readers.contains(&store.lane) {
                    readers.push(store.lane);
                }
            }
        }
    }

    /// The connection breaks: what is held on its way to storage is lost to the shim, but not to storage.
    fn fence(&mut self) {
        self.stranded.clear();
        self.parcels.push_back(Parcel::Answer(StorageEvent::Fenced));
    }

    fn move_slots(&mut self, keys: &[&str]) {
        let slots = keys.iter().map(|key| slot(key.as_bytes())).collect();
        self.parcels.push_back(Parcel::Answer(StorageEvent::Moving(slots)));
    }

    /// Its connections break; or it ends, and another one without data takes its place.
    fn break_storage(&mut self, empty: bool) {
        let down = StorageEvent::Down { reason: "broken by the script".into(), gone: true };
        for (_, parcel) in std::mem::take(&mut self.held) {
            if let Parcel::Command(store) = parcel {
                let ticket = store.ticket;
                self.stranded.push(store);
                self.parcels.push_back(Parcel::Answer(StorageEvent::Lost { ticket, sent: true }));
            }
        }
        self.parcels.push_back(Parcel::Answer(down));
        if empty {
            self.storage = MiniStorage::default();
            self.stranded.clear();
            self.incarnation += 1;
        }
        let (incarnation, traits) = (self.incarnation, self.traits());
        self.parcels.push_back(Parcel::Answer(StorageEvent::Up {
            incarnation,
            traits,
            earlier: EarlierIncarnations::recorded(LEASE.restart_wait()),
        }));
    }

    fn apply_stranded(&mut self) {
        for store in std::mem::take(&mut self.stranded) {
            let _ = writeln!(self.log, "  storage applies late: {}", shown_all(&store.commands));
            self.storage.execute_all(self.now.0 / 1000, &store.commands);
        }
    }
}

fn label(parcel: &Parcel) -> String {
    match parcel {
        Parcel::Message { from, to, message } => format!("{}>{} {}", who(*from), who(*to), what(message)),
        Parcel::Command(store) => {
            let feed = match store.lane {
                Lane::Feed => "feed ",
                Lane::ReadFeed => "read feed ",
                _ => "",
            };
            format!("s0>storage {feed}{}", shown_all(&store.commands))
        }
        Parcel::Feed(StorageEvent::Replies { replies, .. }) => {
            format!("storage>s0 feed {}", show(&replies[0]))
        }
        Parcel::Feed(StorageEvent::Changed(push)) => format!("storage>s0 feed {}", show(push)),
        Parcel::Feed(StorageEvent::ReadChanged(push)) => format!("storage>s0 read feed {}", show(push)),
        Parcel::Feed(event) => format!("storage>s0 feed {event:?}"),
        Parcel::Answer(StorageEvent::Replies { replies, .. }) => {
            let replies: Vec<String> = replies.iter().map(|reply| show(reply)).collect();
            format!("storage>s0 {}", replies.join(", "))
        }
        Parcel::Answer(StorageEvent::Up { .. }) => "storage>s0 up".into(),
        Parcel::Answer(StorageEvent::Down { .. }) => "storage>s0 down".into(),
        Parcel::Answer(StorageEvent::Lost { .. }) => "storage>s0 lost".into(),
        Parcel::Answer(StorageEvent::Published(push)) => format!("storage>s0 {}", show(push)),
        Parcel::Answer(StorageEvent::Unsubscribed) => "storage>s0 unsubscribed".into(),
        Parcel::Answer(StorageEvent::Moving(slots)) if slots.is_empty() => "storage>s0 all settled".into(),
        Parcel::Answer(StorageEvent::Moving(_)) => "storage>s0 moving".into(),
        Parcel::Answer(StorageEvent::Fenced) => "storage>s0 fenced".into(),
        Parcel::Answer(StorageEvent::Left) => "storage>s0 left".into(),
        Parcel::Answer(StorageEvent::Marked | StorageEvent::Migrated | StorageEvent::MigrationEnded) => {
            panic!("nothing leaves")
        }
        Parcel::Answer(StorageEvent::ForeignWrites { count, .. }) => {
            format!("storage>s0 {count} foreign writes")
        }
        Parcel::Answer(StorageEvent::Large { .. }) => "storage>s0 begins with something large".into(),
        Parcel::Answer(StorageEvent::Part { .. }) => panic!("nobody here takes parts"),
        Parcel::Answer(StorageEvent::Note { .. }) => panic!("nobody here talks to people"),
        Parcel::Answer(
            event @ (StorageEvent::Changed(_)
            | StorageEvent::FeedDown
            | StorageEvent::ReadChanged(_)
            | StorageEvent::ReadFeedDown),
        ) => {
            panic!("{event:?} is a feed's")
        }
    }
}

fn what(message: &Message) -> String {
    let text = |key: &Key| String::from_utf8_lossy(&key.bytes).into_owned();
    match message {
        Message::Read(m) if m.resp3 => format!("READ {} of RESP3", text(&m.key)),
        Message::Read(m) => format!("READ {}", text(&m.key)),
        Message::Reply(_) => "REPLY".into(),
        Message::Execute(m) => match transaction::split(&m.command) {
            Ok(commands) => {
                let commands: Vec<String> = commands.iter().map(shown).collect();
                format!("MULTI {} EXEC", commands.join(" / "))
            }
            Err(_) => shown(&Command::parse(m.command.clone()).expect("a whole command")),
        },
        Message::Cancel(_) => "CANCEL".into(),
        Message::Fetch(m) => format!("FETCH {} fill {}", text(&m.key), m.fill),
        Message::Fill(m) if m.granted => format!("FILL {} fill {} granted", text(&m.key), m.fill),
        Message::Fill(m) if m.status == Status::Large => {
            format!("FILL {} fill {} too large", text(&m.key), m.fill)
        }
        Message::Fill(m) if m.status == Status::Refused => {
            format!("FILL {} fill {} refused", text(&m.key), m.fill)
        }
        Message::Fill(m) => format!("FILL {} fill {} not granted", text(&m.key), m.fill),
        Message::Offer(m) => format!("OFFER {}", text(&m.key)),
        Message::Heat(m) => format!("HEAT {} {}", text(&m.key), m.permille),
        Message::SetDegree(m) => format!("DEGREE {} {}", text(&m.key), m.degree.0),
        Message::Subscribe(m) => format!("SUBSCRIBE {} for {}", text(&m.name), m.clients),
        Message::Subscribers(m) => format!("SUBSCRIBERS {} now {}", text(&m.name), m.clients),
        Message::Follow(m) => format!("FOLLOW {}", m.follows),
        Message::Track(m) => format!("TRACK {}", text(&m.key)),
        Message::Changed(m) => format!("CHANGED {}", show(&m.keys)),
        Message::Part(m) => format!("PART {:?}", m.follows),
        Message::Credit(m) => format!("CREDIT {}", m.bytes),
        Message::Deliver(m) => format!("DELIVER {}", text(&m.name)),
        Message::Hello(m) => format!("HELLO {}", m.number),
        Message::Welcome(_) => "WELCOME".into(),
        Message::Reject(m) => format!("REJECT {}", m.last),
        Message::Renew(_) => "RENEW".into(),
        Message::Grant(_) => "GRANT".into(),
        Message::Refuse(_) => "REFUSE".into(),
        Message::Invalidate(m) if m.value.is_some() => {
            format!("INV {} v{} with value", text(&m.key), m.version)
        }
        Message::Invalidate(m) => format!("INV {} v{}", text(&m.key), m.version),
        Message::Ack(m) if m.nothing_held.is_some() => {
            format!("ACK {} v{} nothing held", text(&m.key), m.version)
        }
        Message::Ack(m) => format!("ACK {} v{}", text(&m.key), m.version),
        Message::Commit(m) => format!("COMMIT {} v{}", text(&m.key), m.version),
        Message::Evict(m) => format!("EVICT {} fill {}", text(&m.key), m.fill),
        Message::Handover(_) => "HANDOVER".into(),
        Message::HandoverAck(_) => "HANDOVER ACK".into(),
        Message::Tenure(_) => "TENURE".into(),
        Message::Revoke(m) if m.spares => "REVOKE but for what may be stale".into(),
        Message::Revoke(_) => "REVOKE".into(),
        Message::Revoked(_) => "REVOKED".into(),
        Message::Window(m) if m.requests == Window::UNLIMITED => "WINDOW unlimited".into(),
        Message::Window(m) => format!("WINDOW {}", m.requests),
    }
}

fn who(peer: Peer) -> String {
    match peer {
        Peer::Node(id) => format!("n{}", id.0),
        Peer::Shim(id) => format!("s{}", id.0),
        Peer::Router(id) => format!("r{}", id.0),
    }
}

fn peer(name: &str) -> Peer {
    match name {
        "s0" => SHIM,
        node => Peer::Node(NodeId(index(node) as u16)),
    }
}

fn index(node: &str) -> usize {
    node.strip_prefix('n').and_then(|digits| digits.parse().ok()).expect("n0 or n1")
}

/// A hold matches what begins with it, word for word.
fn matches(pattern: &str, label: &str) -> bool {
    label.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn show(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).trim_end().replace("\r\n", " ")
}

fn shown_all(frames: &[Bytes]) -> String {
    let parse = |frame: &Bytes| shown(&Command::parse(frame.clone()).expect("the shim sends whole commands"));
    frames.iter().map(parse).collect::<Vec<_>>().join(", ")
}

fn shown(command: &Command) -> String {
    command.args().map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

fn node_settings() -> NodeSettings {
    NodeSettings {
        objects_max: 4,
        bytes_max: 1 << 20,
        value_bytes_max: 1 << 16,
        heat: HeatConfig { counters: 1024, filter_bits: 4096, ..HeatConfig::default() },
        admission: Admission { heat_min: 1, hysteresis: 250, hold_off: Duration::from_secs(10), hits_min: 1 },
        views_max: 64,
        forwarded_max: 1024,
        requests: RequestLimits::default(),
        ..NodeSettings::default()
    }
}

fn shim_settings() -> ShimSettings {
    ShimSettings {
        heat: HeatConfig { counters: 1024, filter_bits: 4096, ..HeatConfig::default() },
        // Nodes find hot keys themselves here, so that scripts decide what is cached.
        heat_min: u32::MAX,
        operations_max: 1000,
        key_queue_max: 100,
        requests: RequestLimits::default(),
        ..ShimSettings::default()
    }
}
