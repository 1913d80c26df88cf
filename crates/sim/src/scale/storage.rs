//! A storage server that has every object, all with one value, and is never slow: limits are the shims'. Not a data store.

use bytes::Bytes;
use protocol::storage::{StorageEvent, Store};
use wire::resp::Command;

use super::workload::VALUE;

/// What it answers to commands that were sent together.
pub(super) fn answer(store: &Store) -> StorageEvent {
    let replies = store.commands.iter().map(|frame| reply(frame.clone())).collect();
    StorageEvent::Replies { ticket: store.ticket, replies }
}

fn reply(frame: Bytes) -> Bytes {
    let command = Command::parse(frame).expect("shims send whole commands");
    match command.name() {
        b"GET" => Command::from_args(&[b"GET".as_slice(), VALUE]).bulk(1),
        b"SET" => Bytes::from_static(b"+OK\r\n"),
        b"PTTL" => Bytes::from_static(b":-1\r\n"),
        b"PING" => Bytes::from_static(b"+PONG\r\n"),
        b"TOUCH" => Bytes::from_static(b":1\r\n"),
        _ => Bytes::from_static(b"-ERR nobody asks for this here\r\n"),
    }
}
