//! The dialogue on the admin connection that makes this incarnation the only one that can write, and keeps it so.
//! Not the connection itself.

mod lacks;

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use wire::resp::{Command, Value};

use super::acl::{self, FenceName, FenceShare, Legacy, OtherUsers, UserKind};
use super::mark::ServerMark;
use super::server::{self, Identity};
use super::settings::{FenceDemand, LeaseRecord, RedisSettings};
use crate::coherence::lease::{EarlierIncarnations, Unrecorded};
use crate::storage::login::Login;
use crate::storage::{MarkedPart, StorageTraits};
use crate::time::Time;
use lacks::Lacks;

/// One life of this shim before one storage state.
#[derive(Clone, Debug)]
pub(super) struct Incarnation {
    pub(super) number: u64,
    pub(super) user: String,
    /// A server that wants no password is not told any.
    pub(super) password: Option<String>,
    /// The user is its own, and gone once another incarnation has one. Else it is that of the settings.
    pub(super) has_user: bool,
    pub(super) traits: StorageTraits,
    /// What its name says.
    legacy: Legacy,
    /// What it has to know itself of those before it, counted from its fence.
    pub(super) earlier: EarlierIncarnations,
    identity: Identity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Login,
    Server,
    Replication,
    /// What HELLO says of the server, in place of INFO.
    Greeting,
    Clock,
    /// Whether somebody else is the shim, and still has connections: where others stand by, and after this incarnation's user has
    /// gone.
    Successor,
    Connections,
    WhoAmI,
    Rules,
    /// Fences would fail without these permissions, so they are tried before they are needed.
    TryDelete,
    TryKill,
    Keyspace,
    /// Whether the server holds what it is to hold, if anything.
    Mark,
    /// What the name of this incarnation's user has to say.
    Look,
    /// Whether others are there that are none of this shim's.
    Strangers,
    /// Own user first, list second: of two shims that do this at once, at least the later one sees the other.
    Make,
    List,
    Delete,
    Fence,
    /// No lease of those before runs any more.
    Shrink,
    Settled,
}

/// Why a step came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server asks to wait; it may serve the data connections meanwhile.
    Wait(String),
    /// The server must not be used as it is now.
    Unfit(String),
    /// Another process of the same shim has taken the server over.
    Replaced(String),
    /// Only a person can help.
    Refused(String),
    /// The connection is of no use.
    Broken(String),
}

/// What a reply has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Next,
    /// The storage state is another one: connections and grants of the last incarnation are void.
    Void,
}

pub(super) struct Takeover {
    login: Option<Login>,
    /// Name and password of the settings.
    configured: (Option<String>, Option<String>),
    demand: FenceDemand,
    /// What the server does not allow, and is done without.
    lacks: Lacks,
    /// New admin connections.
    connections: u64,
    /// The server has to be one of a Redis Cluster, or must not be.
    cluster_mode: bool,
    fence: FenceName,
    pub(super) mark: Option<ServerMark>,
    adopts: bool,
    /// Others may be the shim as well.
    stands_by: bool,
    random: SmallRng,
    step: Step,
    traits: StorageTraits,
    identity: Identity,
    record: LeaseRecord,
    whoami: Bytes,
    rules: Vec<Bytes>,
    others: OtherUsers,
    /// When leases of others are over, so that successors need not wait for them.
    shrinks_at: Option<Time>,
    /// When leases of others are over, also where what this incarnation waits for covers them.
    others_end: Time,
    /// This process has had an incarnation.
    has_governed: bool,
    /// Made, but not yet alone.
    candidate: Option<Incarnation>,
    incarnation: Option<Incarnation>,
    /// Client ids of lost connections that may still have commands in the server's buffers.
    unfenced: Vec<u64>,
    /// This process has had an incarnation, and its user was taken away.
    displaced: bool,
    /// How long the leases may run of who was seen to be the shim last, and when that was.
    watched: Option<(Duration, Time)>,
    /// How often in a row nobody was found who is the shim and does something.
    absent: u8,
}

/// Who has no connection for once may be making one; what has said nothing may wait behind what the server does for long.
const ABSENT_MIN: u8 = 2;
/// A process that has sent nothing for so long hangs, or is cut off: one that is the shim says something every
/// [`SIGN_OF_LIFE`](super::SIGN_OF_LIFE). Servers count in whole seconds.
const SILENCE_MIN: Duration = Duration::from_secs(3);

fn whole_ms(wait: Duration) -> Duration {
    Duration::from_millis(wait.as_micros().div_ceil(1000) as u64)
}

fn delete_users<'a>(users: impl IntoIterator<Item = &'a str>) -> Command {
    let args: Vec<&str> = ["ACL", "DELUSER"].into_iter().chain(users).collect();
    Command::from_args(&args)
}

impl Takeover {
    pub(super) fn new(settings: &RedisSettings, random: SmallRng) -> Takeover {
        let record = settings.lease_record;
        Takeover {
            login: settings.login(),
            configured: (settings.user.clone(), settings.password.clone()),
            demand: settings.fence_demand,
            lacks: Lacks::default(),
            connections: 0,
            cluster_mode: settings.cluster_mode,
            fence: settings.fence.clone(),
            mark: settings.mark.clone().map(ServerMark::new),
            adopts: settings.adopts,
            stands_by: settings.standby.is_some(),
            random,
            step: Step::Login,
            traits: StorageTraits::default(),
            identity: Identity::default(),
            // Names have whole milliseconds.
            record: LeaseRecord { wait: whole_ms(record.wait), ..record },
            whoami: Bytes::new(),
            rules: Vec::new(),
            others: OtherUsers::default(),
            shrinks_at: None,
            others_end: Time(0),
            has_governed: false,
            candidate: None,
            incarnation: None,
            unfenced: Vec::new(),
            displaced: false,
            watched: None,
            absent: 0,
        }
    }

    /// A new admin connection: everything is asked again.
    pub(super) fn restart(&mut self) {
        self.connections += 1;
        self.step = if self.login.is_some() { Step::Login } else { Step::Server };
    }

    /// Looks again whether the server is still the same; fences come after that.
    pub(super) fn recheck(&mut self) {
        if self.step == Step::Settled {
            self.step = Step::Server;
        }
    }

    /// Tells successors that they need not wait for leases of others, once none of them runs any more.
    pub(super) fn shrink(&mut self, now: Time) {
        if self.step == Step::Settled && self.shrinks_at.is_some_and(|at| now >= at) {
            self.step = Step::Shrink;
        }
    }

    /// This incarnation's user is gone: a new one is needed, unless another process has one.
    pub(super) fn renounce(&mut self) {
        self.displaced |= self.incarnation.take().is_some();
        self.recheck();
    }

    /// Whether another process is the shim, and this one stands by.
    pub(super) fn is_replaced(&self) -> bool {
        self.incarnation.is_none() && (self.displaced || self.stands_by) && !self.others.living.is_empty()
    }

    pub(super) fn stands_by(&self) -> bool {
        self.stands_by
    }

    /// The connection with this client id was lost and has to be fenced.
    pub(super) fn lost(&mut self, client: u64) {
        self.unfenced.push(client);
        self.recheck();
    }

    /// What is done without, for people; none if nothing is.
    pub(super) fn lacks(&self) -> Option<String> {
        self.lacks.told()
    }

    /// The incarnation, once it is the only one that can write and nothing lost can still happen.
    pub(super) fn settled(&self) -> Option<&Incarnation> {
        let is_settled = matches!(self.step, Step::Settled | Step::Shrink) && self.unfenced.is_empty();
        self.incarnation.as_ref().filter(|_| is_settled)
    }

    pub(super) fn incarnation(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref()
    }

    /// Whether the successor was not there when it was looked for last.
    pub(super) fn misses_successor(&self) -> bool {
        self.absent > 0
    }

    /// What to ask now, if anything.
    pub(super) fn command(&mut self, now: Time) -> Option<Command> {
        let fixed = |args: &[&str]| Some(Command::from_args(args));
        match self.step {
            Step::Settled => None,
            Step::Login => self.login.as_ref().map(Login::command),
            Step::Server => fixed(&["INFO", "server"]),
            Step::Replication => fixed(&["INFO", "replication"]),
            Step::Keyspace => fixed(&["INFO", "keyspace"]),
            Step::Mark => fixed(&MarkedPart::QUESTION),
            Step::Connections | Step::Strangers => fixed(&["CLIENT", "LIST"]),
            Step::WhoAmI => fixed(&["ACL", "WHOAMI"]),
            Step::Rules => fixed(&["ACL", "LIST"]),
            Step::Greeting => fixed(&["HELLO"]),
            Step::Clock => fixed(&["TIME"]),
            Step::TryKill => fixed(&["CLIENT", "KILL", "ID", "9223372036854775807"]),
            Step::Make => Some(self.make_user(now)),
            Step::Successor | Step::Look | Step::List => fixed(&["ACL", "USERS"]),
            // Deleting nobody still shows whether deleting is allowed.
            Step::TryDelete => Some(delete_users([format!("{}nobody", self.fence.prefix()).as_str()])),
            Step::Delete => {
                // There need not be any.
                let nobody = format!("{}nobody", self.fence.prefix());
                let others = self.others.all.iter().map(String::as_str);
                Some(delete_users(std::iter::once(nobody.as_str()).chain(others)))
            }
            Step::Shrink => {
                let own = self.incarnation.as_ref()?;
                Some(self.leave_record(own, &self.own_legacy(own), UserKind::Shrunk))
            }
            Step::Fence => {
                let client = self.unfenced.first()?.to_string();
                fixed(&["CLIENT", "KILL", "ID", &client])
            }
        }
    }

    /// The commands that take this incarnation's user away again. Its leases may run on, and the next one waits for them; `clean`:
    /// none of its own does.
    pub(super) fn farewell(&self, now: Time, clean: bool) -> Option<Vec<Command>> {
        let own = self.incarnation.as_ref().filter(|own| own.has_user)?;
        let delete = delete_users([own.user.as_str()]);
        if self.brings_keys() {
            return Some(vec![delete]);
        }
        let inherited = self.others_end.since(now);
        let legacy = match (self.shrinks_at, clean) {
            (_, true) => Legacy { wait: inherited, data: own.legacy.data.clone() },
            (Some(_), false) => own.legacy.clone(),
            (None, false) => self.own_legacy(own),
        };
        Some(vec![self.leave_record(own, &legacy, UserKind::Ended), delete])
    }

    /// Whether the server is another shim's, who grants what is there and says whose it is.
    fn brings_keys(&self) -> bool {
        self.fence.share == FenceShare::Arriving
    }

    /// Makes a user for its name: nobody can log in.
    fn leave_record(&self, own: &Incarnation, legacy: &Legacy, kind: UserKind) -> Command {
        let name = acl::user_name(&self.fence.prefix(), own.number, legacy, kind);
        Command::from_args(&["ACL", "SETUSER", &name, "reset"])
    }

    /// What successors have to know of the incarnation alone.
    fn own_legacy(&self, own: &Incarnation) -> Legacy {
        Legacy { wait: self.record.wait, data: Some(own.identity.tag()) }
    }

    fn make_user(&mut self, now: Time) -> Command {
        let number = self.draw_number();
        let password: [u64; 4] = self.random.random();
        let own = Legacy { wait: self.record.wait, data: Some(self.identity.tag()) };
        let legacy = match (&self.others.legacy, self.without_users(now)) {
            (Some(legacy), _) => own.and(legacy.clone()),
            (None, EarlierIncarnations::NONE) => own,
            (None, earlier) => {
                Legacy { wait: own.wait.max(whole_ms(self.record.limits.wait(earlier, None))), data: None }
            }
        };
        let password: String = password.iter().map(|part| format!("{part:016x}")).collect();
        let shown = format!(">{password}");
        let candidate = Incarnation {
            number,
            user: acl::user_name(&self.fence.prefix(), number, &legacy, UserKind::Living),
            legacy,
            password: Some(password),
            has_user: true,
            traits: self.traits,
            earlier: EarlierIncarnations::NONE,
            identity: self.identity.clone(),
        };
        let mut args: Vec<&[u8]> =
            vec![b"ACL", b"SETUSER", candidate.user.as_bytes(), b"reset", b"on", shown.as_bytes()];
        args.extend(self.rules.iter().map(Bytes::as_ref));
        let command = Command::from_args(&args);
        self.candidate = Some(candidate);
        command
    }

    /// Takes the reply to the last command.
    pub(super) fn reply(&mut self, now: Time, value: &Value) -> Result<Progress, Trouble> {
        if let Value::Error(text) = value {
            let error = String::from_utf8_lossy(text);
            if let Some(progress) = self.does_without(now, &error) {
                return Ok(progress);
            }
            if let Some(trouble) = self.trouble(&error) {
                return Err(trouble);
            }
        }
        self.answered(now, value)
    }

    fn answered(&mut self, now: Time, value: &Value) -> Result<Progress, Trouble> {
        let text =
            || value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let asked = self.asked();
        let odd = || Trouble::Broken(format!("{asked} was answered with something else"));
        self.step = match self.step {
            Step::Login => Step::Server,
            Step::Server => {
                self.server(now, &text())?.ok_or_else(odd)?;
                Step::Replication
            }
            Step::Replication => return self.replication(&text()),
            Step::Greeting | Step::Clock => return self.met(now, value)?.ok_or_else(odd),
            Step::Successor => {
                self.others = self.others_in(value, "").ok_or_else(odd)?;
                self.watch(now)
            }
            Step::Connections => return self.successor(&text()),
            Step::WhoAmI => {
                self.whoami = value.bytes().cloned().ok_or_else(odd)?;
                Step::Rules
            }
            Step::Rules => {
                self.rules = acl::rules(value, &self.whoami).ok_or_else(odd)?;
                Step::TryDelete
            }
            Step::TryDelete => Step::TryKill,
            Step::TryKill => self.after_permissions(),
            Step::Keyspace => {
                self.hear_keyspace(value.clone());
                Step::Mark
            }
            Step::Mark => return self.marked(value),
            Step::Look => {
                self.others = self.others_in(value, "").ok_or_else(odd)?;
                self.looked(now)
            }
            Step::Strangers => return self.strangers(&text()),
            Step::Make => Step::List,
            Step::List => {
                let own = self.candidate.as_ref().map_or("", |candidate| &candidate.user);
                let others = self.others_in(value, own).ok_or_else(odd)?;
                self.agree(now, others)
            }
            Step::Delete => {
                self.govern(now);
                Step::Settled
            }
            Step::Shrink => {
                self.shrinks_at = None;
                Step::Settled
            }
            Step::Fence => {
                self.unfenced.swap_remove(0);
                match (self.unfenced.is_empty(), &self.incarnation) {
                    (false, _) => Step::Fence,
                    (true, Some(_)) => Step::Settled,
                    (true, None) => Step::Server,
                }
            }
            Step::Settled => return Err(odd()),
        };
        Ok(Progress::Next)
    }

    /// Takes `INFO server`; nothing if it does not say which run this is.
    fn server(&mut self, now: Time, info: &str) -> Result<Option<()>, Trouble> {
        self.traits = server::traits(info, self.cluster_mode).map_err(Trouble::Refused)?;
        if let Some(mark) = &mut self.mark {
            mark.hear_clock(now, info);
        }
        let run_id = server::field(info, "run_id").map(str::to_owned);
        self.lacks.identity = run_id.is_none().then(|| "INFO server has no run_id".to_owned());
        let unknown = (self.demand == FenceDemand::WherePossible).then(|| self.unknown_run());
        Ok(run_id.or(unknown).map(|run_id| self.identity.run_id = run_id))
    }

    /// One that may be the shim is looked at more closely.
    fn watch(&mut self, now: Time) -> Step {
        if self.others.living.is_empty() {
            return Step::WhoAmI;
        }
        self.watched = self.others.legacy.as_ref().map(|legacy| (legacy.wait, now));
        Step::Connections
    }

    fn others_in(&self, users: &Value, own: &str) -> Option<OtherUsers> {
        OtherUsers::read(users, &self.fence, own, self.record.limits.wait_max)
    }

    /// What is known of earlier incarnations if none of their users is there.
    fn without_users(&self, now: Time) -> EarlierIncarnations {
        let is_first = self.is_first_here();
        let on_record = match (&self.mark, is_first) {
            (Some(mark), _) => mark.earlier(now, is_first),
            (None, true) => EarlierIncarnations::NONE,
            (None, false) => EarlierIncarnations::unrecorded(Unrecorded::Unknown),
        };
        match self.watched {
            // One that has stood by saw who was there before the users went.
            Some((recorded, at)) if on_record.unrecorded == Unrecorded::Unknown => EarlierIncarnations {
                recorded,
                ..EarlierIncarnations::unrecorded(Unrecorded::Within(now.since(at)))
            },
            _ => on_record,
        }
    }

    /// Whether it takes the server over whatever is there: once, because those who do it in turn would never end.
    fn is_adopting(&self) -> bool {
        self.adopts && !self.has_governed
    }

    fn marked(&mut self, list: &Value) -> Result<Progress, Trouble> {
        let adopts = self.is_adopting();
        if let Some(mark) = &mut self.mark
            && let Err(difference) = mark.found(list, adopts)
        {
            self.step = Step::Server;
            return Err(Trouble::Refused(difference));
        }
        self.step = Step::Look;
        Ok(Progress::Next)
    }

    /// One server has one DistCache. Others that are not connected do not come back as what they were: their users go.
    fn strangers(&mut self, clients: &str) -> Result<Progress, Trouble> {
        if let Some(user) = acl::connected(clients, &self.others.strangers).filter(|_| !self.is_adopting()) {
            self.step = Step::Server;
            return Err(Trouble::Refused(format!(
                "another DistCache serves the server, or another shim of this one (as user {user}): one server has one, or their \
                 caches would not see each other's writes. Stop that one, or give this one a server of its own"
            )));
        }
        self.step = Step::Make;
        Ok(Progress::Next)
    }

    /// What stands at the server of this incarnation's part of the keys, if it is time to write it.
    pub(super) fn mark_command(&mut self, now: Time) -> Option<Command> {
        let own = self.incarnation.as_ref().filter(|_| !self.brings_keys())?;
        let wait = if self.shrinks_at.is_some() { own.legacy.wait } else { self.record.wait };
        self.mark.as_mut()?.command(now, own.number, wait)
    }

    /// The others go only if the candidate's name says what theirs say: whoever takes over next has to know it. Another one may
    /// have come since it was made.
    fn agree(&mut self, now: Time, mut others: OtherUsers) -> Step {
        let without_users = self.without_users(now);
        // Nobody who has gone meanwhile is forgotten.
        let before = self.others.legacy.take();
        others.legacy = before.into_iter().chain(others.legacy).reduce(Legacy::and);
        self.others = others;
        let Some(candidate) = &mut self.candidate else { return Step::Make };
        let Some(others) = &self.others.legacy else {
            candidate.earlier = without_users;
            return Step::Delete;
        };
        if candidate.legacy.clone().and(others.clone()) != candidate.legacy {
            return Step::Make;
        }
        let same_data = others.data.as_ref() == Some(&candidate.identity.tag());
        candidate.earlier = EarlierIncarnations { same_data, ..EarlierIncarnations::recorded(others.wait) };
        Step::Delete
    }

    /// The candidate is alone now.
    fn govern(&mut self, now: Time) {
        self.incarnation = self.candidate.take();
        let earlier = self.incarnation.as_ref().map(|own| self.record.limits.wait(own.earlier, None));
        self.others_end = now.after(earlier.unwrap_or_default());
        // Who brings keys to another shim's server leaves nothing there.
        let inherits = |own: &&Incarnation| own.legacy != self.own_legacy(own) && !self.brings_keys();
        self.shrinks_at = self.incarnation.as_ref().filter(inherits).map(|own| now.after(own.legacy.wait));
        (self.displaced, self.has_governed) = (false, true);
        // Their user is gone, and with it their connections; or their server is.
        self.unfenced.clear();
    }

    fn replication(&mut self, info: &str) -> Result<Progress, Trouble> {
        let id = server::field(info, "master_replid").unwrap_or_default();
        id.clone_into(&mut self.identity.replication_id);
        if server::field(info, "role") != Some("master") {
            return Err(self.replica());
        }
        Ok(self.identified())
    }

    /// While it follows another server, that one's writes bypass DistCache.
    fn replica(&mut self) -> Trouble {
        self.step = Step::Server;
        self.incarnation = None;
        Trouble::Unfit("the server is a replica: give its master as `storage`".to_owned())
    }

    /// It is known which storage state this is.
    fn identified(&mut self) -> Progress {
        let same = self.incarnation.as_ref().is_some_and(|incarnation| incarnation.identity == self.identity);
        if same {
            self.step = self.fence_or(Step::Settled);
            return Progress::Next;
        }
        let looks = self.displaced || self.stands_by;
        self.step = if looks { Step::Successor } else { Step::WhoAmI };
        self.lacks.forget_fences();
        if self.incarnation.take().is_some() { Progress::Void } else { Progress::Next }
    }

    /// Who is the shim stays it: its place is free only when it is gone without having taken its user away, or hangs. One that has
    /// deleted this one's user came later, and is it, too.
    fn successor(&mut self, clients: &str) -> Result<Progress, Trouble> {
        let silence = acl::silence(clients, &self.others.living);
        let lives = silence.is_some_and(|silence| !self.stands_by || silence < SILENCE_MIN);
        self.absent = if lives { 0 } else { self.absent.saturating_add(1) };
        if self.absent >= ABSENT_MIN {
            self.absent = 0;
            self.step = Step::WhoAmI;
            return Ok(Progress::Next);
        }
        self.step = Step::Server;
        Err(Trouble::Replaced(match self.stands_by {
            true => "another process of this shim serves the server, and this one stands by".to_owned(),
            false => {
                "another process of this shim has taken the server over, and this one stands by; stop one of the two"
                    .to_owned()
            }
        }))
    }
}

#[cfg(test)]
mod tests;
