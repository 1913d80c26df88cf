//! Which commands get spans, and what those say of a read that was asked of several. Not how they are exported.

use protocol::router::{ClientId, CommandSpan, Effect, Input, Router, RouterConfig, RouterSettings, Routing};
use protocol::time::Time;
use wire::message::Reply;
use wire::resp::Command;
use wire::{Message, NodeId, Peer, ShimId, Status};

use crate::world;

const CLIENT: ClientId = ClientId(0);

fn set(router: &mut Router, spans_one_in: u64) {
    let settings = RouterSettings {
        pipeline_max: 64,
        pipeline_bytes_max: 1 << 20,
        key_bytes_max: 1 << 10,
        spans_one_in,
        ..RouterSettings::default()
    };
    router.step(Time(1), Input::Settings(settings), &mut Vec::new());
}

fn router(spans_one_in: u64) -> Router {
    let config = RouterConfig { routing: Routing::OnPath, ..RouterConfig::default() };
    let mut router = world::router(config, world::map(1, 1, 1, &[]));
    router.step(Time(1), Input::Opened { client: CLIENT }, &mut Vec::new());
    set(&mut router, spans_one_in);
    router
}

fn ask(router: &mut Router, at: u64, command: &[&str]) -> Vec<Effect> {
    let (command, mut effects) = (Command::from_args(command), Vec::new());
    router.step(Time(at), Input::Command { client: CLIENT, command }, &mut effects);
    effects
}

/// The peer that was asked, and under which number.
fn asked(effects: &[Effect]) -> (Peer, u64) {
    let found = effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: Message::Read(read) } => Some((*to, read.request)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("a read is sent: {effects:?}"))
}

fn answer(router: &mut Router, at: u64, (from, request): (Peer, u64), status: Status) -> Vec<Effect> {
    let value = if status == Status::Busy { &b"-BUSY\r\n"[..] } else { b"$1\r\n1\r\n" };
    let reply = Reply { request, status, value: value.into(), ..Reply::default() };
    let mut effects = Vec::new();
    router.step(Time(at), Input::Message { from, message: Message::Reply(reply) }, &mut effects);
    effects
}

fn count(router: &mut Router, commands: usize) -> usize {
    let mut count = 0;
    for _ in 0..commands {
        ask(router, 5, &["PING"]);
        count += router.take_spans().len();
    }
    count
}

#[test]
fn one_of_so_many_commands_has_a_span_at_irregular_distances() {
    assert_eq!(count(&mut router(0), 10_000), 0);
    assert_eq!(count(&mut router(1), 100), 100);
    let mut router = router(10);
    let sampled = count(&mut router, 100_000);
    assert!((9_500..10_500).contains(&sampled), "{sampled}");
    // Every tenth command is of the same kind, and that kind's part is as large as its part of the commands.
    let mut same = 0;
    for index in 0..100_000 {
        ask(&mut router, 5, &["PING"]);
        let sampled = router.take_spans().len();
        if index % 10 == 0 {
            same += sampled;
        }
    }
    assert!((850..1_150).contains(&same), "{same}");
    set(&mut router, 0);
    assert_eq!(count(&mut router, 10_000), 0, "it is switched off");
}

#[test]
fn spans_that_nobody_takes_are_counted() {
    let mut router = router(1);
    for _ in 0..5_000 {
        ask(&mut router, 5, &["PING"]);
    }
    assert_eq!((router.take_spans().len(), router.spans_dropped()), (4_096, 904));
}

#[test]
fn a_read_that_a_busy_node_refuses_has_a_span_for_each_that_was_asked() {
    let mut router = router(1);
    // Retries have a budget that reads earn.
    for _ in 0..100 {
        let sent = asked(&ask(&mut router, 10, &["GET", "k"]));
        answer(&mut router, 10, sent, Status::Ok);
    }
    router.take_spans();
    let first = asked(&ask(&mut router, 100, &["GET", "k"]));
    let second = asked(&answer(&mut router, 130, first, Status::Busy));
    assert!(matches!((first.0, second.0), (Peer::Node(a), Peer::Node(b)) if a != b));
    answer(&mut router, 170, second, Status::Ok);
    let spans: Vec<CommandSpan> = router.take_spans();
    assert_eq!(spans.len(), 1);
    let span = &spans[0];
    assert_eq!((span.name.as_str(), span.received, span.ended), ("GET", Time(100), Time(170)));
    assert_eq!((span.hit, span.retries, &span.error), (Some(false), 1, &None));
    let times: Vec<_> =
        span.requests.iter().map(|one| (one.peer, one.sent, one.ended, one.retried)).collect();
    assert_eq!(times, [(first.0, Time(100), Time(130), true), (second.0, Time(130), Time(170), false)]);
}

#[test]
fn commands_are_named_as_their_clients_write_them() {
    let mut router = router(1);
    ask(&mut router, 5, &["client", "setname", "me"]);
    ask(&mut router, 5, &["nonsense"]);
    ask(&mut router, 5, &["MULTI"]);
    ask(&mut router, 5, &["SET", "k", "1"]);
    let effects = ask(&mut router, 6, &["EXEC"]);
    let Some(Effect::Send { to, message: Message::Execute(execute) }) = effects.first() else {
        panic!("the transaction is sent: {effects:?}");
    };
    assert_eq!(*to, Peer::Shim(ShimId(0)));
    let reply = Reply { request: execute.request, value: (&b"*1\r\n+OK\r\n"[..]).into(), ..Reply::default() };
    let from = Peer::Shim(ShimId(0));
    router.step(Time(9), Input::Message { from, message: Message::Reply(reply) }, &mut Vec::new());
    let spans = router.take_spans();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["CLIENT SETNAME", "refused", "MULTI", "SET", "EXEC"]);
    assert_eq!(spans[1].error.as_deref(), Some(&b"ERR"[..]));
    assert_eq!(spans[4].requests.len(), 1);
    assert!(!spans.iter().any(|span| span.requests.iter().any(|one| one.peer == Peer::Node(NodeId(0)))));
}
