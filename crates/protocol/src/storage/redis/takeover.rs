//! The dialogue on the admin connection that makes this incarnation the only one that can write, and keeps it so.
//! Not the connection itself.

use bytes::Bytes;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use wire::resp::{Command, Value};

use super::acl;
use super::server::{self, Identity};
use crate::storage::StorageTraits;
use crate::storage::login::Login;

/// One life of this shim before one storage state.
#[derive(Clone, Debug)]
pub(super) struct Incarnation {
    pub(super) number: u64,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) traits: StorageTraits,
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
    Make,
    List,
    Delete,
    Fence,
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
    whoami: Bytes,
    rules: Vec<Bytes>,
    others: Vec<Bytes>,
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

impl Takeover {
    pub(super) fn new(
        login: Option<Login>,
        cluster_mode: bool,
        prefix: String,
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
            whoami: Bytes::new(),
            rules: Vec::new(),
            others: Vec::new(),
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

    /// This incarnation's user is gone: a new one is needed, unless another process has one.
    pub(super) fn renounce(&mut self) {
        self.displaced |= self.incarnation.take().is_some();
        self.recheck();
    }

    /// Whether another process of the same shim has taken the server over and this one stands by.
    pub(super) fn is_replaced(&self) -> bool {
        self.displaced && !self.others.is_empty()
    }

    /// The connection with this client id was lost and has to be fenced.
    pub(super) fn lost(&mut self, client: u64) {
        self.unfenced.push(client);
        self.recheck();
    }

    /// The incarnation, once it is the only one that can write and nothing lost can still happen.
    pub(super) fn settled(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref().filter(|_| self.step == Step::Settled && self.unfenced.is_empty())
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
            Step::List => fixed(&["ACL", "USERS"]),
            Step::Delete => {
                // Deleting nobody still shows whether deleting is allowed.
                let nobody = format!("{}nobody", self.prefix).into_bytes();
                let mut args: Vec<&[u8]> = vec![b"ACL", b"DELUSER", &nobody];
                args.extend(self.others.iter().map(Bytes::as_ref));
                Some(Command::from_args(&args))
            }
            Step::Fence => {
                let client = self.unfenced.first()?.to_string();
                fixed(&["CLIENT", "KILL", "ID", &client])
            }
        }
    }

    /// The command that takes this incarnation's user away again.
    pub(super) fn farewell(&self) -> Option<Command> {
        let incarnation = self.incarnation.as_ref()?;
        Some(Command::from_args(&["ACL", "DELUSER", &incarnation.user]))
    }

    fn make_user(&mut self) -> Command {
        let number: u64 = self.random.random_range(1..=u64::MAX);
        let password: [u64; 4] = self.random.random();
        let candidate = Incarnation {
            number,
            user: format!("{}{number:016x}", self.prefix),
            password: password.iter().map(|part| format!("{part:016x}")).collect(),
            traits: self.traits,
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
    pub(super) fn reply(&mut self, value: &Value) -> Result<Progress, Trouble> {
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
                self.others = acl::others(value, &self.prefix, "").ok_or_else(odd)?;
                if self.others.is_empty() { Step::WhoAmI } else { Step::Connections }
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
            Step::TryKill => Step::Make,
            Step::Make => Step::List,
            Step::List => {
                let own = self.candidate.as_ref().map_or("", |candidate| &candidate.user);
                self.others = acl::others(value, &self.prefix, own).ok_or_else(odd)?;
                Step::Delete
            }
            Step::Delete => {
                self.incarnation = self.candidate.take();
                self.displaced = false;
                // Their user is gone, and with it their connections; or their server is.
                self.unfenced.clear();
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
        let connected = acl::connected(clients, &self.others);
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
            Step::Make => "ACL SETUSER",
            Step::List | Step::Successor => "ACL USERS",
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
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};
    use wire::resp::{Command, Value};

    use super::{Takeover, Trouble};

    /// As much of a server as a takeover asks for.
    #[derive(Default)]
    struct Server {
        users: BTreeSet<Bytes>,
        /// Users with connections.
        connected: Vec<String>,
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    impl Server {
        fn execute(&mut self, command: &Command) -> Value {
            match (command.arg(0), command.arg(1)) {
                (b"INFO", b"server") => bulk("redis_version:7.0.15\r\nrun_id:a\r\n"),
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
        let mut takeover = Takeover::new(
            None,
            false,
            super::acl::user_prefix("test", "shim-0"),
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
            let mut shims = [1, 2, 3].map(|shim| takeover(seed.rotate_left(shim)));
            for _ in 0..100 {
                let settled = shims.iter().filter_map(Takeover::settled).map(|found| found.user.clone());
                server.connected = settled.filter(|user| server.users.contains(user.as_bytes())).collect();
                let shim = &mut shims[random.random_range(0..3)];
                let user = shim.settled().map(|incarnation| incarnation.user.clone());
                match (shim.command(), user) {
                    (Some(command), _) => {
                        let reply = server.execute(&command);
                        match shim.reply(&reply) {
                            Ok(_) => {}
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
            if let Err(trouble) = shim.reply(&reply) {
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
                shim.reply(&reply).expect("a server without troubles");
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
        assert!(matches!(shim.reply(&busy), Err(Trouble::Wait(_))));
        assert_eq!(shim.command(), first);
    }
}
