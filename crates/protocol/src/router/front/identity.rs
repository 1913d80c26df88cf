//! Who a client is, and whether it may do what it asks for: AUTH, HELLO, RESET and the check before anything else. The
//! rules themselves are in `commands::acl`.

use std::sync::Arc;

use bytes::Bytes;
use wire::TopicKind;
use wire::resp::{Command, reply};

use commands::acl::{Denied, User, Users};

use crate::router::flow::plan;
use crate::router::front::acl_log::{Entry, Log, Reason, Where};
use crate::router::front::client::Client;
use crate::router::front::connection::{self, BAD_NAME, is_label};
use crate::router::{ClientId, CloseReason, Effect, REDIS_VERSION, Router, UserSource, replies};
use crate::time::Time;
use commands::{CommandSpec, Flag, integer};

/// What Redis answers to a password when there is none.
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
                           Are you sure your configuration is correct?";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NOT_AUTHENTICATED: &str = "NOAUTH Authentication required.";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                           AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
                           protocol version at the same time";
const UNKNOWN_USERS: &str = "LOADING DistCache: this router does not know the users of storage yet";
const UNKNOWN_USERS_MEMCACHED: &str =
    "SERVER_ERROR DistCache: this router does not know the users of storage yet\r\n";

/// Whose commands a client's are.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) user: Arc<User>,
    /// By a password, or because none was needed when it came.
    authenticated: bool,
    /// Each command has to be checked: the user is not free to do everything, or has not shown who it is.
    pub(crate) checked: bool,
}

/// The users, and what they were denied lately.
#[derive(Debug)]
pub(crate) struct Permissions {
    users: Arc<Users>,
    /// Storage has told its users.
    known: bool,
    pub(crate) log: Log,
}

impl Permissions {
    pub(crate) fn new(source: &UserSource) -> Permissions {
        let (users, known) = match source {
            UserSource::Given(users) => (Arc::clone(users), true),
            UserSource::Storage => (Arc::default(), false),
        };
        Permissions { users, known, log: Log::default() }
    }

    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    pub(crate) fn known(&self) -> bool {
        self.known
    }

    pub(crate) fn newcomer(&self) -> Identity {
        let user = Arc::clone(self.users.default_user());
        let authenticated = self.known && user.is_open();
        self.identity(user, authenticated)
    }

    fn identity(&self, user: Arc<User>, authenticated: bool) -> Identity {
        let mut identity = Identity { user, authenticated, checked: true };
        identity.checked = !identity.user.is_unrestricted() || self.locks(&identity);
        identity
    }

    /// Whether nothing is carried out for this identity but AUTH and its like.
    fn locks(&self, identity: &Identity) -> bool {
        !self.known || !identity.authenticated && !self.users.default_user().is_open()
    }
}

impl Router {
    /// Since when a client has been there without showing who it is; `None` if it has or need not.
    pub fn unauthenticated_since(&self, client: ClientId) -> Option<Time> {
        let state = self.clients.get(client.0)?;
        let locked = state.identity.checked && self.permissions.locks(&state.identity);
        locked.then_some(state.opened)
    }

    /// Whether the client's user may run this command now; if not, the client has been told.
    pub(crate) fn permits(
        &mut self,
        now: Time,
        client: u32,
        command: &Command,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Ok(spec) = commands::resolve(command) else { return true };
        // What is no command is answered as such, to whomever.
        if !spec.accepts(command.len()) {
            return true;
        }
        let Some(state) = self.clients.get(client) else { return false };
        let text = if !self.permissions.known {
            UNKNOWN_USERS.to_owned()
        } else if self.permissions.locks(&state.identity) && !spec.has(Flag::NoAuth) {
            NOT_AUTHENTICATED.to_owned()
        } else {
            match state.identity.user.check(spec, command) {
                Ok(()) => match sort_denied(&state.identity.user, spec, command) {
                    None => return true,
                    Some(text) => text,
                },
                Err(denied) => {
                    let place = place(state);
                    self.log_denial(now, (client, place), denied, command, spec);
                    denial(denied, spec)
                }
            }
        };
        self.counters.denials += 1;
        self.deny(now, client, command, &text, effects);
        false
    }

    fn deny(&mut self, now: Time, client: u32, command: &Command, text: &str, effects: &mut Vec<Effect>) {
        let mut error = replies::error(text);
        let state = self.clients.get_mut(client).filter(|state| state.transaction.is_some());
        if let Some(state) = state {
            if plan::is(command, 0, "EXEC") {
                state.transaction = None;
                error = replies::error(&format!("EXECABORT Transaction discarded because of: {text}"));
            } else if let Some(queued) = &mut state.transaction {
                queued.fail();
            }
        }
        self.respond(now, client, error, effects);
    }

    /// The reply in place of a queued command whose permission is gone.
    pub(crate) fn denied_at_exec(&mut self, now: Time, client: u32, command: &Command) -> Option<Bytes> {
        let spec = commands::resolve(command).ok()?;
        let denied = self.clients.get(client)?.identity.user.check(spec, command).err()?;
        self.counters.denials += 1;
        self.log_denial(now, (client, Where::Multi), denied, command, spec);
        let reason = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        Some(replies::error(&format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        )))
    }

    fn log_denial(
        &mut self,
        now: Time,
        (client, place): (u32, Where),
        denied: Denied,
        command: &Command,
        spec: &'static CommandSpec,
    ) {
        let (reason, object) = match denied {
            Denied::Command => (Reason::Command, Bytes::from_static(spec.name.as_bytes())),
            Denied::Key(index) => (Reason::Key, command.arg_bytes(index)),
            Denied::Channel(index) => (Reason::Channel, command.arg_bytes(index)),
        };
        let user = self.clients.get(client).map(|state| state.identity.user.name.clone());
        self.log(now, (client, place), reason, object, user.unwrap_or_default());
    }

    fn log(&mut self, now: Time, (client, place): (u32, Where), reason: Reason, object: Bytes, user: Bytes) {
        let Some(state) = self.clients.get(client) else { return };
        let client = connection::line(state, now);
        self.permissions.log.add(Entry { count: 1, reason, place, object, user, at: now, client });
    }

    /// AUTH password, AUTH user password.
    pub(crate) fn auth(&mut self, now: Time, client: u32, command: &Command) -> Bytes {
        let (user, password) = match command.len() {
            2 if self.permissions.users.default_user().rules().flags().contains(&"nopass") => {
                return replies::error(NO_PASSWORD);
            }
            2 => (&b"default"[..], command.arg(1)),
            3 => (command.arg(1), command.arg(2)),
            1 => return connection::arity(command),
            _ => return replies::error("ERR syntax error"),
        };
        match self.authenticate(now, client, user, password, command) {
            true => replies::OK,
            false => replies::error(WRONG_PASSWORD),
        }
    }

    /// The `set` of a memcached client that shows who it is.
    pub(crate) fn memcached_login(
        &mut self,
        now: Time,
        client: u32,
        user: &[u8],
        password: &[u8],
    ) -> &'static str {
        if !self.permissions.known {
            return UNKNOWN_USERS_MEMCACHED;
        }
        match self.authenticate(now, client, user, password, &Command::from_args(&["set"])) {
            true => "STORED\r\n",
            false => "CLIENT_ERROR authentication failure\r\n",
        }
    }

    fn authenticate(
        &mut self,
        now: Time,
        client: u32,
        user: &[u8],
        password: &[u8],
        command: &Command,
    ) -> bool {
        let Some(found) = self.permissions.users.authenticate(user, password).cloned() else {
            self.counters.authentication_failures += 1;
            let (object, user) = (command.arg_bytes(0), Bytes::copy_from_slice(user));
            let place = self.clients.get(client).map_or(Where::TopLevel, place);
            self.log(now, (client, place), Reason::Auth, object, user);
            return false;
        };
        let identity = self.permissions.identity(found, true);
        if let Some(state) = self.clients.get_mut(client) {
            state.identity = identity;
        }
        true
    }

    /// As if it had just come: the default user, if that needs no password.
    pub(crate) fn forget_identity(&mut self, client: u32) {
        if let Some(state) = self.clients.get_mut(client) {
            state.identity = self.permissions.newcomer();
        }
    }

    /// HELLO [2|3 [AUTH user password] [SETNAME name]]: nothing but the user changes unless all of it is right.
    pub(crate) fn hello(&mut self, now: Time, client: u32, command: &Command) -> Option<Bytes> {
        let state = self.clients.get(client)?;
        if state.is_watching() && command.len() > 1 {
            return Some(replies::error(
                "ERR DistCache: HELLO is not possible while keys are watched; send UNWATCH before it",
            ));
        }
        let mut resp3 = state.resp3;
        if command.len() > 1 {
            match integer(command.arg(1)) {
                Some(2) => resp3 = false,
                Some(3) => resp3 = true,
                Some(_) => return Some(replies::error("NOPROTO unsupported protocol version")),
                None => {
                    return Some(replies::error("ERR Protocol version is not an integer or out of range"));
                }
            }
        }
        let (mut next, mut name) = (2, None);
        while next < command.len() {
            let more = command.len() - next - 1;
            if plan::is(command, next, "AUTH") && more >= 2 {
                let (user, password) = (command.arg(next + 1), command.arg(next + 2));
                if !self.authenticate(now, client, user, password, command) {
                    return Some(replies::error(WRONG_PASSWORD));
                }
                next += 3;
            } else if plan::is(command, next, "SETNAME") && more >= 1 {
                if !is_label(command.arg(next + 1)) {
                    return Some(replies::error(BAD_NAME));
                }
                name = Some(Bytes::copy_from_slice(command.arg(next + 1)));
                next += 2;
            } else {
                let option = String::from_utf8_lossy(command.arg(next)).into_owned();
                return Some(replies::error(&format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
        let state = self.clients.get_mut(client)?;
        if self.permissions.locks(&state.identity) {
            return Some(replies::error(HELLO_FIRST));
        }
        state.resp3 = resp3;
        if let Some(name) = name {
            state.labels().name = name;
        }
        Some(greeting(state))
    }

    /// Acts on other users from now on. Clients whose user is gone are closed, and so are those that listen where their
    /// user no longer may; `asking` is told before.
    pub(crate) fn adopt_users(&mut self, users: Arc<Users>, asking: Option<u32>, effects: &mut Vec<Effect>) {
        if self.permissions.known && self.permissions.users == users {
            return;
        }
        (self.permissions.users, self.permissions.known) = (users, true);
        for index in self.clients.indexes() {
            let Some(state) = self.clients.get_mut(index).filter(|state| !state.closing) else { continue };
            let user = self.permissions.users.get(&state.identity.user.name).cloned();
            match user.filter(|user| listens_rightly(state, user)) {
                Some(user) => state.identity = self.permissions.identity(user, state.identity.authenticated),
                None => {
                    let nobody = Arc::clone(self.permissions.users.default_user());
                    state.identity = self.permissions.identity(nobody, false);
                    state.closing = true;
                    match state.pipeline.last_mut().filter(|_| asking == Some(index)) {
                        Some(operation) => operation.closes = true,
                        None => effects
                            .push(Effect::Close { client: ClientId(index), reason: CloseReason::Answered }),
                    }
                }
            }
        }
    }
}

fn place(state: &Client) -> Where {
    if state.transaction.is_some() { Where::Multi } else { Where::TopLevel }
}

/// Whether everything that the client has subscribed to may be listened to by `user`.
fn listens_rightly(state: &Client, user: &User) -> bool {
    let Some(subscribed) = &state.subscribed else { return true };
    [TopicKind::Channel, TopicKind::Pattern, TopicKind::ShardChannel].into_iter().all(|kind| {
        let is_pattern = kind == TopicKind::Pattern;
        subscribed.names(kind).iter().all(|name| user.allows_channel(&name.bytes, is_pattern))
    })
}

/// SORT with BY or GET reads keys that no argument names.
fn sort_denied(user: &User, spec: &'static CommandSpec, command: &Command) -> Option<String> {
    if !matches!(spec.name, "sort" | "sort_ro") {
        return None;
    }
    let option = commands::sort_option_that_reads_keys(command)?;
    let denied = !user.reads_all_keys(spec, command);
    denied.then(|| format!("ERR {option} option of SORT denied due to insufficient ACL permissions."))
}

fn denial(denied: Denied, spec: &CommandSpec) -> String {
    let what = match denied {
        Denied::Command => format!("run the '{}' command", spec.name),
        Denied::Key(_) => "access one of the keys used as arguments".to_owned(),
        Denied::Channel(_) => "access one of the channels used as arguments".to_owned(),
    };
    format!("NOPERM this user has no permissions to {what}")
}

fn greeting(state: &Client) -> Bytes {
    let mut out = Vec::with_capacity(160);
    reply::map_header(7, state.resp3, &mut out);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply::bulk(field.as_bytes(), &mut out);
        reply::bulk(value.as_bytes(), &mut out);
    }
    reply::bulk(b"proto", &mut out);
    reply::integer(if state.resp3 { 3 } else { 2 }, &mut out);
    reply::bulk(b"id", &mut out);
    reply::integer(state.number as i64, &mut out);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply::bulk(field.as_bytes(), &mut out);
        reply::bulk(value.as_bytes(), &mut out);
    }
    reply::bulk(b"modules", &mut out);
    out.extend_from_slice(reply::EMPTY_ARRAY);
    out.into()
}
