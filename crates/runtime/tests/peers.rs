//! Links between two reactors over loopback, one turn at a time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Address;
use config::Secret;
use protocol::placement::agreement::{AgreedMode, AgreedSharding, Agreement};
use runtime::peers::{MemberIdentity, PeerEvent, Peers};
use runtime::reactor::{Driver, Event, Io, Reactor};
use wire::message::{Cancel, Execute, Refuse, Reply};
use wire::{Key, Message, NodeId, Peer, RouterId, ShimId, Status};

const ROUTER: Peer = Peer::Router(RouterId(4));
const NODE: Peer = Peer::Node(NodeId(2));
const SHIM: Peer = Peer::Shim(ShimId(0));
const SECRET: Secret = Secret([9; 16]);
const AGREEMENT: Agreement =
    Agreement { mode: AgreedMode::Strict, sharding: AgreedSharding::Ring, shims: 1, digest: 5, also: None };
/// No handshake of a test comes near it.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

struct Member {
    peers: Peers,
    events: Vec<PeerEvent>,
}

impl Driver for Member {
    fn event(&mut self, io: &mut Io, event: Event) {
        let foreign = self.peers.event(io, event, &mut self.events);
        assert!(matches!(foreign, None | Some(Event::Tick)), "{foreign:?}");
    }
}

struct End {
    reactor: Reactor,
    member: Member,
}

impl End {
    fn new(peer: Peer, secret: Secret) -> End {
        let member = Member {
            peers: Peers::new(MemberIdentity { peer, secret, agreement: AGREEMENT }, HANDSHAKE_MAX),
            events: Vec::new(),
        };
        End { reactor: Reactor::new(Io::new().unwrap()), member }
    }

    fn listening(peer: Peer, address: &str) -> (End, Address) {
        let mut end = End::new(peer, SECRET);
        let listener = end.reactor.io().listen(&address.parse().unwrap()).unwrap();
        end.member.peers.accept_on(listener);
        let address = end.reactor.io().local_address(listener);
        (end, address)
    }

    fn dial(&mut self, peer: Peer, address: &Address) {
        self.member.peers.dial(self.reactor.io(), peer, address.clone());
    }

    fn send(&mut self, to: Peer, message: &Message) -> bool {
        self.member.peers.send(self.reactor.io(), to, message)
    }

    fn turn(&mut self) {
        self.reactor.turn(&mut self.member, Some(Duration::from_millis(1))).unwrap();
    }

    fn has(&self, wanted: &str) -> bool {
        self.member.events.iter().any(|event| described(event) == wanted)
    }

    fn messages(&self) -> Vec<&Message> {
        let events = self.member.events.iter();
        events
            .filter_map(|event| match event {
                PeerEvent::Message { message, .. } => Some(message),
                _ => None,
            })
            .collect()
    }
}

fn described(event: &PeerEvent) -> String {
    match event {
        PeerEvent::Linked(peer) => format!("linked {peer:?}"),
        PeerEvent::Unlinked(peer) => format!("unlinked {peer:?}"),
        PeerEvent::Message { from, message, .. } => format!("{from:?} {message:?}"),
    }
}

fn turn_until<const N: usize>(mut ends: [&mut End; N], done: impl Fn(&[&mut End; N]) -> bool) {
    let start = Instant::now();
    while !done(&ends) {
        assert!(start.elapsed() < Duration::from_secs(60), "what was expected did not happen");
        ends.iter_mut().for_each(|end| end.turn());
    }
}

fn linked(address: &str) -> (End, End, Address) {
    let (mut node, address) = End::listening(NODE, address);
    let mut router = End::new(ROUTER, SECRET);
    router.dial(NODE, &address);
    turn_until([&mut router, &mut node], |[router, node]| {
        router.member.peers.is_linked(NODE) && node.member.peers.is_linked(ROUTER)
    });
    (router, node, address)
}

fn execute(request: u64, value_bytes: usize) -> Message {
    let key = Key { bytes: Bytes::from_static(b"key"), ..Key::default() };
    let command = Bytes::from(vec![b'v'; value_bytes]);
    Message::Execute(Execute {
        request,
        key,
        resp3: false,
        ordered: true,
        watch: None,
        waited_ms: 0,
        command,
    })
}

#[test]
fn members_link_and_exchange_messages_in_order() {
    for address in ["127.0.0.1:0", &format!("unix:///tmp/distcache-peers-{}.sock", std::process::id())] {
        let (mut router, mut node, _) = linked(address);
        assert!(router.has(&format!("linked {NODE:?}")) && node.has(&format!("linked {ROUTER:?}")));
        let sent: Vec<Message> = (0..100).map(|request| execute(request, request as usize * 3_000)).collect();
        for message in &sent {
            assert!(router.send(NODE, message));
        }
        assert!(router.member.peers.out_bytes(router.reactor.io(), NODE) > 100 * 96);
        let control = Message::Refuse(Refuse { session: 7 });
        assert!(node.send(ROUTER, &control));
        assert!(!node.send(SHIM, &control), "nobody linked");
        turn_until([&mut router, &mut node], |[router, node]| {
            node.messages().len() == 100 && router.messages().len() == 1
        });
        assert!(node.messages().into_iter().eq(&sent));
        assert_eq!(router.messages(), [&control]);
        assert_eq!(router.member.peers.out_bytes(router.reactor.io(), NODE), 0);
    }
}

#[test]
fn a_lost_link_is_told_to_both_and_made_again() {
    let (mut router, node, address) = linked("127.0.0.1:0");
    drop(node);
    turn_until([&mut router], |[router]| router.has(&format!("unlinked {NODE:?}")));
    assert!(!router.send(NODE, &execute(1, 1)));
    router.member.events.clear();
    let (mut node, _) = End::listening(NODE, &address.to_string());
    turn_until([&mut router, &mut node], |[router, node]| {
        router.has(&format!("linked {NODE:?}")) && node.has(&format!("linked {ROUTER:?}"))
    });
    drop(router);
    turn_until([&mut node], |[node]| node.has(&format!("unlinked {ROUTER:?}")));
}

#[test]
fn another_secret_never_links() {
    let (mut node, address) = End::listening(NODE, "127.0.0.1:0");
    let mut router = End::new(ROUTER, Secret([8; 16]));
    router.dial(NODE, &address);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        router.turn();
        node.turn();
    }
    assert!(router.member.events.is_empty() && node.member.events.is_empty());
}

#[test]
fn of_two_processes_with_one_id_the_one_that_is_there_keeps_it() {
    let (mut shim, address) = End::listening(SHIM, "127.0.0.1:0");
    for peer in [NODE, ROUTER] {
        let mut older = End::new(peer, SECRET);
        older.dial(SHIM, &address);
        turn_until([&mut older, &mut shim], |[older, shim]| {
            older.member.peers.is_linked(SHIM) && shim.member.peers.is_linked(peer)
        });
        shim.member.events.clear();
        let mut newer = End::new(peer, SECRET);
        newer.dial(SHIM, &address);
        let refused =
            |end: &mut End| end.member.peers.status(end.reactor.io().now()).links_refused.join(" and ");
        let start = Instant::now();
        while !refused(&mut newer).contains("is connected already from another process") {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", refused(&mut newer));
            [&mut older, &mut newer, &mut shim].into_iter().for_each(End::turn);
        }
        assert!(refused(&mut shim).contains("every process needs an id of its own"));
        assert!(shim.member.events.is_empty() && newer.member.events.is_empty());
        assert!(newer.member.peers.is_taken() && !older.member.peers.is_taken());
        // One that says nothing any more gives way, long before its link would be given up.
        turn_until([&mut newer, &mut shim], |[newer, _]| newer.member.peers.is_linked(SHIM));
        let told: Vec<String> = shim.member.events.iter().map(described).collect();
        assert_eq!(told, [format!("unlinked {peer:?}"), format!("linked {peer:?}")]);
        assert!(start.elapsed() >= Duration::from_millis(600));
        drop((older, newer));
        turn_until([&mut shim], |[shim]| !shim.member.peers.is_linked(peer));
    }
}

#[test]
fn a_client_at_a_peers_port_is_told_where_to_go() {
    let (mut node, address) = End::listening(NODE, "127.0.0.1:0");
    let Address::Tcp(address) = address else { unreachable!() };
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        client.read_to_string(&mut line).map(|_| line)
    });
    while !reader.is_finished() {
        node.turn();
    }
    let line = reader.join().unwrap().unwrap();
    assert!(line.starts_with("-ERR ") && line.contains("address of a router"), "{line}");
    assert!(node.member.events.is_empty());
}

#[test]
fn unproven_connections_are_limited() {
    let (mut node, address) = End::listening(NODE, "127.0.0.1:0");
    let Address::Tcp(socket) = address else { unreachable!() };
    let silent: Vec<TcpStream> = (0..257).map(|_| TcpStream::connect(socket).unwrap()).collect();
    let closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    };
    turn_until([&mut node], |_| closed(&silent[256]));
    assert!(!silent[..256].iter().any(closed));
    drop(silent);
    let mut router = End::new(ROUTER, SECRET);
    router.dial(NODE, &address);
    turn_until([&mut router, &mut node], |[router, _]| router.member.peers.is_linked(NODE));
}

#[test]
fn an_unproven_connection_is_closed_when_its_time_is_over() {
    let mut node = End::new(NODE, SECRET);
    node.member.peers = Peers::new(
        MemberIdentity { peer: NODE, secret: SECRET, agreement: AGREEMENT },
        Duration::from_millis(100),
    );
    let listener = node.reactor.io().listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    node.member.peers.accept_on(listener);
    let Address::Tcp(socket) = node.reactor.io().local_address(listener) else { unreachable!() };
    let began = Instant::now();
    let silent = TcpStream::connect(socket).unwrap();
    silent.set_nonblocking(true).unwrap();
    turn_until([&mut node], |_| matches!((&silent).read(&mut [0]), Ok(0)));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(100) && took < HANDSHAKE_MAX, "{took:?}");
}

#[test]
fn a_link_that_takes_no_output_is_closed_at_the_limit() {
    let (mut router, mut node, _) = linked("127.0.0.1:0");
    let message = execute(1, 32 << 20);
    let mut sent = 0;
    while router.send(NODE, &message) {
        sent += 1;
        assert!(sent < 25, "a value of the largest size and 64 MiB are the limit");
        router.turn();
    }
    assert!(sent > 16, "the largest value must pass");
    turn_until([&mut router], |[router]| router.has(&format!("unlinked {NODE:?}")));
    turn_until([&mut node], |[node]| node.has(&format!("unlinked {ROUTER:?}")));
}

#[test]
fn large_replies_behind_too_many_others_are_dropped_and_the_link_stays() {
    let (mut router, mut node, _) = linked("127.0.0.1:0");
    node.member.peers.limit_unread(32 << 20);
    let value = Bytes::from(vec![b'v'; 1 << 20]);
    let reply = |request, value: &Bytes| {
        Message::Reply(Reply { request, hit: true, value: value.clone(), ..Reply::default() })
    };
    // The router reads nothing meanwhile, as one that has more to do than it can.
    assert!((0..100).all(|request| node.send(ROUTER, &reply(request, &value))));
    assert!(node.send(ROUTER, &reply(100, &Bytes::from_static(b"+OK\r\n"))), "small ones always go");
    let dropped = node.member.peers.replies_dropped();
    assert!((60..=70).contains(&dropped), "{dropped} of 100 MiB are beyond 32 MiB");
    turn_until([&mut router, &mut node], |[router, _]| router.messages().len() == 101);
    let replies = router.messages().into_iter().map(|message| match message {
        Message::Reply(reply) => reply,
        other => panic!("{other:?}"),
    });
    for (request, reply) in replies.enumerate() {
        assert_eq!(reply.request, request as u64);
        match reply.status {
            Status::Busy => assert!(reply.value.starts_with(b"-BUSY ") && !reply.hit),
            status => assert!(status == Status::Ok && [5, 1 << 20].contains(&reply.value.len())),
        }
    }
    assert!(router.member.peers.is_linked(NODE));
}

#[test]
fn the_answering_side_does_not_read_a_peer_that_does_not_read_its_replies() {
    let (mut router, mut node, _) = linked("127.0.0.1:0");
    // Both sockets' buffers fill, then the node's own output passes the limit.
    let reply = execute(0, 1 << 20);
    while node.member.peers.out_bytes(node.reactor.io(), ROUTER) < 12 << 20 {
        assert!(node.send(ROUTER, &reply));
        node.turn();
    }
    // The event in which the node notices, and a message that it must not take before the router has read
    // the replies; one turn of the router reads at most a mebibyte of them.
    for request in [1, 2] {
        assert!(router.send(NODE, &Message::Cancel(Cancel { request })));
        router.turn();
        for _ in 0..5 {
            node.turn();
        }
    }
    assert_eq!(node.messages(), [&Message::Cancel(Cancel { request: 1 })]);
    turn_until([&mut router, &mut node], |[_, node]| node.messages().len() == 2);
}

#[test]
fn a_node_that_stops_turning_is_lost_and_linked_again_when_it_turns() {
    let (mut router, mut node, _) = linked("127.0.0.1:0");
    // Nothing is reset: the node's sockets stay open, only nobody reads them.
    turn_until([&mut router], |[router]| router.has(&format!("unlinked {NODE:?}")));
    router.member.events.clear();
    turn_until([&mut router, &mut node], |[router, node]| {
        router.has(&format!("linked {NODE:?}")) && node.member.peers.is_linked(ROUTER)
    });
}

#[test]
fn links_that_have_nothing_to_say_stay() {
    let (mut router, mut node, _) = linked("127.0.0.1:0");
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) {
        router.turn();
        node.turn();
    }
    assert!(!router.has(&format!("unlinked {NODE:?}")) && !node.has(&format!("unlinked {ROUTER:?}")));
    assert!(node.send(ROUTER, &execute(1, 1)));
    turn_until([&mut router, &mut node], |[router, _]| router.messages().len() == 1);
}
