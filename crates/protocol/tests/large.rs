//! Large replies at the shim: which reads are sent again, in which order, and who gets how much when. Not storage
//! itself, whose part the tests speak.

mod shim_alone;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::placement::Placement;
use protocol::requests::{Overload, RequestLimits};
use protocol::shim::{Effect, Input, Shim, ShimConfig};
use protocol::storage::{CommandControl, Lane, StorageEvent, StorageTraits};
use protocol::time::Time;
use wire::message::{Cancel, Credit, Execute, Read};
use wire::resp::Command;
use wire::{Message, NodeId, Peer, RouterId, Status, View};

const ROUTER: Peer = Peer::Router(RouterId(0));
const NODE: Peer = Peer::Node(NodeId(0));

struct World {
    now: Time,
    shim: Shim,
    placement: Arc<Placement>,
    /// What it has done since this was looked at.
    done: Vec<String>,
}

impl World {
    fn new() -> World {
        let (shim, placement) = shim_alone::shim(1, |config| config.settings.heat_min = 1);
        let mut world = World { now: Time(10_000_000), shim, placement, done: Vec::new() };
        world.storage(StorageEvent::Up {
            incarnation: 1,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        });
        // The leases of an earlier incarnation are over.
        world.wait(2000);
        world
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.after(Duration::from_millis(milliseconds));
        self.step(Input::Tick);
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        for effect in effects {
            let done = match effect {
                Effect::Store(store) if store.commands[0].ends_with(b"PING\r\n") => {
                    self.answer(store.ticket, "+PONG\r\n");
                    continue;
                }
                Effect::Store(store) => {
                    let command = Command::parse(store.commands[0].clone()).expect("a command");
                    let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
                    let lane = if store.lane == (Lane::Shared { resp3: false }) { "shared" } else { "own" };
                    format!("{lane} {}: {}", store.ticket, words.join(" "))
                }
                Effect::Send { message: Message::Offer(_), .. } => "offer".to_owned(),
                Effect::Send { message: Message::Reply(reply), .. } => {
                    let more = if reply.more { " and more" } else { "" };
                    let text = match reply.status {
                        Status::Busy => "busy".into(),
                        Status::Large => "large".into(),
                        _ => String::from_utf8_lossy(&reply.value).trim_end().replace("\r\n", " "),
                    };
                    format!("r{} {text}{more}", reply.request)
                }
                Effect::Send { message: Message::Part(part), .. } => {
                    format!("r{} {}, {:?}", part.request, String::from_utf8_lossy(&part.value), part.follows)
                }
                Effect::Control { ticket, control: CommandControl::Skip } => format!("skip {ticket}"),
                Effect::Control { ticket, control: CommandControl::Take { bytes } } => {
                    format!("take {ticket} {bytes}")
                }
                Effect::Control { ticket, control: CommandControl::Abort } => format!("abort {ticket}"),
                other => panic!("unexpected {other:?}"),
            };
            self.done.push(done);
        }
    }

    fn storage(&mut self, event: StorageEvent) {
        self.step(Input::Storage(event));
    }

    fn large(&mut self, ticket: u64) {
        self.storage(StorageEvent::Large { ticket });
    }

    fn part(&mut self, ticket: u64, text: &'static str, last: bool) {
        self.storage(StorageEvent::Part { ticket, bytes: text.into(), last });
    }

    fn answer(&mut self, ticket: u64, text: &'static str) {
        self.storage(StorageEvent::Replies { ticket, replies: [Bytes::from(text)].into_iter().collect() });
    }

    fn say(&mut self, from: Peer, message: Message) {
        self.step(Input::Message { from, message });
    }

    fn get_as(&mut self, from: Peer, request: u64, (ordered, streams): (bool, bool)) {
        let key = self.placement.key(0, "k".into());
        let (view, resp3, command) = (View::GET, false, Bytes::new());
        self.say(
            from,
            Message::Read(Read {
                request,
                key,
                view,
                resp3,
                ordered,
                streams,
                waited_ms: 0,
                degree: wire::Degree::BASE,
                command,
            }),
        );
    }

    fn get(&mut self, request: u64) {
        self.get_as(ROUTER, request, (false, true));
    }

    fn execute(&mut self, request: u64, command: &[&str]) {
        let key = self.placement.key(0, "k".into());
        let (resp3, ordered, watch) = (false, true, None);
        let command = Command::from_args(command).frame().clone();
        self.say(
            ROUTER,
            Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms: 0, command }),
        );
    }

    /// What was done, which must have been this.
    #[track_caller]
    fn expect(&mut self, expected: &[&str]) {
        let done: Vec<String> = self.done.drain(..).filter(|done| done != "offer").collect();
        assert_eq!(done, expected);
    }

    /// With one large reply of the key begun: it is known to be large.
    fn known() -> (World, u64) {
        let mut world = World::new();
        world.get(1);
        let first = world.asked();
        world.large(first);
        let own = world.asked();
        world.large(own);
        world.part(own, "$9\r\nbegin", false);
        world.done.clear();
        (world, own)
    }

    /// With as many large replies begun as there may be, and the ticket of the first.
    fn full() -> (World, u64) {
        let (mut world, first) = World::known();
        for request in 2..=ShimConfig::default().large_replies_max as u64 {
            world.get(request);
            let own = world.asked();
            world.large(own);
            world.part(own, "$9\r\nbegin", false);
        }
        world.done.clear();
        (world, first)
    }

    /// The ticket of the last command that storage was given.
    fn asked(&self) -> u64 {
        let asked = self.done.iter().rev().find(|done| done.starts_with("own") || done.starts_with("shared"));
        let ticket = asked.expect("storage was asked").split([' ', ':']).nth(1).expect("a ticket");
        ticket.parse().expect("a number")
    }
}

#[test]
fn the_first_large_reply_is_skipped_and_asked_for_again_the_next_ones_are_known() {
    let mut world = World::new();
    world.get(1);
    world.expect(&["shared 0: GET k"]);
    world.large(0);
    world.expect(&["skip 0", "own 0: GET k"]);
    world.large(0);
    world.expect(&["take 0 65536"]);
    world.part(0, "$9\r\nbegin", false);
    world.expect(&["r1 $9 begin and more"]);
    world.say(ROUTER, Message::Credit(Credit { request: 1, bytes: 9 }));
    world.expect(&["take 0 9"]);
    world.part(0, "mid", false);
    world.part(0, "end", true);
    world.expect(&["r1 mid, More", "r1 end, Nothing"]);
    assert_eq!(world.shim.pending(), 0);
    world.get(2);
    world.expect(&["own 0: GET k"]);
    // It is small by now: the next one may go with the others again.
    world.answer(0, "$1\r\nv\r\n");
    world.get(3);
    world.expect(&["r2 $1 v", "shared 0: GET k"]);
}

#[test]
fn what_its_client_has_sent_behind_a_read_is_not_overtaken() {
    for behind in [&["SET", "k", "v"][..], &["TYPE", "k"], &["TTL", "k"]] {
        let mut world = World::new();
        world.get(1);
        world.execute(2, behind);
        world.done.clear();
        world.large(0);
        world.expect(&[]);
        world.answer(0, "$5\r\nlarge\r\n");
        world.expect(&["r1 $5 large"]);
    }
    let mut world = World::new();
    world.get(1);
    world.execute(2, &["FLUSHALL"]);
    world.done.clear();
    world.large(0);
    world.expect(&[]);
}

#[test]
fn a_write_waits_until_the_reply_begins_and_no_longer() {
    let (mut world, _) = World::known();
    world.get(2);
    let own = world.asked();
    world.execute(3, &["SET", "k", "v"]);
    world.expect(&[&format!("own {own}: GET k")]);
    world.large(own);
    world.part(own, "$9\r\nbegin", false);
    let set = world.asked();
    world.expect(&[&format!("take {own} 65536"), "r2 $9 begin and more", &format!("shared {set}: SET k v")]);
    // And a read waits for the writes that came before it.
    world.get(4);
    world.expect(&[]);
    world.answer(set, "+OK\r\n");
    let next = world.asked();
    world.expect(&["r3 +OK", &format!("own {next}: GET k")]);
}

#[test]
fn readers_who_have_joined_get_one_each() {
    let mut world = World::new();
    for request in 1..=3 {
        world.get(request);
    }
    world.expect(&["shared 0: GET k"]);
    world.large(0);
    world.expect(&["skip 0", "own 0: GET k", "own 1: GET k", "own 2: GET k"]);
}

#[test]
fn whoever_takes_no_parts_gets_the_whole() {
    let mut world = World::new();
    world.get_as(ROUTER, 1, (false, false));
    world.large(0);
    world.answer(0, "$5\r\nlarge\r\n");
    world.expect(&["shared 0: GET k", "r1 $5 large"]);
    // No node is told that a view is hot which it could not keep.
    let (mut world, _) = World::known();
    for request in 2..100 {
        world.get_as(ROUTER, request, (false, false));
    }
    assert!(!world.done.contains(&"offer".to_owned()));
    let mut world = World::new();
    for request in 1..100 {
        world.get_as(ROUTER, request, (false, false));
    }
    assert!(world.done.contains(&"offer".to_owned()), "a hot key is offered");
}

#[test]
fn a_node_gets_none_of_it_and_is_told_at_once_from_then_on() {
    let mut world = World::new();
    world.get_as(NODE, 1, (false, false));
    world.get_as(NODE, 2, (false, false));
    world.get(3);
    world.large(0);
    world.expect(&["shared 0: GET k", "skip 0", "r1 large", "r2 large", "own 0: GET k"]);
    world.get_as(NODE, 4, (false, false));
    world.expect(&["r4 large"]);
    // A reader that takes no parts has a right to the whole: then nobody is sent away.
    let mut world = World::new();
    world.get_as(ROUTER, 1, (false, false));
    world.get_as(NODE, 2, (false, false));
    world.large(0);
    world.answer(0, "$5\r\nlarge\r\n");
    world.expect(&["shared 0: GET k", "r1 $5 large", "shared 0: GET k"]);
    world.large(0);
    world.expect(&["skip 0", "r2 large"]);
}

/// While one view of a key is known to be large, reads of its others go through the queue of the key.
#[test]
fn a_node_s_read_in_the_queue_of_its_key_is_sent_away_too() {
    let (mut world, _) = World::known();
    let command = Command::from_args(&["HGETALL", "k"]);
    let classified = commands::classify(&command).expect("a read");
    let view = commands::view(world.placement.view_hash(), &command, &classified, false);
    let key = world.placement.key(0, "k".into());
    let (request, command, set) = (2, command.frame().clone(), (false, false, false));
    let (resp3, ordered, streams) = set;
    world.say(
        NODE,
        Message::Read(Read {
            request,
            key,
            view,
            resp3,
            ordered,
            streams,
            waited_ms: 0,
            degree: wire::Degree::BASE,
            command,
        }),
    );
    let read = world.asked();
    world.expect(&[&format!("shared {read}: HGETALL k")]);
    world.large(read);
    world.expect(&[&format!("skip {read}"), "r2 large"]);
}

#[test]
fn nobody_s_reply_is_given_up() {
    let (mut world, own) = World::known();
    world.say(ROUTER, Message::Cancel(Cancel { request: 1 }));
    world.expect(&[&format!("abort {own}")]);
    world.storage(StorageEvent::Lost { ticket: own, sent: true });
    world.say(ROUTER, Message::Credit(Credit { request: 1, bytes: 9 }));
    world.expect(&[]);
    // Before it begins, too.
    world.get(2);
    let own = world.asked();
    world.say(ROUTER, Message::Cancel(Cancel { request: 2 }));
    world.storage(StorageEvent::Lost { ticket: own, sent: true });
    world.expect(&[&format!("own {own}: GET k"), &format!("abort {own}")]);

    let (mut world, own) = World::known();
    world.step(Input::Unlinked(ROUTER));
    world.expect(&[&format!("abort {own}")]);
    world.part(own, "more", false);
    world.part(own, "last", true);
    world.expect(&[]);
    assert_eq!(world.shim.pending(), 0);
}

#[test]
fn a_lost_connection_ends_the_reply_and_says_so() {
    let (mut world, own) = World::known();
    world.storage(StorageEvent::Lost { ticket: own, sent: true });
    world.expect(&["r1 , Lost"]);
    world.get(2);
    let own = world.asked();
    world.storage(StorageEvent::Lost { ticket: own, sent: true });
    let lost =
        "r2 -ERR DistCache: the connection to storage broke before the reply; the command had no effect";
    world.expect(&[&format!("own {own}: GET k"), lost]);
}

#[test]
fn where_requests_wait_one_more_waits_until_another_ends() {
    let (mut world, first) = World::full();
    world.shim.limit(RequestLimits {
        overload: Overload::Wait { patience: Duration::from_secs(2) },
        ..RequestLimits::default()
    });
    world.get(1000);
    world.get(1001);
    world.wait(500);
    world.expect(&[]);
    world.part(first, "end\r\n", true);
    let own = world.asked();
    world.expect(&["r1 end\r\n, Nothing", &format!("own {own}: GET k")]);
    world.large(own);
    world.part(own, "$9\r\nbegin", false);
    world.expect(&[&format!("take {own} 65536"), "r1000 $9 begin and more"]);
    // One that does not begin in time is told so, and takes nobody's place.
    world.wait(2_000);
    world.expect(&["r1001 busy"]);
    world.say(ROUTER, Message::Cancel(Cancel { request: 2 }));
    world.done.clear();
    world.get(1002);
    let own = world.asked();
    world.expect(&[&format!("own {own}: GET k")]);
}

#[test]
fn there_are_so_many_at_a_time_and_who_takes_nothing_gives_way() {
    let (mut world, first) = World::full();
    world.get(1000);
    // An error, but not one that says that this shim is busy: others are served as ever.
    world.expect(&[
        "r1000 -BUSY DistCache: too many large replies are on their way from this storage server; the command was not \
         executed, try again later",
    ]);
    world.wait(9_000);
    world.say(ROUTER, Message::Credit(Credit { request: 2, bytes: 1 }));
    world.wait(1_000);
    world.done.clear();
    world.get(1001);
    let own = world.asked();
    world.expect(&[&format!("abort {first}"), "r1 , Lost", &format!("own {own}: GET k")]);
}
