//! The dialogue on the admin connection that makes this incarnation the only one that can write, and keeps it so.
//! Not the connection itself.

use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use wire::resp::{Command, Value};

use super::acl::{self, Legacy, OtherUsers, UserKind};
use super::server::{self, Identity};
use super::settings::LeaseRecord;
use crate::coherence::lease::EarlierIncarnations;
use crate::storage::StorageTraits;
use crate::storage::login::Login;
use crate::time::Time;

/// One life of this shim before one storage state.
#[derive(Clone, Debug)]
pub(super) struct Incarnation {
    pub(super) number: u64,
    pub(super) user: String,
    pub(super) password: String,
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
    /// Only after this incarnation's user has gone: whether somebody else has come, and still has connections.
    Successor,
    Connections,
    WhoAmI,
    Rules,
    /// Fences would fail without this permission, so it is tried before it is needed.
    TryKill,
    /// Own user first, list second: of two shims that do this at once, at least the later one sees the other.
    /// What the name of this incarnation's user has to say.
    Look,
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
    /// The server has to be one of a Redis Cluster, or must not be.
    cluster_mode: bool,
    prefix: String,
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
    /// This process has had an incarnation.
    has_governed: bool,
    /// Made, but not yet alone.
    candidate: Option<Incarnation>,
    incarnation: Option<Incarnation>,
    /// Client ids of lost connections that may still have commands in the server's buffers.
    unfenced: Vec<u64>,
    /// This process has had an incarnation, and its user was taken away.
    displaced: bool,
    /// How often in a row nobody was found connected as the successor.
    absent: u8,
}

/// A successor that has no connection for once may be making one.
const ABSENT_MIN: u8 = 2;

fn delete_users<'a>(users: impl IntoIterator<Item = &'a str>) -> Command {
    let args: Vec<&str> = ["ACL", "DELUSER"].into_iter().chain(users).collect();
    Command::from_args(&args)
}

impl Takeover {
    pub(super) fn new(
        login: Option<Login>,
        cluster_mode: bool,
        prefix: String,
        record: LeaseRecord,
        random: SmallRng,
    ) -> Takeover {
        Takeover {
            login,
            cluster_mode,
            prefix,
            random,
            step: Step::Login,
            traits: StorageTraits::default(),
            identity: Identity::default(),
            // Names have whole milliseconds.
            record: LeaseRecord {
                wait: Duration::from_millis(record.wait.as_micros().div_ceil(1000) as u64),
                ..record
            },
            whoami: Bytes::new(),
            rules: Vec::new(),
            others: OtherUsers::default(),
            shrinks_at: None,
            has_governed: false,
            candidate: None,
            incarnation: None,
            unfenced: Vec::new(),
            displaced: false,
            absent: 0,
        }
    }

    /// A new admin connection: everything is asked again.
    pub(super) fn restart(&mut self) {
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

    /// Whether another process of the same shim has taken the server over and this one stands by.
    pub(super) fn is_replaced(&self) -> bool {
        self.displaced && !self.others.living.is_empty()
    }

    /// The connection with this client id was lost and has to be fenced.
    pub(super) fn lost(&mut self, client: u64) {
        self.unfenced.push(client);
        self.recheck();
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
    pub(super) fn command(&mut self) -> Option<Command> {
        let fixed = |args: &[&str]| Some(Command::from_args(args));
        match self.step {
            Step::Settled => None,
            Step::Login => self.login.as_ref().map(Login::command),
            Step::Server => fixed(&["INFO", "server"]),
            Step::Replication => fixed(&["INFO", "replication"]),
            Step::Successor => fixed(&["ACL", "USERS"]),
            Step::Connections => fixed(&["CLIENT", "LIST"]),
            Step::WhoAmI => fixed(&["ACL", "WHOAMI"]),
            Step::Rules => fixed(&["ACL", "LIST"]),
            Step::TryKill => fixed(&["CLIENT", "KILL", "ID", "9223372036854775807"]),
            Step::Make => Some(self.make_user()),
            Step::Look | Step::List => fixed(&["ACL", "USERS"]),
            Step::Delete => {
                // Deleting nobody still shows whether deleting is allowed.
                let nobody = format!("{}nobody", self.prefix);
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

    /// The commands that take this incarnation's user away again. Its leases may run on, and the next one waits for them.
    pub(super) fn farewell(&self) -> Option<[Command; 2]> {
        let own = self.incarnation.as_ref()?;
        let legacy = if self.shrinks_at.is_some() { own.legacy.clone() } else { self.own_legacy(own) };
        Some([self.leave_record(own, &legacy, UserKind::Ended), delete_users([own.user.as_str()])])
    }

    /// Makes a user for its name: nobody can log in.
    fn leave_record(&self, own: &Incarnation, legacy: &Legacy, kind: UserKind) -> Command {
        let name = acl::user_name(&self.prefix, own.number, legacy, kind);
        Command::from_args(&["ACL", "SETUSER", &name, "reset"])
    }

    /// What successors have to know of the incarnation alone.
    fn own_legacy(&self, own: &Incarnation) -> Legacy {
        Legacy { wait: self.record.wait, data: Some(own.identity.tag()) }
    }

    fn make_user(&mut self) -> Command {
        let number: u64 = self.random.random_range(1..=u64::MAX);
        let password: [u64; 4] = self.random.random();
        let own = Legacy { wait: self.record.wait, data: Some(self.identity.tag()) };
        let legacy = match &self.others.legacy {
            Some(legacy) => own.and(legacy.clone()),
            None if self.is_first() => own,
            None => Legacy { wait: self.record.wait_max, data: None },
        };
        let candidate = Incarnation {
            number,
            user: acl::user_name(&self.prefix, number, &legacy, UserKind::Living),
            legacy,
            password: password.iter().map(|part| format!("{part:016x}")).collect(),
            traits: self.traits,
            earlier: EarlierIncarnations::NONE,
            identity: self.identity.clone(),
        };
        let password = format!(">{}", candidate.password);
        let mut args: Vec<&[u8]> =
            vec![b"ACL", b"SETUSER", candidate.user.as_bytes(), b"reset", b"on", password.as_bytes()];
        args.extend(self.rules.iter().map(Bytes::as_ref));
        let command = Command::from_args(&args);
        self.candidate = Some(candidate);
        command
    }

    /// Takes the reply to the last command.
    pub(super) fn reply(&mut self, now: Time, value: &Value) -> Result<Progress, Trouble> {
        if let Value::Error(text) = value {
            return Err(self.trouble(&String::from_utf8_lossy(text)));
        }
        let text =
            || value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
        let asked = self.asked();
        let odd = || Trouble::Broken(format!("{asked} was answered with something else"));
        self.step = match self.step {
            Step::Login => Step::Server,
            Step::Server => {
                let info = text();
                self.traits = server::traits(&info, self.cluster_mode).map_err(Trouble::Refused)?;
                self.identity.run_id = server::field(&info, "run_id").ok_or_else(odd)?.to_owned();
                Step::Replication
            }
            Step::Replication => return self.replication(&text()),
            Step::Successor => {
                self.others = self.others_in(value, "").ok_or_else(odd)?;
                if self.others.living.is_empty() { Step::WhoAmI } else { Step::Connections }
            }
            Step::Connections => return self.successor(&text()),
            Step::WhoAmI => {
                self.whoami = value.bytes().cloned().ok_or_else(odd)?;
                Step::Rules
            }
            Step::Rules => {
                self.rules = acl::rules(value, &self.whoami).ok_or_else(odd)?;
                Step::TryKill
            }
            Step::TryKill => Step::Look,
            Step::Look => {
                self.others = self.others_in(value, "").ok_or_else(odd)?;
                Step::Make
            }
            Step::Make => Step::List,
            Step::List => {
                let own = self.candidate.as_ref().map_or("", |candidate| &candidate.user);
                let mut others = self.others_in(value, own).ok_or_else(odd)?;
                // Nobody who has gone meanwhile is forgotten.
                let before = self.others.legacy.take();
                others.legacy = before.into_iter().chain(others.legacy).reduce(Legacy::and);
                self.others = others;
                self.agree()
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

    fn others_in(&self, users: &Value, own: &str) -> Option<OtherUsers> {
        OtherUsers::read(users, &self.prefix, own, self.record.wait_max)
    }

    /// Nobody was there before.
    fn is_first(&self) -> bool {
        self.record.is_first && !self.has_governed
    }

    /// The others go only if the candidate's name says what theirs say: whoever takes over next has to know it. Another one may
    /// have come since it was made.
    fn agree(&mut self) -> Step {
        let is_first = self.is_first();
        let Some(candidate) = &mut self.candidate else { return Step::Make };
        let Some(others) = &self.others.legacy else {
            candidate.earlier =
                EarlierIncarnations { recorded: Duration::ZERO, is_complete: is_first, same_data: is_first };
            return Step::Delete;
        };
        if candidate.legacy.clone().and(others.clone()) != candidate.legacy {
            return Step::Make;
        }
        let same_data = others.data.as_ref() == Some(&candidate.identity.tag());
        candidate.earlier = EarlierIncarnations { recorded: others.wait, is_complete: true, same_data };
        Step::Delete
    }

    /// The candidate is alone now.
    fn govern(&mut self, now: Time) {
        self.incarnation = self.candidate.take();
        let inherits = |own: &&Incarnation| own.legacy != self.own_legacy(own);
        self.shrinks_at = self.incarnation.as_ref().filter(inherits).map(|own| now.after(own.legacy.wait));
        (self.displaced, self.has_governed) = (false, true);
        // Their user is gone, and with it their connections; or their server is.
        self.unfenced.clear();
    }

    fn replication(&mut self, info: &str) -> Result<Progress, Trouble> {
        let id = server::field(info, "master_replid").unwrap_or_default();
        id.clone_into(&mut self.identity.replication_id);
        // While it follows another server, that one's writes bypass DistCache.
        if server::field(info, "role") != Some("master") {
            self.step = Step::Server;
            self.incarnation = None;
            return Err(Trouble::Unfit("the server is a replica: give its master as `storage`".to_owned()));
        }
        let same = self.incarnation.as_ref().is_some_and(|incarnation| incarnation.identity == self.identity);
        if same {
            self.step = if self.unfenced.is_empty() { Step::Settled } else { Step::Fence };
            return Ok(Progress::Next);
        }
        self.step = if self.displaced { Step::Successor } else { Step::WhoAmI };
        Ok(if self.incarnation.take().is_some() { Progress::Void } else { Progress::Next })
    }

    /// The newer process wins: it has deleted this one's user, so it came later. Only when it is gone, without having
    /// taken its user away, is its place free.
    fn successor(&mut self, clients: &str) -> Result<Progress, Trouble> {
        let connected = acl::connected(clients, &self.others.living);
        self.absent = if connected { 0 } else { self.absent.saturating_add(1) };
        if self.absent >= ABSENT_MIN {
            self.absent = 0;
            self.step = Step::WhoAmI;
            return Ok(Progress::Next);
        }
        self.step = Step::Server;
        Err(Trouble::Replaced(
            "another process of this shim has taken the server over, and this one stands by; stop one of the two"
                .to_owned(),
        ))
    }

    fn asked(&self) -> &'static str {
        match self.step {
            Step::Login => "AUTH",
            Step::Server => "INFO server",
            Step::Replication => "INFO replication",
            Step::WhoAmI => "ACL WHOAMI",
            Step::Rules => "ACL LIST",
            Step::TryKill | Step::Fence => "CLIENT KILL",
            Step::Make | Step::Shrink => "ACL SETUSER",
            Step::Look | Step::List | Step::Successor => "ACL USERS",
            Step::Connections => "CLIENT LIST",
            Step::Delete => "ACL DELUSER",
            Step::Settled => "nothing",
        }
    }

    fn trouble(&self, error: &str) -> Trouble {
        let asked = self.asked();
        let code = error.split(' ').next().unwrap_or_default();
        match code {
            "BUSY" | "LOADING" | "MASTERDOWN" => Trouble::Wait(error.to_owned()),
            _ if error.contains("max number of clients") => Trouble::Broken(error.to_owned()),
            "NOAUTH" => Trouble::Refused(format!(
                "{error} The URL in `storage` has to hold a password: redis://USER:PASSWORD@HOST:PORT"
            )),
            _ if self.step == Step::Login => Trouble::Refused(format!(
                "{asked}: {error} Check user and password in `storage` (redis://USER:PASSWORD@HOST:PORT)"
            )),
            "NOPERM" => Trouble::Refused(format!(
                "{asked}: {error}: give the storage user +acl +info +client, without which \
                 earlier shims and lost connections cannot be fenced off"
            )),
            "DENIED" => Trouble::Refused(error.to_owned()),
            _ => Trouble::Broken(format!("{asked}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use bytes::Bytes;
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};
    use wire::resp::{Command, Value};

    use super::{Incarnation, LeaseRecord, Takeover, Trouble};
    use crate::time::Time;

    /// As much of a server as a takeover asks for.
    #[derive(Default)]
    struct Server {
        users: BTreeSet<Bytes>,
        /// Users with connections.
        connected: Vec<String>,
        /// Its run.
        run: &'static str,
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    impl Server {
        fn execute(&mut self, command: &Command) -> Value {
            match (command.arg(0), command.arg(1)) {
                (b"INFO", b"server") => bulk(&format!("redis_version:7.0.15\r\nrun_id:run-{}\r\n", self.run)),
                (b"INFO", b"replication") => bulk("role:master\r\nmaster_replid:b\r\n"),
                (b"ACL", b"WHOAMI") => bulk("default"),
                (b"ACL", b"LIST") => Value::Array(vec![bulk("user default on nopass ~* &* +@all")]),
                (b"ACL", b"USERS") => Value::Array(self.users.iter().cloned().map(Value::Bulk).collect()),
                (b"ACL", b"SETUSER") => {
                    self.users.insert(command.arg_bytes(2));
                    Value::Simple(Bytes::from_static(b"OK"))
                }
                (b"ACL", b"DELUSER") => {
                    let removed = (2..command.len()).filter(|&index| self.users.remove(command.arg(index)));
                    Value::Integer(removed.count() as i64)
                }
                (b"CLIENT", b"LIST") => {
                    let lines = self.connected.iter().map(|user| format!("id=1 user={user} cmd=ping\n"));
                    bulk(&lines.collect::<String>())
                }
                _ => Value::Integer(0),
            }
        }
    }

    fn takeover(seed: u64) -> Takeover {
        waited_for(seed, 1000)
    }

    /// One whose leases are waited for so many milliseconds.
    fn waited_for(seed: u64, wait: u64) -> Takeover {
        let ms = Duration::from_millis;
        let mut takeover = Takeover::new(
            None,
            false,
            super::acl::user_prefix("test", "shim-0"),
            LeaseRecord { wait: ms(wait), wait_max: ms(60_600), is_first: false },
            SmallRng::seed_from_u64(seed),
        );
        takeover.restart();
        takeover
    }

    #[test]
    fn of_shims_that_take_over_at_once_never_two_can_write() {
        let (mut alone, mut stood_by) = (0, 0);
        for case in cases::seeds(300) {
            let seed = case.seed;
            let mut random = SmallRng::seed_from_u64(seed);
            let mut server = Server::default();
            let mut waits = [20, 500, 5051];
            waits.rotate_left(random.random_range(0..3));
            let mut shims = [1, 2, 3].map(|shim| waited_for(seed.rotate_left(shim as u32), waits[shim - 1]));
            shims[0].record.is_first = true;
            assert!(dialogue(&mut shims[0], &mut server));
            let first = shims[0].settled().map(|own| (own.number, waits[0]));
            let mut granted = BTreeMap::from_iter(first);
            for _ in 0..100 {
                let settled = shims.iter().filter_map(Takeover::settled).map(|found| found.user.clone());
                server.connected = settled.filter(|user| server.users.contains(user.as_bytes())).collect();
                let index = random.random_range(0..3);
                let shim = &mut shims[index];
                let user = shim.settled().map(|incarnation| incarnation.user.clone());
                match (shim.command(), user) {
                    (Some(command), _) => {
                        let reply = server.execute(&command);
                        match shim.reply(Time(0), &reply) {
                            Ok(_) => {
                                // Whose user has gone meanwhile is let in nowhere, and grants nothing.
                                let alive = |own: &&Incarnation| server.users.contains(own.user.as_bytes());
                                if let Some(own) = shim.settled().filter(alive) {
                                    let others = granted.iter().filter(|(number, _)| **number != own.number);
                                    let longest = others.map(|(_, wait)| *wait).max().unwrap_or(0);
                                    let told = own.earlier.recorded.as_millis() as u64;
                                    // Two may have deleted each other; then nobody knows.
                                    let knows = told >= longest || !own.earlier.is_complete;
                                    assert!(knows || granted.contains_key(&own.number), "seed {seed}");
                                    granted.insert(own.number, waits[index]);
                                }
                            }
                            Err(Trouble::Replaced(_)) => stood_by += 1,
                            Err(other) => panic!("a server without troubles: {other:?}"),
                        }
                    }
                    // Its connections are refused, so it starts again, though not at once.
                    (None, Some(user))
                        if !server.users.contains(user.as_bytes()) && random.random_bool(0.02) =>
                    {
                        shim.renounce();
                    }
                    _ => {}
                }
                let alive = shims.iter().filter_map(Takeover::settled);
                let alive = alive.filter(|found| server.users.contains(found.user.as_bytes())).count();
                assert!(alive <= 1, "seed {seed}");
                alone += alive;
            }
        }
        let enough = alone > 3000 && stood_by > 300;
        assert!(cases::alone() || enough, "the test must reach what it tests: {alone}, {stood_by}");
    }

    /// Asks until it has settled, or stands by.
    fn dialogue(shim: &mut Takeover, server: &mut Server) -> bool {
        while let Some(command) = shim.command() {
            let reply = server.execute(&command);
            if let Err(trouble) = shim.reply(Time(0), &reply) {
                assert!(matches!(trouble, Trouble::Replaced(_)), "{trouble:?}");
                return false;
            }
        }
        server.connected = shim.settled().map(|found| found.user.clone()).into_iter().collect();
        true
    }

    #[test]
    fn the_older_of_two_processes_stands_by_until_the_newer_is_gone() {
        let (mut server, mut older, mut newer) = (Server::default(), takeover(1), takeover(2));
        assert!(dialogue(&mut older, &mut server) && dialogue(&mut newer, &mut server));
        older.renounce();
        for _ in 0..5 {
            assert!(!dialogue(&mut older, &mut server) && older.is_replaced());
        }
        // It died and left its user behind; once may be chance.
        server.connected.clear();
        assert!(!dialogue(&mut older, &mut server));
        assert!(dialogue(&mut older, &mut server) && !older.is_replaced());
        assert_eq!(server.users.len(), 1);
    }

    /// What the shim is told of earlier leases, in milliseconds, whether of all, and whether they are of the same data.
    fn earlier(shim: &Takeover) -> (u128, bool, bool) {
        let earlier = shim.settled().expect("nothing is in the way").earlier;
        (earlier.recorded.as_millis(), earlier.is_complete, earlier.same_data)
    }

    #[test]
    fn each_successor_is_told_of_all_leases_that_may_run() {
        let mut server = Server::default();
        let mut first = waited_for(1, 5051);
        assert!(dialogue(&mut first, &mut server));
        assert_eq!(earlier(&first), (0, false, false), "nobody knows what was before");
        let mut second = waited_for(2, 203);
        assert!(dialogue(&mut second, &mut server));
        assert_eq!(earlier(&second), (60_600, true, false), "the first did not know");
        second.shrink(Time(60_599_999));
        assert!(second.command().is_none());
        let users = server.users.clone();
        let mut between = waited_for(9, 20);
        assert!(dialogue(&mut between, &mut server));
        assert_eq!(earlier(&between), (60_600, true, false), "the second did not wait for long enough");
        server.users = users;
        second.shrink(Time(60_600_000));
        assert!(dialogue(&mut second, &mut server) && server.users.len() == 2);
        // It leaves in order, and its leases run on.
        for command in second.farewell().expect("it governs") {
            server.execute(&command);
        }
        let mut third = waited_for(3, 20);
        assert!(dialogue(&mut third, &mut server));
        assert_eq!((earlier(&third), server.users.len()), ((203, true, true), 1));
        let mut fourth = waited_for(4, 500);
        assert!(dialogue(&mut fourth, &mut server));
        assert_eq!(earlier(&fourth), (203, true, true), "the third did not wait for long enough");
        // Another run of the server, whose users were saved.
        server.run = "b";
        let mut fifth = waited_for(5, 20);
        assert!(dialogue(&mut fifth, &mut server));
        assert_eq!(earlier(&fifth), (500, true, false));
        let mut sixth = waited_for(6, 20);
        assert!(dialogue(&mut sixth, &mut server));
        assert_eq!(earlier(&sixth), (500, true, false), "copies of before the restart may still be there");
        sixth.shrink(Time(500_000));
        assert!(dialogue(&mut sixth, &mut server));
        let mut seventh = waited_for(7, 20);
        assert!(dialogue(&mut seventh, &mut server));
        assert_eq!(earlier(&seventh), (20, true, true));
    }

    #[test]
    fn who_comes_between_a_look_and_a_name_is_not_forgotten() {
        let (mut server, mut first) = (Server::default(), waited_for(1, 20));
        first.record.is_first = true;
        assert!(dialogue(&mut first, &mut server));
        let mut slow = waited_for(2, 20);
        while slow.step != super::Step::Make {
            let reply = server.execute(&slow.command().expect("it has not looked yet"));
            slow.reply(Time(0), &reply).expect("a server without troubles");
        }
        let mut between = waited_for(3, 5051);
        assert!(dialogue(&mut between, &mut server) && dialogue(&mut slow, &mut server));
        assert_eq!(earlier(&slow), (5051, true, true));
        let mut last = waited_for(4, 20);
        assert!(dialogue(&mut last, &mut server));
        assert_eq!(earlier(&last), (5051, true, true), "leases of the one between may run on");
    }

    #[test]
    fn the_first_one_of_all_waits_for_nobody_and_only_once() {
        let (mut server, mut shim) = (Server::default(), takeover(1));
        shim.record.is_first = true;
        assert!(dialogue(&mut shim, &mut server));
        assert_eq!((earlier(&shim), server.users.len()), ((0, true, true), 1));
        server.users.clear();
        shim.renounce();
        assert!(dialogue(&mut shim, &mut server));
        assert_eq!(earlier(&shim), (0, false, false), "somebody may have come between");
    }

    #[test]
    fn a_user_that_nobody_has_replaced_is_made_again_at_once() {
        let (mut server, mut shim) = (Server::default(), takeover(1));
        assert!(dialogue(&mut shim, &mut server));
        let number = shim.settled().expect("nothing is in the way").number;
        server.users.clear();
        shim.renounce();
        assert!(dialogue(&mut shim, &mut server));
        assert_ne!(shim.settled().expect("nothing is in the way").number, number);
    }

    #[test]
    fn a_lost_connection_is_fenced_before_the_incarnation_is_settled_again() {
        let (mut server, mut shim) = (Server::default(), takeover(1));
        let run = |shim: &mut Takeover, server: &mut Server| {
            let mut asked = Vec::new();
            while let Some(command) = shim.command() {
                asked.push(format!("{command:?}"));
                let reply = server.execute(&command);
                shim.reply(Time(0), &reply).expect("a server without troubles");
            }
            asked
        };
        run(&mut shim, &mut server);
        let number = shim.settled().expect("nothing is in the way").number;
        shim.lost(7);
        shim.lost(8);
        assert!(shim.settled().is_none());
        assert_eq!(
            run(&mut shim, &mut server),
            [
                "Command(INFO server)",
                "Command(INFO replication)",
                "Command(CLIENT KILL ID 7)",
                "Command(CLIENT KILL ID 8)"
            ]
        );
        assert_eq!(shim.settled().expect("it is fenced").number, number);
    }

    #[test]
    fn a_busy_server_is_asked_the_same_again() {
        let mut shim = takeover(1);
        let first = shim.command();
        let busy = Value::Error(Bytes::from_static(b"BUSY Redis is busy running a script."));
        assert!(matches!(shim.reply(Time(0), &busy), Err(Trouble::Wait(_))));
        assert_eq!(shim.command(), first);
    }
}
