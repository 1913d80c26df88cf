//! Commands about the whole router: each of its threads obeys them, or says what it has to say of its own clients, and one
//! puts that together. Not what each command means.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::Command;

use crate::router::flow::ask::Info;
use crate::router::flow::plan::changes_users;
use crate::router::flow::request::RequestOrigin;
use crate::router::front::acl_log::AclEntry;
use crate::router::front::desk::Desk;
use crate::router::front::info::InfoFigure;
use crate::router::front::slow_log::{SlowEntry, SlowLogView};
use crate::router::front::{Front, acl_command, client_command, info, memcached, slow_log, tracking_command};
use crate::router::siblings::SiblingMessage;
use crate::router::{replies, words};
use commands::memcached::{ServerStats, Tallies};

/// What one thread has to say to such a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadShare {
    /// It has obeyed.
    Done,
    /// How many it has found, or dealt with.
    Count(u64),
    /// Its clients, by number.
    Clients(Vec<(u64, String)>),
    /// The place of the client that was asked for.
    Place(Option<u32>),
    /// The router's part of INFO.
    Figures(Vec<(&'static str, Vec<InfoFigure>)>),
    /// The newest first.
    Slow(Vec<SlowEntry>),
    /// The newest first.
    Denials(Vec<AclEntry>),
    /// Its part of memcached's `stats`.
    Stats(Tallies, ServerStats),
}

/// What becomes of the shares.
#[derive(Debug)]
enum GatheringPurpose {
    Reply,
    /// The part of INFO that comes before what storage says.
    Info,
    /// CLIENT TRACKING with REDIRECT to a client of another thread.
    Tracking,
    /// Storage has changed its users, and this is the reply once all threads act on them.
    Users(Bytes),
}

/// A command that other threads have been asked about.
#[derive(Debug)]
struct Gathering {
    origin: RequestOrigin,
    /// What CLIENT ID says of who asks: another may have its place by now.
    number: u64,
    command: Command,
    purpose: GatheringPurpose,
    /// What this thread and those that have answered say together.
    share: ThreadShare,
    awaited: SmallVec<[u16; 4]>,
}

impl ThreadShare {
    /// What two threads say together.
    fn joined(self, other: ThreadShare) -> ThreadShare {
        match (self, other) {
            (ThreadShare::Count(own), ThreadShare::Count(other)) => ThreadShare::Count(own + other),
            (ThreadShare::Clients(own), ThreadShare::Clients(other)) => {
                ThreadShare::Clients([own, other].concat())
            }
            (ThreadShare::Place(own), ThreadShare::Place(other)) => ThreadShare::Place(own.or(other)),
            (ThreadShare::Figures(own), ThreadShare::Figures(other)) => {
                ThreadShare::Figures(info::joined(own, other))
            }
            (ThreadShare::Slow(own), ThreadShare::Slow(other)) => ThreadShare::Slow([own, other].concat()),
            (ThreadShare::Denials(own), ThreadShare::Denials(other)) => {
                ThreadShare::Denials([own, other].concat())
            }
            (ThreadShare::Stats(tallies, state), ThreadShare::Stats(other_tallies, other_state)) => {
                ThreadShare::Stats(tallies.joined(other_tallies), state.joined(other_state))
            }
            (own, _) => own,
        }
    }
}

impl Gathering {
    fn new(
        origin: RequestOrigin,
        command: &Command,
        purpose: GatheringPurpose,
        share: ThreadShare,
    ) -> Gathering {
        let (number, awaited) = (0, SmallVec::new());
        Gathering { origin, number, command: command.clone(), purpose, share, awaited }
    }

    /// Takes what another thread says, if anything.
    fn take(&mut self, thread: u16, share: Option<ThreadShare>) {
        self.awaited.retain(|awaited| *awaited != thread);
        if let Some(share) = share {
            self.share = std::mem::replace(&mut self.share, ThreadShare::Done).joined(share);
        }
    }
}

/// What this thread has asked the others, by number, and who of them has ended.
#[derive(Debug, Default)]
pub(crate) struct Gatherings {
    all: BTreeMap<u64, Gathering>,
    next: u64,
    ended: SmallVec<[u16; 4]>,
}

impl Gatherings {
    /// Takes what a thread says, if anything; what comes back waits for nobody any more.
    fn take(&mut self, asked: u64, thread: u16, share: Option<ThreadShare>) -> Option<Gathering> {
        let gathering = self.all.get_mut(&asked)?;
        gathering.take(thread, share);
        let is_whole = gathering.awaited.is_empty();
        if is_whole { self.all.remove(&asked) } else { None }
    }
}

/// Whether a command of kind `Connection` is about the whole router.
pub(crate) fn is_whole(command: &Command) -> bool {
    let sub = |names: &[&str]| names.iter().any(|name| words::is(command, 1, name));
    let length = command.len();
    match command.name().first().map(u8::to_ascii_uppercase) {
        Some(b'C') if words::is(command, 0, "CLIENT") => {
            sub(&["LIST"])
                || length >= 3 && sub(&["KILL", "PAUSE"])
                || matches!(length, 3 | 4) && sub(&["UNBLOCK"])
                || length == 2 && sub(&["UNPAUSE"])
        }
        Some(b'S') => words::is(command, 0, "SLOWLOG") && sub(&["GET", "LEN", "RESET"]),
        Some(b'D') => words::is(command, 0, "DISTCACHE") && sub(&["SLOWLOG"]),
        Some(b'A') => words::is(command, 0, "ACL") && matches!(length, 2 | 3) && sub(&["LOG"]),
        Some(b'I') => words::is(command, 0, "INFO"),
        _ => false,
    }
}

impl Front {
    /// Answers a client once all threads have.
    pub(crate) fn answer_whole(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) {
        match self.share(desk, Some(client), command) {
            Ok(share) => self.answer_shared(desk, client, command, share),
            Err(error) => {
                desk.step.counters.refusals += 1;
                self.respond(desk, client, error);
            }
        }
    }

    /// The same where this thread has said its share.
    pub(crate) fn answer_shared(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        command: &Command,
        share: ThreadShare,
    ) {
        let Some(origin) = self.hand(desk, client) else { return };
        if self.killed.contains(&client) {
            // It hears first how many there were.
            self.killed.retain(|killed| *killed != client);
            self.close_behind_last(desk, client);
        }
        self.gather(desk, Gathering::new(origin, command, GatheringPurpose::Reply, share));
    }

    /// The same inside a transaction, which waits for nobody.
    pub(crate) fn answer_whole_at_once(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        command: &Command,
    ) -> Bytes {
        if usize::from(desk.step.config.place.count) > self.gatherings.ended.len() + 1 {
            let name = commands::resolve(command).map_or("", |spec| spec.name);
            return replies::error(&format!(
                "ERR DistCache: '{name}' is about all threads of the router, and a transaction waits for none; send it \
                 outside of MULTI"
            ));
        }
        let resp3 = self.sessions.get(client).is_some_and(|session| session.resp3);
        let share = self.share(desk, Some(client), command);
        share.map_or_else(|error| error, |share| self.reply_of(desk, (command, resp3), share))
    }

    /// INFO whose turn has come: the router's part, and then what storage says.
    pub(crate) fn launch_info(&mut self, desk: &mut Desk<'_>, origin: RequestOrigin, command: &Command) {
        let share = ThreadShare::Figures(info::figures(self, desk));
        self.gather(desk, Gathering::new(origin, command, GatheringPurpose::Info, share));
    }

    /// CLIENT TRACKING that names a client of another thread. That one's next command is not read before: what it keeps
    /// depends on this.
    pub(crate) fn find_redirect(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) {
        let Some(origin) = self.hand(desk, client) else { return };
        self.hold(desk, client);
        self.gather(
            desk,
            Gathering::new(origin, command, GatheringPurpose::Tracking, ThreadShare::Place(None)),
        );
    }

    /// Storage has other users, by a command of this client: it hears of it when all threads act on them.
    pub(crate) fn spread_users(&mut self, desk: &mut Desk<'_>, origin: RequestOrigin, told: Bytes) {
        // Whatever has changed them, the others ask storage.
        let command = &Command::from_args(&["ACL", "LOAD"]);
        self.gather(desk, Gathering::new(origin, command, GatheringPurpose::Users(told), ThreadShare::Done));
    }

    /// Asks the other threads that are there, or has them obey what storage answers the client; the question's number, and
    /// who will answer it.
    pub(crate) fn ask_siblings(
        &mut self,
        desk: &mut Desk<'_>,
        command: &Command,
    ) -> (u64, SmallVec<[u16; 4]>) {
        let asked = self.gatherings.next;
        self.gatherings.next += 1;
        let ended = &self.gatherings.ended;
        let others = desk.step.config.place.others().filter(|thread| !ended.contains(thread));
        let others: SmallVec<[u16; 4]> = others.collect();
        for thread in &others {
            desk.step.tell(*thread, SiblingMessage::Ask { asked, command: command.clone() });
        }
        (asked, others)
    }

    /// A command takes its place, and its reply comes with `Flow::finish`.
    pub(crate) fn hand(&mut self, desk: &mut Desk<'_>, client: u32) -> Option<RequestOrigin> {
        let session = self.sessions.get_mut(client)?;
        let origin = desk.flow.next_place(client, session.resp3)?;
        let manner = session.manner();
        desk.flow.hand(&mut desk.step, client, manner);
        self.sample(desk, client);
        Some(origin)
    }

    fn close_behind_last(&mut self, desk: &mut Desk<'_>, client: u32) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.closing = true;
            desk.flow.close_behind_last(client);
        }
    }

    /// Asks the other threads. Whose command it is and who is awaited is filled in here.
    fn gather(&mut self, desk: &mut Desk<'_>, mut gathering: Gathering) {
        let client = gathering.origin.client;
        let Some(number) = self.sessions.get(client).map(|session| session.number) else { return };
        gathering.number = number;
        let asked;
        (asked, gathering.awaited) = self.ask_siblings(desk, &gathering.command);
        match gathering.awaited.is_empty() {
            true => self.gathered(desk, gathering),
            false => drop(self.gatherings.all.insert(asked, gathering)),
        }
    }

    /// What another thread says.
    pub(crate) fn sibling(&mut self, desk: &mut Desk<'_>, thread: u16, message: SiblingMessage) {
        match message {
            SiblingMessage::Ask { asked, command } if changes_users(&command) => {
                self.ask_for_users_anew(desk, (thread, asked));
            }
            SiblingMessage::Ask { asked, command } => {
                // What is wrong with it has been told where it came from.
                let share = self.share(desk, None, &command).unwrap_or(ThreadShare::Done);
                desk.step.tell(thread, SiblingMessage::Told { asked, share });
            }
            SiblingMessage::Told { asked, share } => {
                let gathering = self.gatherings.take(asked, thread, Some(share));
                gathering.into_iter().for_each(|gathering| self.gathered(desk, gathering));
            }
            SiblingMessage::Notify(notification) => self.notify_for(desk, &notification),
            SiblingMessage::Broken { from, to } => self.redirect_broken(desk, from, to.number),
            SiblingMessage::RunsScript(runs) => self.scripts.heard(thread, runs),
            SiblingMessage::Ended => {
                self.scripts.heard(thread, false);
                if !self.gatherings.ended.contains(&thread) {
                    self.gatherings.ended.push(thread);
                }
                let asked: Vec<u64> = self.gatherings.all.keys().copied().collect();
                for asked in asked {
                    let gathering = self.gatherings.take(asked, thread, None);
                    gathering.into_iter().for_each(|gathering| self.gathered(desk, gathering));
                }
            }
        }
    }

    fn gathered(&mut self, desk: &mut Desk<'_>, gathering: Gathering) {
        let Gathering { origin, number, command, purpose, share, .. } = gathering;
        let asking = self.sessions.get_mut(origin.client).filter(|session| session.number == number);
        let Some(session) = asking else { return };
        match (purpose, share) {
            (GatheringPurpose::Reply, share) => {
                let bytes = self.reply_of(desk, (&command, origin.resp3), share);
                desk.step.counters.refusals += u64::from(bytes.starts_with(b"-"));
                desk.flow.finish(origin, bytes);
            }
            (GatheringPurpose::Info, ThreadShare::Figures(figures)) => {
                let own = info::text(&figures, &command);
                desk.flow.ask_info(&mut desk.step, origin, Info { own, asked: &command });
            }
            (GatheringPurpose::Tracking, ThreadShare::Place(place)) => {
                session.awaits_subscription = false;
                tracking_command::set_at(self, desk, origin, &command, place);
            }
            (GatheringPurpose::Users(told), _) => desk.flow.finish(origin, told),
            (GatheringPurpose::Info | GatheringPurpose::Tracking, _) => {}
        }
    }

    /// This thread's own share; an error of a command that is wrong.
    fn share(
        &mut self,
        desk: &mut Desk<'_>,
        client: Option<u32>,
        command: &Command,
    ) -> Result<ThreadShare, Bytes> {
        match command.name().first().map(u8::to_ascii_uppercase) {
            Some(b'I') => Ok(ThreadShare::Figures(info::figures(self, desk))),
            Some(b'A') => acl_command::share(&mut self.permissions.log, command),
            Some(b'C') if words::is(command, 0, "CONFIG") => self.share_configuration(desk, command),
            Some(b'C') => client_command::share(self, desk, client, command),
            Some(b'S') if words::is(command, 0, "STATS") => Ok(self.memcached_share(desk, command)),
            _ => slow_log::share(&mut self.slow_log, command),
        }
    }

    /// What a router does with CONFIG SET beside what storage does.
    fn share_configuration(&mut self, desk: &Desk<'_>, command: &Command) -> Result<ThreadShare, Bytes> {
        match slow_log::configuration(&mut self.slow_log, false, command) {
            Some(error) if error.starts_with(b"-") => Err(error),
            Some(_) => Ok(ThreadShare::Done),
            None => {
                self.limit_tracking(desk, command);
                Ok(ThreadShare::Done)
            }
        }
    }

    /// What the client hears of what all threads say together.
    fn reply_of(&self, desk: &Desk<'_>, (command, resp3): (&Command, bool), share: ThreadShare) -> Bytes {
        match share {
            ThreadShare::Clients(mut clients) => {
                clients.sort_unstable_by_key(|(number, _)| *number);
                let text: String = clients.into_iter().map(|(_, line)| line).collect();
                replies::verbatim(&text, resp3)
            }
            ThreadShare::Count(count) if words::is(command, 0, "SLOWLOG") => {
                slow_log::length(&self.slow_log, count)
            }
            ThreadShare::Count(count) => client_command::counted(command, count),
            ThreadShare::Figures(figures) => replies::verbatim(&info::text(&figures, command), resp3),
            ThreadShare::Slow(mut entries) => {
                entries.sort_by_key(|entry| Reverse((entry.at, entry.id)));
                let view = SlowLogView { config: desk.step.config, resp3, command };
                slow_log::shown(&self.slow_log, &view, entries)
            }
            ThreadShare::Denials(mut entries) => {
                entries.sort_by_key(|entry| Reverse(entry.at));
                acl_command::shown(&entries, desk.now(), command, resp3)
            }
            ThreadShare::Stats(tallies, state) => memcached::stats(command, tallies, &state),
            ThreadShare::Done | ThreadShare::Place(_) => replies::OK,
        }
    }
}
