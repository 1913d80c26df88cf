//! A command that several servers carry out, and what comes of their replies together. Not which commands these are.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::Status;
use wire::resp::reply;

use super::Shards;
use super::step::ShardsStep;
use crate::router::flow::gather::{Merge, merge};
use crate::router::flow::reply::PartReply;
use crate::storage::StorageEvent;

#[derive(Clone, Debug)]
pub(super) struct Fan {
    pub(super) ticket: u64,
    pub(super) resp3: bool,
    pub(super) parts: Vec<Option<Bytes>>,
    pub(super) outstanding: usize,
    /// A part was lost; whether one that may have been executed.
    pub(super) lost: Option<bool>,
    pub(super) finish: Finish,
}

/// Which part of which whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartPlace {
    pub(super) fan: usize,
    pub(super) index: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Finish {
    Merge(Merge),
    /// RANDOMKEY: the first that has one.
    FirstKey,
    /// ACL LIST: an array with every server's reply.
    Each,
    /// Every server governs its slot.
    Proof,
}

pub(super) enum Outcome {
    Reply(Bytes),
    Lost { sent: bool },
}

impl Shards {
    pub(super) fn part_ended(&mut self, step: &mut ShardsStep<'_>, place: PartPlace, outcome: Outcome) {
        let Some(fan) = self.fans.get_mut(place.fan) else { return };
        match outcome {
            Outcome::Reply(reply) => fan.parts[place.index] = Some(reply),
            Outcome::Lost { sent } => fan.lost = Some(sent | fan.lost.unwrap_or(false)),
        }
        fan.outstanding -= 1;
        if fan.outstanding > 0 {
            return;
        }
        let fan = self.fans.remove(place.fan);
        let ticket = fan.ticket;
        let parts: Vec<Bytes> = fan.parts.into_iter().flatten().collect();
        let reply = match (fan.lost, &fan.finish) {
            (Some(sent), _) => Err(sent),
            (None, Finish::Proof) => self.proven(step, &parts).ok_or(false),
            (None, Finish::FirstKey) => {
                let found = parts.iter().find(|part| !is_null(part)).or(parts.first());
                Ok(found.cloned().unwrap_or_default())
            }
            (None, Finish::Each) => Ok(each(&parts)),
            (None, Finish::Merge(how)) => {
                let parts: Vec<PartReply> = parts.into_iter().map(part).collect();
                Ok(merge(how, &parts, fan.resp3))
            }
        };
        step.report(match reply {
            Ok(reply) => StorageEvent::Replies { ticket, replies: SmallVec::from_elem(reply, 1) },
            Err(sent) => StorageEvent::Lost { ticket, sent },
        });
    }

    /// A server that has lost a slot says MOVED, one that is cut off from the others says CLUSTERDOWN. ASK is said only by
    /// whose slot it is.
    fn proven(&mut self, step: &mut ShardsStep<'_>, parts: &[Bytes]) -> Option<Bytes> {
        if let Some(refused) = parts.iter().find(|part| part.starts_with(b"-NOPERM ")) {
            let error = String::from_utf8_lossy(&refused[1..]).trim_end().to_owned();
            let remedy =
                "without it nothing is cached; give the storage user +exists and %R~distcache:proof:*";
            self.warn(step, format!("the proof that storage obeys: {error}: {remedy}"));
        }
        let good = |part: &Bytes| part.starts_with(b":") || part.starts_with(b"-ASK ");
        let all = parts.iter().all(good);
        self.hurry |= !all;
        all.then_some(Bytes::from_static(b"+PONG\r\n"))
    }
}

/// The first error, or all replies in an array.
fn each(parts: &[Bytes]) -> Bytes {
    if let Some(error) = parts.iter().find(|part| part.starts_with(b"-")) {
        return error.clone();
    }
    let mut out = Vec::new();
    reply::array_header(parts.len(), &mut out);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.into()
}

fn is_null(reply: &[u8]) -> bool {
    reply == b"$-1\r\n" || reply == b"_\r\n"
}

fn part(value: Bytes) -> PartReply {
    let status = match value.first() {
        Some(b'-' | b'!') => Status::Error,
        _ => Status::Ok,
    };
    PartReply { status, value }
}
