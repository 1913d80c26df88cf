//! A router as a running shim sees it, for tests: a link, requests over it, and the replies.

use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Config;
use protocol::placement::{Placement, Secret as PlacementSecret};
use runtime::instance::Instance;
use runtime::peers::{MemberIdentity, PeerEvent, Peers};
use runtime::reactor::{Driver, Event, Io, Reactor};
use wire::message::{Execute, Read, Reply};
use wire::resp::Command;
use wire::{Message, Peer, RouterId, ShimId, View};

const SHIM: Peer = Peer::Shim(ShimId(0));
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Recorder {
    peers: Peers,
    pub(crate) linked: bool,
    pub(crate) replies: Vec<Reply>,
}

impl Driver for Recorder {
    fn event(&mut self, io: &mut Io, event: Event) {
        let mut events = Vec::new();
        self.peers.event(io, event, &mut events);
        for event in events {
            match event {
                PeerEvent::Message { message: Message::Reply(reply), .. } => self.replies.push(reply),
                PeerEvent::Message { .. } => {}
                PeerEvent::Linked(_) => self.linked = true,
                PeerEvent::Unlinked(_) => self.linked = false,
            }
        }
    }
}

/// Asks the shim as a router does.
pub(crate) struct Router {
    pub(crate) reactor: Reactor,
    pub(crate) recorder: Recorder,
    placement: Placement,
    requests: u64,
}

impl Router {
    pub(crate) fn new(config: &Config, shim: &Instance) -> Router {
        let peers = Peers::new(
            MemberIdentity {
                peer: Peer::Router(RouterId(0)),
                secret: *config.secret(),
                agreement: config.agreement(),
            },
            Duration::from_secs(5),
        );
        let mut reactor = Reactor::new(Io::new().expect("a reactor"));
        let mut recorder = Recorder { peers, linked: false, replies: Vec::new() };
        recorder.peers.dial(reactor.io(), SHIM, shim.addresses[0].clone());
        let placement = Placement::new(PlacementSecret(config.secret().0), config.map()).expect("a map");
        let mut router = Router { reactor, recorder, placement, requests: 0 };
        router.until("the link", |recorder| recorder.linked);
        router
    }

    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Recorder) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(&self.recorder) {
            assert!(Instant::now() < deadline, "{what} never came");
            self.reactor.turn(&mut self.recorder, None).expect("a turn");
        }
    }

    pub(crate) fn send(&mut self, args: &[&str]) -> u64 {
        self.requests += 1;
        let request = self.requests;
        let command = Command::from_args(args);
        let key = self.placement.key(0, command.get(1).map_or(Bytes::new(), Bytes::copy_from_slice));
        let message = if args[0] == "GET" {
            let command = Bytes::new();
            let (view, resp3) = (View::GET, false);
            Message::Read(Read {
                request,
                key,
                view,
                resp3,
                ordered: false,
                streams: false,
                waited_ms: 0,
                degree: wire::Degree::BASE,
                command,
            })
        } else {
            let command = command.frame().clone();
            Message::Execute(Execute {
                request,
                key,
                resp3: false,
                ordered: false,
                watch: None,
                waited_ms: 0,
                command,
            })
        };
        assert!(self.recorder.peers.send(self.reactor.io(), SHIM, &message));
        request
    }

    pub(crate) fn ask(&mut self, args: &[&str]) -> Reply {
        let request = self.send(args);
        let is_it = move |reply: &Reply| reply.request == request;
        self.until("the reply", |recorder| recorder.replies.iter().any(is_it));
        self.recorder.replies.iter().find(|reply| is_it(reply)).cloned().expect("it came")
    }
}
