//! What servers report of changes, as the feeds of all of them. Not what is asked of them else.

use bytes::Bytes;

use super::{World, frame, server, told};
use crate::placement::slot::slot;
use crate::shards::Input;
use crate::storage::{Lane, Reach, StorageEvent, Store};
use crate::time::Time;

#[test]
fn the_feed_is_open_while_every_server_in_use_reports() {
    let mut world = World::new();
    let feed = |world: &mut World, ticket: u64, command: &str| {
        let commands = std::iter::once(frame(command)).collect();
        world.step(Input::Store(Store { ticket, lane: Lane::Feed, reach: Reach::Whole, commands }));
    };
    let changed = |world: &mut World, number: u16| {
        let push = Bytes::from_static(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
        world.said.clear();
        world.step(Input::Server { server: server(number), event: StorageEvent::Changed(push) });
        world.said.len()
    };
    feed(&mut world, 1, "CLIENT TRACKING ON BCAST");
    world.answer(1, &["+OK"]);
    assert_eq!(world.replies(), [told(1, "+OK")]);
    assert_eq!(changed(&mut world, 1), 1);
    // A server comes into use that does not report.
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
    world.up(2, 22);
    assert!(world.said.contains(&StorageEvent::FeedDown));
    feed(&mut world, 2, "PING");
    assert_eq!(world.replies().last(), Some(&told(2, "lost, sent false")), "an old PING proves nothing");
    assert_eq!(changed(&mut world, 2), 0);
    feed(&mut world, 3, "CLIENT TRACKING ON BCAST");
    world.answer(1, &["+OK"]);
    assert_eq!(world.replies(), [], "both have to");
    world.answer(2, &["+OK"]);
    assert_eq!(world.replies(), [told(3, "+OK")]);
    assert_eq!((changed(&mut world, 1), changed(&mut world, 2)), (1, 1));
    feed(&mut world, 4, "PING");
    world.answer(2, &["+PONG"]);
    world.answer(1, &["-BUSY a script runs"]);
    assert_eq!(world.replies(), [told(4, "-BUSY a script runs")], "one that is silent speaks for all");
    // One goes out of use, and its silence means nothing any more.
    world.seen(1, &[(1, "master", 3, ""), (2, "master", 4, "0-16383")]);
    assert!(!world.said.contains(&StorageEvent::FeedDown));
    feed(&mut world, 5, "PING");
    world.step(Input::Server { server: server(1), event: StorageEvent::FeedDown });
    assert!(!world.said.contains(&StorageEvent::FeedDown));
    world.step(Input::Server { server: server(2), event: StorageEvent::FeedDown });
    assert!(world.said.contains(&StorageEvent::FeedDown));
}

#[test]
fn the_read_feed_is_open_while_every_server_in_use_reports() {
    let mut world = World::new();
    let ping = |world: &mut World, ticket: u64| {
        let commands = std::iter::once(frame("PING")).collect();
        world.step(Input::Store(Store { ticket, lane: Lane::ReadFeed, reach: Reach::Whole, commands }));
    };
    let changed = |world: &mut World, number: u16, key: &str| {
        let push = Bytes::from(format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\n{key}\r\n"));
        world.said.clear();
        world.step(Input::Server { server: server(number), event: StorageEvent::ReadChanged(push) });
        world.said.len()
    };
    let views = |world: &mut World| {
        let asked = world.sent.iter().filter(|(_, _, commands)| commands[0] == "CLUSTER NODES").count();
        world.sent.clear();
        asked
    };
    assert_eq!(changed(&mut world, 1, "a"), 0, "nobody wants to know");
    ping(&mut world, 1);
    world.answer(1, &["+PONG"]);
    assert_eq!(world.replies(), [told(1, "+PONG")]);
    views(&mut world);
    assert_eq!(changed(&mut world, 1, "a"), 1);
    assert_eq!(views(&mut world), 1, "whether its slot moves");
    world.now = Time(world.now.0 + 1);
    assert_eq!(
        (changed(&mut world, 1, "b"), views(&mut world)),
        (1, 1),
        "what was asked before may be too old"
    );
    world.seen(1, &[(1, "master", 1, &format!("0-16383 [{}->-x]", slot(b"a")))]);
    world.now = Time(world.now.0 + 1);
    assert_eq!((changed(&mut world, 1, "a"), views(&mut world)), (1, 0), "it is known to move");
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
    // A server has come into use that does not report.
    world.up(2, 22);
    assert!(world.said.contains(&StorageEvent::ReadFeedDown));
    assert_eq!(changed(&mut world, 1, "a"), 0);
    world.sent.clear();
    ping(&mut world, 2);
    world.answer(1, &["+PONG"]);
    assert_eq!(world.replies(), [], "both have to");
    world.answer(2, &["+PONG"]);
    assert_eq!(world.replies(), [told(2, "+PONG")]);
    assert_eq!((changed(&mut world, 1, "a"), changed(&mut world, 2, "a")), (1, 1));
    world.step(Input::Server { server: server(2), event: StorageEvent::ReadFeedDown });
    assert!(world.said.contains(&StorageEvent::ReadFeedDown));
}

#[test]
fn changes_of_slots_that_other_shims_have_are_left_to_them() {
    let mut world = World::first_of(2);
    world.seen(1, &[(1, "master", 1, "0-16383")]);
    world.up(1, 11);
    let commands = std::iter::once(frame("CLIENT TRACKING ON BCAST")).collect();
    world.step(Input::Store(Store { ticket: 1, lane: Lane::Feed, reach: Reach::Whole, commands }));
    world.answer(1, &["+OK"]);
    world.said.clear();
    assert!(slot(b"a") > 8191 && slot(b"b") < 8192);
    let push = |keys: &str| Bytes::from(format!(">2\r\n$10\r\ninvalidate\r\n{keys}"));
    for keys in ["*1\r\n$1\r\na\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "_\r\n"] {
        world.step(Input::Server { server: server(1), event: StorageEvent::Changed(push(keys)) });
    }
    let expected = ["*1\r\n$1\r\nb\r\n", "_\r\n"].map(|keys| StorageEvent::Changed(push(keys)));
    assert_eq!(world.said, expected);
}
