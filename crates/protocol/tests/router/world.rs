//! One router with its peers played by a script: lines in, effects out as text.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use commands::acl::Users;
use protocol::placement::{Placement, Secret};
use protocol::router::{ClientId, Effect, Input, Router, RouterConfig, Routing, UserSource};
use protocol::statistics::Statistics;
use protocol::time::Time;
use wire::message::{Changed, Deliver, Follow, Follows, Handover, Part, Reply, Window};
use wire::resp::{Command, ProtocolError, transaction};
use wire::{
    ClusterMap, Key, LayerMap, LayerSet, Message, NodeId, NodeMember, Partition, Peer, RackId, SHARE_WHOLE,
    Sharding, ShimId, ShimMember, Status, TopicKind,
};

/// A map of one rack per shim, a leaf layer by rack and a spine layer by hash.
pub(crate) fn map(leaves: u16, spines: u16, shims: u16, down: &[NodeId]) -> ClusterMap {
    let layer = |name: &str, partition, nodes: std::ops::Range<u16>| LayerMap {
        name: name.to_owned(),
        partition,
        nodes: nodes
            .map(|id| NodeMember {
                id: NodeId(id),
                rack: (partition == Partition::Rack).then_some(RackId(id % shims)),
                capacity: 1000,
                share: if down.contains(&NodeId(id)) { 0 } else { SHARE_WHOLE },
            })
            .collect(),
    };
    ClusterMap {
        epoch: 1 + down.len() as u32,
        level: 1,
        layers: vec![
            layer("leaf", Partition::Rack, 0..leaves),
            layer("spine", Partition::Hash, leaves..leaves + spines),
        ],
        sharding: Sharding::Ring,
        shims: (0..shims).map(|id| ShimMember::new(ShimId(id), RackId(id))).collect(),
    }
}

pub(crate) fn placement(map: ClusterMap) -> Arc<Placement> {
    Arc::new(Placement::new(Secret(*b"sixteen bytes..."), map).expect("a well-formed map"))
}

/// A router with its map and all links.
pub(crate) fn router(config: RouterConfig, map: ClusterMap) -> Router {
    let mut router = Router::new(config);
    let mut none = Vec::new();
    let nodes: Vec<NodeId> = map.layers.iter().flat_map(|layer| &layer.nodes).map(|node| node.id).collect();
    let shims: Vec<ShimId> = map.shims.iter().map(|shim| shim.id).collect();
    router.step(Time(0), Input::Map(placement(map)), &mut none);
    nodes.into_iter().for_each(|node| router.step(Time(0), Input::Linked(Peer::Node(node)), &mut none));
    shims.into_iter().for_each(|shim| router.step(Time(0), Input::Linked(Peer::Shim(shim)), &mut none));
    assert!(none.is_empty());
    router
}

#[derive(Default)]
pub(crate) struct World {
    router: Option<Router>,
    now: Time,
    size: [u16; 3],
    down: Vec<NodeId>,
    users: Vec<(String, Vec<String>)>,
    /// By script number: the request's id and whom it was sent to.
    requests: Vec<(u64, Peer)>,
}

impl World {
    pub(crate) fn line(&mut self, line: &str) -> Vec<String> {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        if first == "cluster" {
            self.cluster(&rest);
            return Vec::new();
        }
        if first == "user" || first == "nobody" {
            self.users.retain(|(name, _)| *name != rest[0]);
            if first == "user" {
                self.users
                    .push((rest[0].to_owned(), rest[1..].iter().map(|rule| (*rule).to_owned()).collect()));
            }
            return match self.router {
                Some(_) => self.step(Input::Users(self.table())),
                None => Vec::new(),
            };
        }
        if first == "counted" {
            let statistics = self.router.as_ref().expect("a cluster line").measured();
            let rows = statistics.walk().filter(|(row, _)| rest.contains(&row.name));
            return rows.map(|(row, value)| format!("{} {value}", row.name)).collect();
        }
        if first == "wait" {
            let milliseconds = rest[0].parse().expect("milliseconds");
            self.now = self.now.after(Duration::from_millis(milliseconds));
            return self.step(Input::Tick);
        }
        if let Some(client) = first.strip_suffix('>') {
            let client = client_of(client);
            if !self.router.as_ref().expect("a cluster line").ready(client) {
                return vec!["not ready".to_owned()];
            }
            return self.step(Input::Command { client, command: Command::from_args(&rest) });
        }
        let input = match first {
            "open" => Input::Opened { client: client_of(rest[0]) },
            "known" => Input::Known {
                client: client_of(rest[0]),
                address: rest[1].to_owned(),
                local_address: rest[2].to_owned(),
            },
            "end" => Input::Ended { client: client_of(rest[0]) },
            "close" => Input::Closed { client: client_of(rest[0]) },
            "malformed" => {
                Input::Malformed { client: client_of(rest[0]), error: ProtocolError::MultibulkLength }
            }
            "link" => Input::Linked(peer_of(rest[0])),
            "unlink" => Input::Unlinked(peer_of(rest[0])),
            "down" => {
                let Peer::Node(node) = peer_of(rest[0]) else { panic!("only nodes go down: {line}") };
                self.down.push(node);
                let [leaves, spines, shims] = self.size;
                Input::Map(placement(map(leaves, spines, shims, &self.down)))
            }
            "message" | "pmessage" | "smessage" => deliver(first, &rest),
            "changed" => self.changed(&rest),
            "window" => {
                let requests = rest[1].parse().expect("a number of requests");
                Input::Message { from: peer_of(rest[0]), message: Message::Window(Window { requests }) }
            }
            "handover" => handover(peer_of(rest[0])),
            "drained" => Input::Drained { client: client_of(rest[0]) },
            "begin" | "more" | "last" | "lost" => self.part(first, &rest),
            _ => self.reply(first, &rest),
        };
        self.step(input)
    }

    fn table(&self) -> Arc<Users> {
        Arc::new(Users::configured(&self.users).expect("right rules"))
    }

    fn cluster(&mut self, words: &[&str]) {
        let users = UserSource::Given(self.table());
        let mut config = RouterConfig { seed: 1, users, ..RouterConfig::default() };
        self.size = [1, 1, 1];
        for word in words {
            let (field, value) = word.split_once('=').expect("field=value");
            let number = || value.parse::<usize>().expect("a number");
            match field {
                "leaves" => self.size[0] = number() as u16,
                "spines" => self.size[1] = number() as u16,
                "shims" => self.size[2] = number() as u16,
                "routing" if value == "on-path" => config.routing = Routing::OnPath,
                "pipeline" => config.settings.pipeline_max = number(),
                "pipeline_bytes" => config.settings.pipeline_bytes_max = number(),
                "transaction_bytes" => config.settings.transaction_bytes_max = number(),
                "pending" => config.pending_max = number(),
                "users" if value == "storage" => config.users = UserSource::Storage,
                "queue_ms" => config.settings.queue_max = Duration::from_millis(number() as u64),
                "tracked" => config.tracked_max = number(),
                "bounded" => config.bounded = number() == 1,
                "streams" => config.streams = number() == 1,
                "standbys" => config.has_standby = vec![true; number()],
                _ => panic!("unknown field in {word}"),
            }
        }
        let [leaves, spines, shims] = self.size;
        self.router = Some(router(config, map(leaves, spines, shims, &[])));
        (self.requests, self.down, self.now) = (Vec::new(), Vec::new(), Time(1_000_000));
    }

    /// `rN VALUE options`.
    fn reply(&self, request: &str, words: &[&str]) -> Input {
        let number: usize =
            request.strip_prefix('r').and_then(|number| number.parse().ok()).unwrap_or_else(|| {
                panic!("unknown line: {request}");
            });
        let sent = self.requests.get(number - 1);
        let (id, mut from) = *sent.unwrap_or_else(|| panic!("{request} was not sent yet"));
        let mut reply = Reply { request: id, ..Reply::default() };
        let mut value = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("cached", layers)) => {
                    let layers = layers.split(',').filter(|layer| !layer.is_empty());
                    reply.cached =
                        layers.fold(LayerSet::EMPTY, |set, layer| set.with(layer.parse().unwrap()));
                }
                Some(("load", load)) => {
                    let (node, load) = load.split_once(':').expect("node:load");
                    let Peer::Node(node) = peer_of(node) else { panic!("load of no node: {word}") };
                    let slot = reply.loads.iter_mut().find(|slot| slot.node_plus_one == 0).unwrap();
                    (slot.node_plus_one, slot.load) = (u32::from(node.0) + 1, load.parse().unwrap());
                }
                Some(("from", peer)) => from = peer_of(peer),
                _ if *word == "hit" => reply.hit = true,
                _ => value.push(*word),
            }
        }
        let value = value.join(" ");
        (reply.status, reply.value) = match value.strip_prefix('$') {
            _ if value == "nil" => (Status::Nil, Bytes::new()),
            _ if value == "large" => (Status::Large, Bytes::new()),
            _ if value == "unlinked" => (Status::Unlinked, Bytes::new()),
            _ if value.starts_with("refused ") => (Status::Refused, format!("{}\r\n", &value[8..]).into()),
            _ if value.starts_with("raw ") => (Status::Ok, format!("{}\r\n", &value[4..]).into()),
            _ if value.starts_with("-BUSY") => (Status::Busy, format!("{value}\r\n").into()),
            _ if value.starts_with('-') => (Status::Error, format!("{value}\r\n").into()),
            Some(text) => (Status::Ok, format!("${}\r\n{text}\r\n", text.len()).into()),
            None => (Status::Ok, format!("{}\r\n", value.replace("\\r\\n", "\r\n")).into()),
        };
        Input::Message { from, message: Message::Reply(reply) }
    }

    /// `begin rN TEXT`, `more rN TEXT`, `last rN TEXT`, `lost rN`: a reply in parts.
    fn part(&self, word: &str, rest: &[&str]) -> Input {
        let number: usize = rest[0].strip_prefix('r').and_then(|number| number.parse().ok()).expect("rN");
        let (request, from) = self.requests[number - 1];
        let value = Bytes::from(rest[1..].join(" ").replace("\\r\\n", "\r\n"));
        let part = |follows, value| Message::Part(Part { request, follows, value });
        let message = match word {
            "begin" => Message::Reply(Reply { request, more: true, value, ..Reply::default() }),
            "more" => part(Follows::More, value),
            "last" => part(Follows::Nothing, value),
            _ => part(Follows::Lost, value),
        };
        Input::Message { from, message }
    }

    /// `changed FROM KEY... [by=rN]`; no key: all of them.
    fn changed(&self, rest: &[&str]) -> Input {
        let by = rest.iter().find_map(|word| word.strip_prefix("by=r"));
        let writer = by.map(|number| self.requests[number.parse::<usize>().expect("a number") - 1].0);
        let keys: Vec<&str> = rest[1..].iter().filter(|word| !word.starts_with("by=")).copied().collect();
        let keys = match keys.is_empty() {
            true => Bytes::new(),
            false => Command::from_args(&keys).frame().clone(),
        };
        Input::Message { from: peer_of(rest[0]), message: Message::Changed(Changed { writer, keys }) }
    }

    fn step(&mut self, input: Input) -> Vec<String> {
        let mut effects = Vec::new();
        let now = self.now;
        self.router.as_mut().expect("a cluster line").step(now, input, &mut effects);
        effects.into_iter().map(|effect| self.show(effect)).collect()
    }

    fn show(&mut self, effect: Effect) -> String {
        match effect {
            Effect::Reply { client, bytes } => format!("{} <- {}", client_name(client), text(&bytes)),
            Effect::Part { client, bytes } => format!("{} <. {}", client_name(client), text(&bytes)),
            Effect::Push { client, bytes } => format!("{} <= {}", client_name(client), text(&bytes)),
            Effect::Close { client, .. } => format!("close {}", client_name(client)),
            Effect::Resume { client } => format!("resume {}", client_name(client)),
            Effect::Tell { .. } => panic!("it has one thread"),
            Effect::Send { to, message } => {
                let waited_ms = match &message {
                    Message::Read(read) => read.waited_ms,
                    Message::Execute(execute) => execute.waited_ms,
                    _ => 0,
                };
                let (request, what, ordered) = match message {
                    Message::Read(read) => {
                        let name = if read.command.is_empty() {
                            format!("GET {}", text(&read.key.bytes))
                        } else {
                            arguments(read.command)
                        };
                        (read.request, format!("READ {name}"), read.ordered)
                    }
                    Message::Execute(execute) => {
                        let watch = execute.watch.map(|watch| {
                            let known = self.requests.iter().position(|(id, _)| *id == watch);
                            format!("watch r{} ", known.unwrap_or(self.requests.len()) + 1)
                        });
                        let watch = watch.unwrap_or_default();
                        let what = format!("EXECUTE {watch}{}", arguments(execute.command));
                        (execute.request, what, execute.ordered)
                    }
                    Message::Cancel(cancel) => {
                        let number =
                            self.requests.iter().position(|(id, _)| *id == cancel.request).unwrap() + 1;
                        return format!("{} CANCEL r{number}", peer_name(to));
                    }
                    Message::HandoverAck(_) => return format!("{} HANDOVER ACK", peer_name(to)),
                    Message::Credit(credit) => {
                        let known = self.requests.iter().position(|(id, _)| *id == credit.request);
                        let number = known.unwrap() + 1;
                        return format!("{} CREDIT r{number} {}", peer_name(to), credit.bytes);
                    }
                    Message::Subscribe(m) => {
                        let topic = topic(m.kind, &m.name);
                        (m.request, format!("SUBSCRIBE {topic} for {}", m.clients), false)
                    }
                    Message::Subscribers(m) => {
                        let topic = topic(m.kind, &m.name);
                        return format!("{} SUBSCRIBERS {topic} now {}", peer_name(to), m.clients);
                    }
                    Message::Track(track) => {
                        return format!("{} TRACK {}", peer_name(to), text(&track.key.bytes));
                    }
                    Message::Follow(follow) => {
                        let what = follow_text(&follow);
                        match follow.request {
                            Some(request) => (request, what, false),
                            None => return format!("{} {what}", peer_name(to)),
                        }
                    }
                    other => panic!("a router does not send {other:?}"),
                };
                self.requests.push((request, to));
                let ordered = if ordered { " ordered" } else { "" };
                let waited = if waited_ms > 0 { format!(" waited {waited_ms} ms") } else { String::new() };
                format!("r{} -> {} {what}{ordered}{waited}", self.requests.len(), peer_name(to))
            }
        }
    }
}

fn follow_text(follow: &Follow) -> String {
    let writers = if follow.writers { " with writers" } else { "" };
    match (follow.follows, follow.prefixes.is_empty()) {
        (false, _) => "FOLLOW nothing".to_owned(),
        (true, true) => format!("FOLLOW{writers}"),
        (true, false) => format!("FOLLOW{writers} of [{}]", arguments(follow.prefixes.clone())),
    }
}

/// `message FROM CHANNEL PAYLOAD`, `pmessage FROM PATTERN CHANNEL PAYLOAD`.
fn handover(from: Peer) -> Input {
    Input::Message { from, message: Message::Handover(Handover { number: 7 }) }
}

fn deliver(word: &str, rest: &[&str]) -> Input {
    let kind = match word {
        "message" => TopicKind::Channel,
        "pmessage" => TopicKind::Pattern,
        _ => TopicKind::ShardChannel,
    };
    let values = [&[word], &rest[1..]].concat();
    let mut push = format!(">{}\r\n", values.len());
    values.iter().for_each(|value| push += &format!("${}\r\n{value}\r\n", value.len()));
    let name = placement(map(1, 1, 1, &[])).key(0, rest[1].to_owned().into());
    let deliver = Deliver { kind, name, push: push.into() };
    Input::Message { from: peer_of(rest[0]), message: Message::Deliver(deliver) }
}

fn topic(kind: TopicKind, name: &Key) -> String {
    format!("{kind:?} {}", text(&name.bytes)).to_lowercase()
}

fn arguments(frame: Bytes) -> String {
    let words = |command: &Command| command.args().map(text).collect::<Vec<_>>().join(" ");
    if let Ok(commands) = transaction::split(&frame) {
        return format!("MULTI {} EXEC", commands.iter().map(words).collect::<Vec<_>>().join(" / "));
    }
    words(&Command::parse(frame).expect("a well-formed command"))
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"")
}

/// Clients are letters.
fn client_of(name: &str) -> ClientId {
    ClientId(u32::from(name.as_bytes()[0] - b'a'))
}

fn client_name(client: ClientId) -> char {
    char::from(b'a' + client.0 as u8)
}

fn peer_of(name: &str) -> Peer {
    match (name.strip_prefix("node"), name.strip_prefix("shim")) {
        (Some(number), _) => Peer::Node(NodeId(number.parse().unwrap())),
        (_, Some(number)) => Peer::Shim(ShimId(number.parse().unwrap())),
        _ => panic!("unknown peer {name}"),
    }
}

fn peer_name(peer: Peer) -> String {
    match peer {
        Peer::Node(node) => format!("node{}", node.0),
        Peer::Shim(shim) => format!("shim{}", shim.0),
        Peer::Router(router) => format!("router{}", router.0),
    }
}
