//! What becomes of large replies to a peer that leaves too much unread. Not how much that is.

use wire::message::Reply;
use wire::{Message, Status};

const LARGE_REPLY_BYTES: usize = 16 << 10;

/// What takes the place of a large reply: somebody else may answer a read; who has asked for a write learns that it is done.
/// None for what has to arrive.
pub(super) fn instead_of(message: &Message) -> Option<Message> {
    let Message::Reply(reply) = message else { return None };
    // What has begun comes to its end, and its client takes it or loses the connection.
    if reply.more || reply.value.len() < LARGE_REPLY_BYTES {
        return None;
    }
    let text = format!(
        "-BUSY DistCache: the command was carried out, but its reply of {} bytes was dropped: too many large replies \
         are on their way\r\n",
        reply.value.len()
    );
    Some(Message::Reply(Reply { status: Status::Busy, value: text.into(), hit: false, ..reply.clone() }))
}
