//! A node inside a router: it answers the router's own clients from what it holds, and fetches what they ask for often. Reads
//! never wait here, and nobody else asks it. Not when a router may answer by itself.

use bytes::Bytes;
use rand::Rng;
use wire::message::Offer;
use wire::{Key, Status, View};

use super::reads::heat_item;
use super::step::NodeStep;
use super::{Effect, Node};
use crate::time::Time;

/// One in so many reads that are not answered here counts toward heat: most are of keys that never come in.
const SAMPLED_ONE_IN: u32 = 4;

/// A read that somebody else will answer.
#[derive(Clone, Copy, Debug)]
pub struct NearRead<'a> {
    pub key: &'a Key,
    pub view: View,
    pub resp3: bool,
    /// Empty for GET.
    pub command: &'a Bytes,
}

impl Node {
    /// The answer to a read that came at `now`, if a copy here has it. Empty for the null reply to GET.
    #[inline]
    pub fn hit(&mut self, now: Time, key: &Key, view: View) -> Option<(Status, Bytes)> {
        let object = self.objects.get_mut(key)?;
        if !self.links[usize::from(object.shim.0)].session.holds(now) {
            return None;
        }
        let reply = object.reply(now, view)?;
        object.hits = object.hits.saturating_add(1);
        self.statistics.hits += 1;
        Some(reply)
    }

    /// Counts a read that was not answered here, and asks for a copy if it is worth one.
    pub fn missed(&mut self, now: Time, read: &NearRead<'_>, effects: &mut Vec<Effect>) {
        let NearRead { key, view, resp3, command } = *read;
        self.statistics.misses += 1;
        let heat = match self.objects.get_mut(key).filter(|object| object.admits(view)) {
            Some(object) => {
                object.hits = object.hits.saturating_add(1);
                let lease = self.links[usize::from(object.shim.0)].session.holds(now);
                if !lease || object.is_put_off(now) || !object.is_hollow(now, view) {
                    return;
                }
                0
            }
            None => {
                if !self.random.next_u32().is_multiple_of(SAMPLED_ONE_IN) {
                    return;
                }
                let floor = self.heat_floor().div_ceil(SAMPLED_ONE_IN);
                match self.heat.record(now, heat_item(key, view), floor) {
                    Some(heat) => heat.saturating_mul(SAMPLED_ONE_IN),
                    None => return,
                }
            }
        };
        let offer = Offer { key: key.clone(), view, resp3, heat, command: command.clone() };
        self.offer(&mut NodeStep { now, effects }, offer);
    }
}
