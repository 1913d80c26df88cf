//! Client-side caching: which of the router's clients track, and what they are told of changes. Not the command that begins
//! it, nor how changes become known. Which keys they keep stands in `flow::interest`.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::message::{Changed, Follow};
use wire::resp::{Command, reply};
use wire::{Key, Peer, ShimId};

use crate::placement::Placement;
use crate::router::flow::interest::Keeper;
use crate::router::flow::pipeline::FanPart;
use crate::router::flow::request::{RequestOrigin, low};
use crate::router::front::Front;
use crate::router::front::client_tracking::{ClientTracking, Notice};
use crate::router::front::desk::Desk;
use crate::router::siblings::{Notification, SiblingMessage, ThreadClient};
use crate::router::words;
use commands::integer;

const CHANNEL: &[u8] = b"__redis__:invalidate";

impl Front {
    /// A read was sent of which the client keeps what it reads.
    pub(crate) fn keeps(&mut self, client: u32) {
        let session = self.sessions.get_mut(client);
        if let Some(tracking) = session.and_then(|session| session.tracking.as_mut()) {
            tracking.clean = false;
        }
    }

    /// A write of the client was sent, and shims say whose writes they report.
    pub(crate) fn wrote(&mut self, client: u32, request: u64, reads: u64) {
        let session = self.sessions.get_mut(client);
        if let Some(tracking) = session.and_then(|session| session.tracking.as_mut()) {
            tracking.wrote(request, reads);
        }
    }

    /// Forgets the oldest keys beyond the limit; their clients hear so. At the end of a step, when what reads the keys has
    /// its place in the pipeline and the notice can wait behind its reply.
    pub(crate) fn forget_tracked(&mut self, desk: &mut Desk<'_>) {
        if desk.flow.interests().keys_count() == 0 {
            return;
        }
        let keys_max = self.tracking.keys_max.unwrap_or(desk.step.config.tracked_max);
        let keys_max = desk.step.config.place.part(keys_max);
        while let Some(key) = desk.flow.interests_mut().excess(keys_max) {
            self.key_changed(desk, &key, None);
        }
    }

    /// CONFIG SET goes to storage, whose own table of what clients track is this one here. Whether it concerns that.
    pub(crate) fn limit_tracking(&mut self, desk: &Desk<'_>, command: &Command) -> bool {
        let mut options = (2..command.len()).step_by(2);
        let Some(at) = options.find(|at| words::is(command, *at, "tracking-table-max-keys")) else {
            return false;
        };
        let limit = command.get(at + 1).and_then(integer).and_then(|limit| usize::try_from(limit).ok());
        if let Some(limit) = limit {
            let keys_max = desk.step.config.tracked_max;
            self.tracking.keys_max = Some(if limit == 0 { keys_max } else { limit.min(keys_max) });
        }
        true
    }

    /// A shim says what has changed.
    pub(crate) fn changed(&mut self, desk: &mut Desk<'_>, from: Peer, changed: &Changed) {
        let (Peer::Shim(shim), Some(placement)) = (from, desk.flow.placement().cloned()) else { return };
        if changed.keys.is_empty() {
            return self.all_changed(desk, shim);
        }
        let Ok(names) = Command::parse(changed.keys.clone()) else { return };
        let names: Vec<Bytes> = names.args().map(Bytes::copy_from_slice).collect();
        for name in &names {
            self.key_changed(desk, &placement.key(0, name.clone()), changed.writer);
        }
        self.tell_broadcasts(
            desk,
            ChangeReport { placement: &placement, names: &names, writer: changed.writer },
        );
    }

    fn key_changed(&mut self, desk: &mut Desk<'_>, key: &Key, writer: Option<u64>) {
        let tracking = |keeper: Keeper| {
            let session = self.sessions.get(keeper.client).filter(|session| session.number == keeper.number);
            session.and_then(|session| session.tracking.as_ref())
        };
        // What it has read since that write of its own it keeps: the next change is to be told.
        let stays = |keeper: Keeper| tracking(keeper)?.loops(writer).map(|reads| keeper.read > reads);
        let mut ended = desk.flow.interests_mut().end(key, |keeper| stays(keeper) == Some(true));
        ended.retain(|keeper| {
            tracking(*keeper).is_some_and(|own| own.prefixes.is_none() && own.loops(writer).is_none())
        });
        for Keeper { client, .. } in ended {
            let behind = desk.flow.last_about(client, &[low(key)]);
            self.notify(desk, client, DueNotice { notice: Notice::Keys(vec![key.bytes.clone()]), behind });
        }
    }

    fn tell_broadcasts(&mut self, desk: &mut Desk<'_>, report: ChangeReport<'_>) {
        let ChangeReport { placement, names, writer } = report;
        let clients: Vec<u32> = self.tracking.clients.iter().copied().collect();
        for client in clients {
            let session = self.sessions.get(client);
            let Some(tracking) = session.and_then(|session| session.tracking.as_ref()) else { continue };
            let Some(prefixes) = tracking.prefixes.as_ref().filter(|_| tracking.loops(writer).is_none())
            else {
                continue;
            };
            // Redis keeps the reports of each prefix by themselves.
            let reports = prefixes.iter().map(|prefix| {
                names.iter().filter(|name| name.starts_with(prefix)).cloned().collect::<Vec<_>>()
            });
            let reports: Vec<Vec<Bytes>> = reports.filter(|keys| !keys.is_empty()).collect();
            for keys in reports {
                let digests: Vec<u64> =
                    keys.iter().map(|name| low(&placement.key(0, name.clone()))).collect();
                let behind = desk.flow.last_about(client, &digests);
                self.notify(desk, client, DueNotice { notice: Notice::Keys(keys), behind });
            }
        }
    }

    /// Any key of the shim may have changed: what is tracked there is not any longer, and whoever tracks hears so.
    pub(crate) fn all_changed(&mut self, desk: &mut Desk<'_>, shim: ShimId) {
        desk.flow.interests_mut().end_all_of(shim);
        let clients: Vec<u32> = self.tracking.clients.iter().copied().collect();
        for client in clients {
            let Some(session) = self.sessions.get_mut(client) else { continue };
            let Some(tracking) = session.tracking.as_mut().filter(|tracking| !tracking.clean) else {
                continue;
            };
            tracking.clean = true;
            let behind = desk.flow.last(client);
            self.notify(desk, client, DueNotice { notice: Notice::All, behind });
        }
    }

    /// Behind the reply to what the client has asked about these keys, or now.
    fn notify(&mut self, desk: &mut Desk<'_>, client: u32, due: DueNotice) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        match (due.behind, &mut session.tracking) {
            (Some(sequence), Some(tracking)) => tracking.held.push((sequence, due.notice)),
            _ => self.emit(desk, client, &due.notice),
        }
    }

    /// What waited for replies that have been given by now.
    pub(crate) fn release_notices(&mut self, desk: &mut Desk<'_>, client: u32) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let Some(tracking) = session.tracking.as_mut() else { return };
        let first = desk.flow.first(client);
        let (due, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut tracking.held).into_iter().partition(|(behind, _)| *behind < first);
        tracking.held = held;
        for (_, notice) in due {
            self.emit(desk, client, &notice);
        }
    }

    /// In the form that the connection can take; RESP2 has none but a message of a channel, on another connection.
    fn emit(&mut self, desk: &mut Desk<'_>, client: u32, notice: &Notice) {
        let Some(session) = self.sessions.get(client) else { return };
        let Some(tracking) = &session.tracking else { return };
        let (number, resp3, redirect) = (session.number, session.resp3, tracking.redirect);
        match redirect {
            None if resp3 => push_notice(desk, client, notice, true),
            None => {}
            Some(to) => {
                let from = ThreadClient { thread: desk.step.config.place.own, client, number };
                let notification = Notification { from, to, notice: notice.clone() };
                match to.thread == from.thread {
                    true => self.notify_for(desk, &notification),
                    false => desk.step.tell(to.thread, SiblingMessage::Notify(notification)),
                }
            }
        }
    }

    /// Tells a client here what another wants it to be told.
    pub(crate) fn notify_for(&mut self, desk: &mut Desk<'_>, notification: &Notification) {
        let Notification { from, to, ref notice } = *notification;
        let told = self.sessions.get(to.client);
        match told.filter(|session| session.number == to.number && !session.closing) {
            Some(session) if !session.resp3 && session.subscribed.is_none() => {}
            Some(session) => {
                let resp3 = session.resp3;
                push_notice(desk, to.client, notice, resp3);
            }
            None if from.thread == desk.step.config.place.own => self.redirect_broken(desk, from, to.number),
            None => desk.step.tell(from.thread, SiblingMessage::Broken { from, to }),
        }
    }

    /// The one to be told instead, of this number, is gone.
    pub(crate) fn redirect_broken(&mut self, desk: &mut Desk<'_>, from: ThreadClient, number: u64) {
        let client = from.client;
        let session = self.sessions.get_mut(client).filter(|session| session.number == from.number);
        let Some(session) = session else { return };
        if let Some(tracking) = &mut session.tracking {
            tracking.broken = true;
        }
        if session.resp3 {
            let mut out = Vec::new();
            reply::push_header(2, true, &mut out);
            reply::bulk(b"tracking-redir-broken", &mut out);
            reply::integer(number as i64, &mut out);
            push_out(desk, client, out);
        }
    }

    /// The client tracks from now on, or not any longer.
    pub(crate) fn set_tracking(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        mut tracking: Option<Box<ClientTracking>>,
    ) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        if let (Some(tracking), Some(before)) = (&mut tracking, session.tracking.take()) {
            (tracking.held, tracking.writes) = (before.held, before.writes);
        }
        match tracking.is_some() {
            true => self.tracking.clients.insert(client),
            false => self.tracking.clients.remove(&client),
        };
        // Where others write to storage it is told of what copies do not know of yet.
        let ahead = tracking.as_ref().is_some_and(|tracking| tracking.prefixes.is_some());
        desk.flow.set_reads_at_shims(client, desk.step.config.bounded && ahead);
        session.tracking = tracking;
    }

    /// A client that tracks is gone.
    pub(crate) fn stop_tracking(&mut self, desk: &mut Desk<'_>, client: u32) {
        self.tracking.clients.remove(&client);
        self.follow(desk, None);
    }

    /// Tells shims what clients follow now, if that is news. With a place there its parts are to be answered.
    pub(crate) fn follow(&mut self, desk: &mut Desk<'_>, place: Option<RequestOrigin>) -> Vec<FanPart> {
        let tracking =
            |client: &u32| self.sessions.get(*client).and_then(|session| session.tracking.as_deref());
        let all: Vec<&ClientTracking> = self.tracking.clients.iter().filter_map(tracking).collect();
        let prefixes: BTreeSet<&Bytes> =
            all.iter().filter_map(|own| own.prefixes.as_ref()).flatten().collect();
        let names: Vec<&[u8]> = prefixes.iter().map(|prefix| &prefix[..]).collect();
        let prefixes = match names.is_empty() {
            true => Bytes::new(),
            false => Command::from_args(&names).frame().clone(),
        };
        let (follows, writers) = (!all.is_empty(), all.iter().any(|own| own.noloop));
        let follow = Follow { request: None, follows, writers, prefixes };
        desk.flow.follow(&mut desk.step, &follow, place)
    }
}

/// In the form that the connection can take.
fn push_notice(desk: &mut Desk<'_>, client: u32, notice: &Notice, resp3: bool) {
    let mut out = Vec::new();
    if resp3 {
        reply::push_header(2, true, &mut out);
        reply::bulk(b"invalidate", &mut out);
    } else {
        reply::array_header(3, &mut out);
        reply::bulk(b"message", &mut out);
        reply::bulk(CHANNEL, &mut out);
    }
    match notice {
        Notice::All => reply::null(resp3, &mut out),
        Notice::Keys(keys) => {
            reply::array_header(keys.len(), &mut out);
            keys.iter().for_each(|key| reply::bulk(key, &mut out));
        }
    }
    push_out(desk, client, out);
}

fn push_out(desk: &mut Desk<'_>, client: u32, bytes: Vec<u8>) {
    desk.step.counters.pushes += 1;
    desk.flow.push(&mut desk.step, client, bytes.into());
}

/// What a client is to drop, and behind the reply to which of its commands.
struct DueNotice {
    notice: Notice,
    behind: Option<u64>,
}

/// Keys that have changed, by whose request.
struct ChangeReport<'a> {
    placement: &'a Placement,
    names: &'a [Bytes],
    writer: Option<u64>,
}
