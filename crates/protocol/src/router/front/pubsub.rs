//! Commands that begin and end subscriptions, in their turn, and what is pushed to clients. Not what other routers' clients
//! have.

use std::sync::Arc;

use bytes::Bytes;
use wire::message::{Deliver, Subscribers};
use wire::{Key, ShimId, TopicKind};

use crate::hash::KeyMap;
use crate::placement::Placement;
use crate::router::flow::refusal::channel_too_long;
use crate::router::flow::request::{RequestOrigin, Routed};
use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::front::session::Session;
use crate::router::front::subscriptions::{Confirmation, KINDS, Push, Subscribed, Subscribing};
use crate::router::replies;
use commands::{Classified, CommandKind};

/// Messages that are kept for a client while its subscription is being confirmed; more are lost, as if they had been
/// published a moment earlier.
const HELD_MAX: usize = 4096;
/// Redis' refusal of commands that a RESP2 connection with subscriptions has no place for the replies of.
pub(crate) fn misplaced(classified: &Classified) -> Option<Bytes> {
    let name = classified.spec.name;
    if classified.kind == CommandKind::Subscription || matches!(name, "ping" | "quit" | "reset") {
        return None;
    }
    Some(replies::error(&format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    )))
}

fn kind_of(command: &str) -> TopicKind {
    match command.as_bytes() {
        [b'p', ..] => TopicKind::Pattern,
        [b's', b's', ..] | [b's', b'u', b'n', ..] => TopicKind::ShardChannel,
        _ => TopicKind::Channel,
    }
}

impl Front {
    /// A command of this kind has its turn. Only once the client's pipeline has drained.
    pub(crate) fn launch_subscription(
        &mut self,
        desk: &mut Desk<'_>,
        origin: RequestOrigin,
        routed: &Routed,
    ) {
        if let Some(session) = self.sessions.get_mut(origin.client) {
            (session.subscribing, session.awaits_subscription) = (None, false);
        }
        let names = match topics(desk, routed) {
            Ok(names) => names,
            Err(error) => return desk.flow.finish(origin, error),
        };
        if routed.classified.spec.name.contains("unsub") {
            let told = self.unsubscribe(desk, origin.client, Unsubscribe { routed, names });
            return desk.flow.finish(origin, told.unwrap_or_default());
        }
        let Some(new) = self.new_topics(origin.client, routed, &names) else { return };
        let (word, kind) = (routed.classified.spec.name, kind_of(routed.classified.spec.name));
        if let Err(refused) = desk.flow.reaches(&mut desk.step, kind, &new) {
            return desk.flow.finish(origin, refused);
        }
        let mut told: Vec<Subscribers> = Vec::with_capacity(new.len());
        for name in &new {
            self.subscriptions.insert(kind, name, origin.client);
            told.push(self.subscriptions.told(kind, name));
        }
        let none_new = told.is_empty();
        if let Some(session) = self.sessions.get_mut(origin.client) {
            session.subscribing = Some(Box::new(Subscribing { kind, word, names, new, held: Vec::new() }));
        }
        if none_new {
            let confirmed = self.confirm_subscription(origin.client).unwrap_or_default();
            return desk.flow.finish(origin, confirmed);
        }
        self.hold(desk, origin.client);
        desk.flow.subscribe(&mut desk.step, origin, told);
    }

    /// The client's next command is read when its subscription has been answered.
    pub(crate) fn hold(&mut self, desk: &mut Desk<'_>, client: u32) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.awaits_subscription = true;
            desk.flow.set_stalled(client, true);
        }
    }

    /// The names that the client does not have, each once.
    fn new_topics(&self, client: u32, routed: &Routed, names: &[Key]) -> Option<Vec<Key>> {
        let session = self.sessions.get(client)?;
        let kind = kind_of(routed.classified.spec.name);
        let has = |name: &Key| session.subscribed.as_ref().is_some_and(|own| own.has(kind, name));
        let mut seen = KeyMap::default();
        let mut is_new = |name: &&Key| !has(name) && seen.insert((*name).clone(), ()).is_none();
        Some(names.iter().filter(|name| is_new(name)).cloned().collect())
    }

    /// All shims have answered: the client has what it asked for, or nothing of it.
    pub(crate) fn subscribed(&mut self, desk: &mut Desk<'_>, origin: RequestOrigin, error: Option<Bytes>) {
        let Some(session) = self.sessions.get_mut(origin.client) else { return };
        session.awaits_subscription = false;
        if let Some(error) = error {
            let subscribing = session.subscribing.take();
            self.take_back(desk, origin.client, subscribing);
            return desk.flow.finish(origin, error);
        }
        session.unheard =
            session.subscribing.as_mut().map(|own| std::mem::take(&mut own.held)).unwrap_or_default();
        let heard = session.unheard.is_empty();
        let confirmed = self.confirm_subscription(origin.client).unwrap_or_default();
        match heard {
            true => desk.flow.finish(origin, confirmed),
            false => desk.flow.finish_and_tell(origin, confirmed),
        }
    }

    /// The client has its confirmation, and hears what was published meanwhile.
    pub(crate) fn settled(&mut self, desk: &mut Desk<'_>, client: u32) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        for push in std::mem::take(&mut session.unheard) {
            self.push_to(desk, client, &mut Push::new(push));
        }
    }

    /// Undoes what a subscription has begun.
    fn take_back(&mut self, desk: &mut Desk<'_>, client: u32, subscribing: Option<Box<Subscribing>>) {
        let Some(subscribing) = subscribing else { return };
        for name in subscribing.new {
            let told = self.subscriptions.leave(subscribing.kind, &name, client);
            desk.flow.tell_subscribers(&mut desk.step, &told);
        }
    }

    fn confirm_subscription(&mut self, client: u32) -> Option<Bytes> {
        let session = self.sessions.get_mut(client)?;
        let Subscribing { kind, word, names, .. } = *session.subscribing.take()?;
        let own = session.subscribed.get_or_insert_default();
        let mut told = Confirmation { word, kind, resp3: session.resp3, out: Vec::new() };
        for name in names {
            own.insert(kind, name.clone());
            own.confirm(&mut told, Some(&name));
        }
        Some(told.out.into())
    }

    fn unsubscribe(&mut self, desk: &mut Desk<'_>, client: u32, asked: Unsubscribe<'_>) -> Option<Bytes> {
        let Unsubscribe { routed, mut names } = asked;
        let session = self.sessions.get_mut(client)?;
        let (resp3, word) = (session.resp3, routed.classified.spec.name);
        let kind = kind_of(word);
        let mut own = session.subscribed.take().unwrap_or_default();
        if routed.command.len() == 1 {
            names = own.names(kind);
        }
        let mut told = Confirmation { word, kind, resp3, out: Vec::new() };
        if names.is_empty() {
            own.confirm(&mut told, None);
        }
        for name in names {
            if own.remove(kind, &name) {
                let left = self.subscriptions.leave(kind, &name, client);
                desk.flow.tell_subscribers(&mut desk.step, &left);
            }
            own.confirm(&mut told, Some(&name));
        }
        if let Some(session) = self.sessions.get_mut(client)
            && !own.is_empty()
        {
            session.subscribed = Some(own);
        }
        Some(told.out.into())
    }

    /// RESET, or the client is gone.
    pub(crate) fn leave_all(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        subscribed: Option<Box<Subscribed>>,
    ) {
        let Some(subscribed) = subscribed else { return };
        for kind in KINDS {
            for name in subscribed.names(kind) {
                let told = self.subscriptions.leave(kind, &name, client);
                desk.flow.tell_subscribers(&mut desk.step, &told);
            }
        }
    }

    /// The client is gone, and with it what it had and what it had just asked for.
    pub(crate) fn unsubscribe_all(&mut self, desk: &mut Desk<'_>, client: u32, session: &mut Session) {
        self.take_back(desk, client, session.subscribing.take());
        self.leave_all(desk, client, session.subscribed.take());
    }

    /// A shim's link is back: it has forgotten whose clients had what.
    pub(crate) fn subscribe_again(&mut self, desk: &mut Desk<'_>, shim: ShimId) {
        for topic in self.subscriptions.all() {
            desk.flow.tell_subscribers_at(&mut desk.step, shim, topic);
        }
    }

    /// There is another map: what other shims publish now is asked for there, and no more where it was.
    pub(crate) fn subscribe_elsewhere(&mut self, desk: &mut Desk<'_>, before: &Placement) {
        if before.divides_keys_as(desk.flow.placement().map_or(before, Arc::as_ref)) {
            return;
        }
        for topic in self.subscriptions.all() {
            desk.flow.tell_subscribers_since(&mut desk.step, before, topic);
        }
    }

    pub(crate) fn delivered(&mut self, desk: &mut Desk<'_>, deliver: Deliver) {
        let Deliver { kind, name, push } = deliver;
        let mut push = Push::new(push);
        for client in self.subscriptions.clients(kind, &name) {
            let Some(session) = self.sessions.get_mut(client) else { continue };
            match &mut session.subscribing {
                // After the confirmation, and in the order of the messages of all channels.
                Some(subscribing) if !subscribing.new.is_empty() => {
                    if subscribing.held.len() < HELD_MAX {
                        subscribing.held.push(push.resp3.clone());
                    }
                }
                _ => self.push_to(desk, client, &mut push),
            }
        }
    }

    /// Says something to a client that it has not asked for now. Whole replies only are written around it.
    fn push_to(&mut self, desk: &mut Desk<'_>, client: u32, push: &mut Push) {
        let Some(session) = self.sessions.get(client) else { return };
        desk.step.counters.pushes += 1;
        let bytes = push.bytes(session.resp3);
        desk.flow.push(&mut desk.step, client, bytes);
    }
}

/// A command that ends subscriptions, and the topics that it names.
struct Unsubscribe<'a> {
    routed: &'a Routed,
    names: Vec<Key>,
}

/// The names that a command gives, in buffers of their own.
fn topics(desk: &mut Desk<'_>, routed: &Routed) -> Result<Vec<Key>, Bytes> {
    let bytes_max = desk.step.config.settings.key_bytes_max;
    let names = || routed.command.args().skip(1);
    if let Some(long) = names().find(|name| name.len() > bytes_max) {
        return Err(channel_too_long(&mut desk.step, long.len()));
    }
    let placement = desk.flow.placement();
    let key = |name: &[u8]| Some(placement?.key(0, Bytes::copy_from_slice(name)));
    Ok(names().filter_map(key).collect())
}
