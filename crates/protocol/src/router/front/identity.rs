//! Who a client is, and whether it may do what it asks for: AUTH, HELLO, RESET and the check before anything else. The
//! rules themselves are in `commands::acl`.

use std::sync::Arc;

use bytes::Bytes;
use wire::TopicKind;
use wire::resp::{Command, reply};

use commands::acl::{Denied, User, Users};
use commands::{CommandSpec, Flag, REDIS_VERSION, integer};

use crate::router::front::Front;
use crate::router::front::acl_log::{AclEntry, AclReason, Where};
use crate::router::front::client_line::{BAD_NAME, arity, is_label, line};
use crate::router::front::desk::Desk;
use crate::router::front::session::Session;
use crate::router::{replies, words};
use crate::time::Time;

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

/// A command that its client's user may not run.
struct RefusedCommand<'a> {
    command: &'a Command,
    spec: &'static CommandSpec,
    denied: Denied,
    place: Where,
}

/// The name and password that a client shows, and with what.
pub(crate) struct ShownLogin<'a> {
    pub(crate) user: &'a [u8],
    pub(crate) password: &'a [u8],
    pub(crate) command: &'a [u8],
}

impl Front {
    /// Since when a client has been there without showing who it is; `None` if it has or need not.
    pub(crate) fn unauthenticated_since(&self, client: u32) -> Option<Time> {
        let session = self.sessions.get(client)?;
        let locked = session.identity.checked && self.permissions.locks(&session.identity);
        locked.then_some(session.opened)
    }

    /// Whether the client's user may run this command now; if not, the client has been told.
    pub(crate) fn permits(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) -> bool {
        let Ok(spec) = commands::resolve(command) else { return true };
        // What is no command is answered as such, to whomever.
        if !spec.accepts(command.len()) {
            return true;
        }
        let Some(session) = self.sessions.get(client) else { return false };
        let text = if !self.permissions.known() {
            UNKNOWN_USERS.to_owned()
        } else if self.permissions.locks(&session.identity) && !spec.has(Flag::NoAuth) {
            NOT_AUTHENTICATED.to_owned()
        } else {
            match session.identity.user.check(spec, command) {
                Ok(()) => match sort_denied(&session.identity.user, spec, command) {
                    None => return true,
                    Some(text) => text,
                },
                Err(denied) => {
                    let place = place(session);
                    self.log_denial(desk, client, RefusedCommand { command, spec, denied, place });
                    denial(denied, spec)
                }
            }
        };
        desk.step.counters.denials += 1;
        let error = self.denied(client, command, &text);
        self.respond(desk, client, error);
        false
    }

    /// What the client hears. In a transaction nothing is carried out then.
    fn denied(&mut self, client: u32, command: &Command, text: &str) -> Bytes {
        let session = self.sessions.get_mut(client).filter(|session| session.transaction.is_some());
        if let Some(session) = session {
            if words::is(command, 0, "EXEC") {
                session.transaction = None;
                return replies::error(&format!("EXECABORT Transaction discarded because of: {text}"));
            }
            session.transaction.iter_mut().for_each(|queued| queued.fail());
        }
        replies::error(text)
    }

    /// The reply in place of a queued command whose permission is gone.
    pub(crate) fn denied_at_exec(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        command: &Command,
    ) -> Option<Bytes> {
        let spec = commands::resolve(command).ok()?;
        let denied = self.sessions.get(client)?.identity.user.check(spec, command).err()?;
        desk.step.counters.denials += 1;
        self.log_denial(desk, client, RefusedCommand { command, spec, denied, place: Where::Multi });
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

    fn log_denial(&mut self, desk: &Desk<'_>, client: u32, refused: RefusedCommand<'_>) {
        let RefusedCommand { command, spec, denied, place } = refused;
        let (reason, object) = match denied {
            Denied::Command => (AclReason::Command, Bytes::from_static(spec.name.as_bytes())),
            Denied::Key(index) => (AclReason::Key, command.arg_bytes(index)),
            Denied::Channel(index) => (AclReason::Channel, command.arg_bytes(index)),
        };
        let Some(session) = self.sessions.get(client) else { return };
        let user = session.identity.user.name.clone();
        let client = line(session, desk.flow.len(client), desk.now());
        self.permissions.log.add(AclEntry { count: 1, reason, place, object, user, at: desk.now(), client });
    }

    /// AUTH password, AUTH user password.
    pub(crate) fn auth(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) -> Bytes {
        let (user, password) = match command.len() {
            2 if self.permissions.users().default_user().rules().flags().contains(&"nopass") => {
                return replies::error(NO_PASSWORD);
            }
            2 => (&b"default"[..], command.arg(1)),
            3 => (command.arg(1), command.arg(2)),
            1 => return arity(command),
            _ => return replies::error("ERR syntax error"),
        };
        match self.authenticate(desk, client, ShownLogin { user, password, command: command.name() }) {
            true => replies::OK,
            false => replies::error(WRONG_PASSWORD),
        }
    }

    /// The `set` of a memcached client that shows who it is.
    pub(crate) fn memcached_login(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        login: ShownLogin<'_>,
    ) -> &'static str {
        if !self.permissions.known() {
            return UNKNOWN_USERS_MEMCACHED;
        }
        match self.authenticate(desk, client, login) {
            true => "STORED\r\n",
            false => "CLIENT_ERROR authentication failure\r\n",
        }
    }

    fn authenticate(&mut self, desk: &mut Desk<'_>, client: u32, login: ShownLogin<'_>) -> bool {
        let ShownLogin { user, password, command } = login;
        let Some(found) = self.permissions.users().authenticate(user, password).cloned() else {
            desk.step.counters.authentication_failures += 1;
            let Some(session) = self.sessions.get(client) else { return false };
            let (object, user) = (Bytes::copy_from_slice(command), Bytes::copy_from_slice(user));
            let (place, at) = (place(session), desk.now());
            let client = line(session, desk.flow.len(client), at);
            self.permissions.log.add(AclEntry {
                count: 1,
                reason: AclReason::Auth,
                place,
                object,
                user,
                at,
                client,
            });
            return false;
        };
        let identity = self.permissions.identity(found, true);
        if let Some(session) = self.sessions.get_mut(client) {
            session.identity = identity;
        }
        true
    }

    /// As if it had just come: the default user, if that needs no password.
    pub(crate) fn forget_identity(&mut self, client: u32) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.identity = self.permissions.newcomer();
        }
    }

    /// HELLO [2|3 [AUTH user password] [SETNAME name]]: nothing but the user changes unless all of it is right.
    pub(crate) fn hello(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) -> Option<Bytes> {
        let session = self.sessions.get(client)?;
        if desk.flow.is_watching(client) && command.len() > 1 {
            return Some(replies::error(
                "ERR DistCache: HELLO is not possible while keys are watched; send UNWATCH before it",
            ));
        }
        let mut resp3 = session.resp3;
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
            if words::is(command, next, "AUTH") && more >= 2 {
                let (user, password) = (command.arg(next + 1), command.arg(next + 2));
                if !self.authenticate(desk, client, ShownLogin { user, password, command: command.name() }) {
                    return Some(replies::error(WRONG_PASSWORD));
                }
                next += 3;
            } else if words::is(command, next, "SETNAME") && more >= 1 {
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
        let session = self.sessions.get_mut(client)?;
        if self.permissions.locks(&session.identity) {
            return Some(replies::error(HELLO_FIRST));
        }
        session.resp3 = resp3;
        if let Some(name) = name {
            session.labels().name = name;
        }
        Some(greeting(session))
    }

    /// Acts on other users from now on. Clients whose user is gone are closed, and so are those that listen where their
    /// user no longer may; `asking` is told before.
    pub(crate) fn adopt_users(&mut self, desk: &mut Desk<'_>, users: Arc<Users>, asking: Option<u32>) {
        if !self.permissions.set(users) {
            return;
        }
        for client in self.sessions.indexes() {
            let Some(session) = self.sessions.get_mut(client).filter(|session| !session.closing) else {
                continue;
            };
            let user = self.permissions.users().get(&session.identity.user.name).cloned();
            match user.filter(|user| listens_rightly(session, user)) {
                Some(user) => {
                    session.identity = self.permissions.identity(user, session.identity.authenticated);
                }
                None => {
                    let nobody = Arc::clone(self.permissions.users().default_user());
                    session.identity = self.permissions.identity(nobody, false);
                    session.closing = true;
                    if asking != Some(client) || !desk.flow.close_behind_last(client) {
                        desk.step.close(client);
                    }
                }
            }
        }
    }
}

fn place(session: &Session) -> Where {
    if session.transaction.is_some() { Where::Multi } else { Where::TopLevel }
}

/// Whether everything that the client has subscribed to may be listened to by `user`.
fn listens_rightly(session: &Session, user: &User) -> bool {
    let Some(subscribed) = &session.subscribed else { return true };
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

fn greeting(session: &Session) -> Bytes {
    let mut out = Vec::with_capacity(160);
    reply::map_header(7, session.resp3, &mut out);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply::bulk(field.as_bytes(), &mut out);
        reply::bulk(value.as_bytes(), &mut out);
    }
    reply::bulk(b"proto", &mut out);
    reply::integer(if session.resp3 { 3 } else { 2 }, &mut out);
    reply::bulk(b"id", &mut out);
    reply::integer(session.number as i64, &mut out);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply::bulk(field.as_bytes(), &mut out);
        reply::bulk(value.as_bytes(), &mut out);
    }
    reply::bulk(b"modules", &mut out);
    out.extend_from_slice(reply::EMPTY_ARRAY);
    out.into()
}
