//! A memcached client's requests on their way through the router: each becomes commands like any other client's, whose
//! replies take memcached's shape when their turn comes. Not what the shapes are: that is `commands::memcached`.

use bytes::Bytes;
use wire::memcached::{MemcachedRequest, StoreRequest, StoreVerb};
use wire::resp::Command;

use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::front::identity::ShownLogin;
use crate::router::front::whole::ThreadShare;
use commands::memcached::{self, MemcachedStep, ReplyShape, ServerStats, Tallies};

impl Front {
    /// What the request comes to, one after the other: the client is given what is due in between.
    pub(crate) fn memcached_steps(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        request: MemcachedRequest,
    ) -> Vec<MemcachedStep> {
        if self.sessions.get(client).is_none_or(|session| session.closing) {
            return Vec::new();
        }
        if self.unauthenticated_since(client).is_some() {
            self.memcached_stranger(desk, client, request);
            return Vec::new();
        }
        memcached::steps(request, desk.step.config.dialect, &mut self.tallies)
    }

    pub(crate) fn memcached_step(&mut self, desk: &mut Desk<'_>, client: u32, step: MemcachedStep) {
        match step {
            MemcachedStep::Ask(command, shape) => {
                self.shape_next(client, shape);
                self.command(desk, client, command);
            }
            MemcachedStep::Say(bytes) => self.respond(desk, client, bytes),
            MemcachedStep::End => {
                self.shape_next(client, ReplyShape::END);
                self.respond(desk, client, Bytes::new());
            }
            MemcachedStep::Stats(arguments) => {
                let words = [Bytes::from_static(b"stats")].into_iter().chain(arguments);
                let words: Vec<Bytes> = words.collect();
                self.answer_whole(desk, client, &Command::from_args(&words));
            }
            MemcachedStep::Hangup => self.respond_and_close(desk, client, Bytes::new()),
        }
    }

    /// As with a memcached that has a file of passwords: the block of the first `set`, whatever its key, is `user password`.
    fn memcached_stranger(&mut self, desk: &mut Desk<'_>, client: u32, request: MemcachedRequest) {
        let line = match request {
            MemcachedRequest::Quit => return self.respond_and_close(desk, client, Bytes::new()),
            MemcachedRequest::Store(StoreRequest { verb: StoreVerb::Set, value, .. }) => {
                let mut words = value.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
                let (user, password) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                self.memcached_login(desk, client, ShownLogin { user, password, command: b"set" })
            }
            _ => "CLIENT_ERROR unauthenticated\r\n",
        };
        self.respond(desk, client, Bytes::from_static(line.as_bytes()));
    }

    /// The next operation of the client is told in this shape.
    fn shape_next(&mut self, client: u32, shape: ReplyShape) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.memcached.get_or_insert_default().next = Some(Box::new(shape));
        }
    }

    /// What this thread says to `stats`.
    pub(crate) fn memcached_share(&mut self, desk: &Desk<'_>, command: &Command) -> ThreadShare {
        let (counters, members) = (&desk.step.counters, desk.flow.members());
        let state = ServerStats {
            uptime_s: self.began.map_or(0, |began| desk.now().since(began).as_secs()),
            clients: self.sessions.count(),
            clients_opened: counters.clients_accepted,
            value_bytes_max: desk.step.config.value_bytes_max,
            nodes_linked: members.linked_nodes_count(),
            shims_linked: members.linked_shims().count(),
            hits: counters.hits,
            threads: desk.step.config.place.count,
        };
        let tallies = self.tallies;
        if command.get(1) == Some(b"reset") {
            self.tallies = Tallies::default();
        }
        ThreadShare::Stats(tallies, state)
    }
}

/// `stats` of all threads.
pub(crate) fn stats(command: &Command, mut tallies: Tallies, state: &ServerStats) -> Bytes {
    let arguments: Vec<Bytes> = (1..command.len()).map(|index| command.arg_bytes(index)).collect();
    memcached::text(&arguments, &mut tallies, state)
}
