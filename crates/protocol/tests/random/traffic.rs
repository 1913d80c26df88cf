//! Clients on the schedule: when they ask, what becomes of their requests. Not what they ask for.

use rand::RngExt;
use wire::Message;
use wire::message::{Cancel, Reply};

use crate::clients::{self, KEY_OPERATIONS_MAX, Request, Verdict, Wish};
use crate::model::What;
use crate::network::{End, NODES, SLOTS, peer};
use crate::world::{Timer, World};

/// Commands that a client sends at once.
const CHAIN_MAX: usize = 3;

impl World {
    pub(crate) fn client_acts(&mut self, client: usize) {
        if self.calm {
            return;
        }
        let next = self.soon(self.swarm.think * 2);
        self.at(next, Timer::Client(client));
        if self.requests.values().any(|request| request.client == client) {
            return;
        }
        self.serial += 1;
        let wish = clients::wish(&self.swarm, &self.keys, self.serial, &mut self.random);
        let slot = self.network.slot_of(clients::router_of(client));
        let Some(to) = clients::destination(&wish, slot, &mut self.random) else { return };
        if !self.network.is_linked(clients::router_of(client), to) || self.is_worn_out(&wish) {
            return;
        }
        let Some(mut last) = self.ask(client, to, &wish, None) else { return };
        let chain = self.swarm.pipelines && self.random.random_bool(0.3);
        let length = if chain { self.random.random_range(1..CHAIN_MAX) } else { 0 };
        let mut before = wish;
        for _ in 0..length {
            let Some(wish) = self.follower(&before, to) else { return };
            let Some(index) = self.ask(client, to, &wish, Some(last)) else { return };
            (last, before) = (index, wish);
        }
    }

    /// Whether a key has had as many operations as its checker likes.
    fn is_worn_out(&self, wish: &Wish) -> bool {
        let worn = |key: &usize| self.key_operations[*key] >= KEY_OPERATIONS_MAX;
        match wish {
            Wish::Read { key, .. } => worn(key),
            Wish::Execute { effects, .. } => effects.iter().any(|(key, _)| worn(key)),
        }
    }

    /// Another command on the key of `before`, to be sent right behind it to the same end.
    fn follower(&mut self, before: &Wish, to: End) -> Option<Wish> {
        let key = match before {
            Wish::Read { key, .. } => *key,
            // Routers let nothing follow what blocks or has no keys.
            Wish::Execute { blocks: true, .. } => return None,
            Wish::Execute { effects, .. } => match &effects[..] {
                [(_, What::Clear)] => return None,
                [(key, _)] => *key,
                _ => return None,
            },
        };
        for _ in 0..8 {
            self.serial += 1;
            let wish = clients::wish(&self.swarm, &self.keys, self.serial, &mut self.random);
            let fits = match &wish {
                Wish::Read { key: other, .. } => *other == key,
                Wish::Execute { effects, blocks, .. } => {
                    let alone = effects.len() == 1 && effects[0].1 != What::Clear;
                    SLOTS.contains(&to) && !blocks && alone && effects[0].0 == key
                }
            };
            if fits && !self.is_worn_out(&wish) {
                return Some(wish);
            }
        }
        None
    }

    /// Sends a request; the number of its operation on the first key.
    fn ask(&mut self, client: usize, to: End, wish: &Wish, after: Option<usize>) -> Option<usize> {
        self.serial += 1;
        let (request, resp3) = (self.serial, clients::is_resp3(client, &self.swarm));
        let ordered = after.is_some();
        let (effects, blocks, message): (Vec<(usize, What)>, bool, Message) = match wish {
            Wish::Read { key, form } => {
                let what = self.keys[*key].reads[*form].what.clone();
                (vec![(*key, what)], false, self.keys[*key].read(*form, request, resp3, ordered))
            }
            Wish::Execute { args, effects, blocks } => {
                let message = clients::execute(&self.keys, request, args, effects, resp3, ordered);
                (effects.clone(), *blocks, message)
            }
        };
        let mut operations = Vec::new();
        for (key, what) in effects {
            self.key_operations[key] += 1;
            operations.push(self.history.begin(self.now, key, what, after, to));
        }
        self.note(|| format!("client {client} asks {to} for {request}: {wish:?} as {operations:?}"));
        let first = operations.first().copied();
        self.requests.insert(request, Request { client, to, operations, blocks });
        self.network.send(clients::router_of(client), to, message);
        if blocks {
            let due = self.soon(self.swarm.lease);
            self.at(due, Timer::Cancel(request));
        }
        first
    }

    pub(crate) fn reply(&mut self, from: End, router: End, reply: &Reply) {
        let Some(request) = self.requests.remove(&reply.request) else {
            self.report.late_replies += 1;
            return;
        };
        if request.to != from || clients::router_of(request.client) != router {
            self.fail(format!("{from} answers {router} what was asked otherwise: {request:?}"));
        }
        let verdict = match clients::verdict(reply) {
            Ok(verdict) => verdict,
            Err(failure) => return self.fail(failure),
        };
        self.note(|| format!("operations {:?} end: {verdict:?}", request.operations));
        for index in request.operations {
            match &verdict {
                Verdict::Told(reply) => self.history.told(self.now, index, reply.clone()),
                Verdict::Unknown => self.history.lost(index, true, self.latest(from)),
                Verdict::NoEffect => self.history.void(index),
            }
        }
    }

    /// Until when a command sent to `to` may still happen.
    fn latest(&self, to: End) -> u64 {
        if !SLOTS.contains(&to) {
            return u64::MAX;
        }
        self.cut_at[to - SLOTS.start].unwrap_or(u64::MAX)
    }

    pub(crate) fn unlinked(&mut self, router: End, to: End) {
        let lost = |request: &Request| request.to == to && clients::router_of(request.client) == router;
        let requests: Vec<u64> =
            self.requests.iter().filter(|(_, request)| lost(request)).map(|(number, _)| *number).collect();
        for number in requests {
            self.forget(number);
        }
    }

    pub(crate) fn cancel(&mut self, number: u64) {
        let Some(request) = self.requests.get(&number) else { return };
        let (router, to) = (clients::router_of(request.client), request.to);
        self.note(|| format!("{number} is cancelled"));
        self.network.send(router, to, Message::Cancel(Cancel { request: number }));
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        let Some(request) = self.requests.remove(&number) else { return };
        let latest = self.latest(request.to);
        for index in request.operations {
            self.history.lost(index, false, latest);
        }
    }

    /// Reads every key everywhere.
    pub(crate) fn probe(&mut self) {
        let slot = self.current;
        for key in 0..self.keys.len() {
            for form in 0..self.keys[key].reads.len() {
                for to in NODES.chain([slot]) {
                    if !self.network.is_linked(clients::router_of(0), to) {
                        self.fail(format!("{:?} is not linked in the end", peer(to)));
                    }
                    self.ask(0, to, &Wish::Read { key, form }, None);
                }
            }
        }
    }
}
