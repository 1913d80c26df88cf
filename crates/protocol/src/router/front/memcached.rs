//! A memcached client's requests on their way through the router: each becomes commands like any other client's, whose
//! replies take memcached's shape when their turn comes. Not what the shapes are: that is `commands::memcached`.

use bytes::Bytes;
use wire::memcached::{MemcachedRequest, StoreRequest, StoreVerb};

use crate::router::{ClientId, Effect, Router, replies};
use crate::time::Time;
use commands::memcached::{self, Dialect, MemcachedStep, ReplyShape, ServerStats, Tallies};

const NOT_REDIS: &str = "ERR DistCache: storage is memcached, which knows no Redis commands; speak memcached to a router \
                         with protocol = \"memcached\"";

impl Router {
    pub(crate) fn memcached(
        &mut self,
        now: Time,
        client: u32,
        request: MemcachedRequest,
        effects: &mut Vec<Effect>,
    ) {
        let closing = self.clients.get(client).is_none_or(|state| state.closing);
        if closing {
            return;
        }
        if self.unauthenticated_since(ClientId(client)).is_some() {
            return self.memcached_stranger(now, client, request, effects);
        }
        for step in memcached::steps(request, self.config.dialect, &mut self.tallies) {
            match step {
                MemcachedStep::Ask(command, shape) => {
                    self.shape_next(client, shape);
                    self.command(now, client, command, effects);
                }
                MemcachedStep::Say(bytes) => self.respond(now, client, bytes, effects),
                MemcachedStep::End => {
                    self.shape_next(client, ReplyShape::END);
                    self.respond(now, client, Bytes::new(), effects);
                }
                MemcachedStep::Stats(arguments) => {
                    let text = self.memcached_stats(now, &arguments);
                    self.respond(now, client, text, effects);
                }
                MemcachedStep::Hangup => self.respond_and_close(now, client, Bytes::new(), effects),
            }
        }
    }

    /// As with a memcached that has a file of passwords: the block of the first `set`, whatever its key, is `user password`.
    fn memcached_stranger(
        &mut self,
        now: Time,
        client: u32,
        request: MemcachedRequest,
        effects: &mut Vec<Effect>,
    ) {
        let line = match request {
            MemcachedRequest::Quit => return self.respond_and_close(now, client, Bytes::new(), effects),
            MemcachedRequest::Store(StoreRequest { verb: StoreVerb::Set, value, .. }) => {
                let mut words = value.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
                let (user, password) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                self.memcached_login(now, client, user, password)
            }
            _ => "CLIENT_ERROR unauthenticated\r\n",
        };
        self.respond(now, client, Bytes::from_static(line.as_bytes()), effects);
    }

    /// What the client sends is no memcached text; it is told, after its earlier replies, and closed.
    pub(crate) fn hang_up(&mut self, now: Time, client: u32, told: Bytes, effects: &mut Vec<Effect>) {
        self.counters.refusals += 1;
        self.respond_and_close(now, client, told, effects);
    }

    /// Whether storage would not understand a Redis client's command; it has been told then.
    pub(crate) fn speaks_memcached_only(
        &mut self,
        now: Time,
        client: u32,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let only = self.config.dialect == Dialect::Memcached;
        if only {
            self.counters.refusals += 1;
            self.respond(now, client, replies::error(NOT_REDIS), effects);
        }
        only
    }

    /// The next operation of the client is told in this shape.
    fn shape_next(&mut self, client: u32, shape: ReplyShape) {
        if let Some(state) = self.clients.get_mut(client) {
            state.memcached.get_or_insert_default().next = Some(Box::new(shape));
        }
    }

    fn memcached_stats(&mut self, now: Time, arguments: &[Bytes]) -> Bytes {
        let state = ServerStats {
            uptime_s: self.began.map_or(0, |began| now.since(began).as_secs()),
            clients: self.clients.count(),
            clients_opened: self.counters.clients_opened,
            value_bytes_max: self.config.value_bytes_max,
            nodes_linked: self.nodes_linked.iter().filter(|linked| **linked).count(),
            shims_linked: self.shims_linked.iter().filter(|linked| **linked).count(),
            hits: self.counters.hits,
        };
        memcached::text(arguments, &mut self.tallies, &state)
    }
}

/// Gives the client what its operation came to.
pub(crate) fn tell(
    client: ClientId,
    shape: ReplyShape,
    reply: &Bytes,
    front: &mut memcached::MemcachedFront,
    tallies: &mut Tallies,
    effects: &mut Vec<Effect>,
) {
    let mut pieces = Vec::with_capacity(3);
    memcached::write(shape, reply, front, tallies, &mut pieces);
    effects.extend(pieces.into_iter().map(|bytes| Effect::Reply { client, bytes }));
}
