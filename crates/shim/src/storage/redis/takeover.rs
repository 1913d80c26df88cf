//! The dialogue on the admin connection that makes this incarnation the only one that can write, and keeps it so.
//! Not the connection itself.

use bytes::Bytes;
use protocol::storage::StorageTraits;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use wire::resp::{Command, Value};

use super::acl;
use super::server::{self, Identity};

/// One life of this shim before one storage state.
#[derive(Clone, Debug)]
pub(super) struct Incarnation {
    pub(super) number: u64,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) traits: StorageTraits,
    identity: Identity,
}

#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Login,
    Server,
    Replication,
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
}

impl Takeover {
    pub(super) fn new(login: Option<Login>, cluster: &str, shim: &str, random: SmallRng) -> Takeover {
        Takeover {
            login,
            prefix: acl::user_prefix(cluster, shim),
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

    /// This incarnation's user is gone: a new one is needed.
    pub(super) fn renounce(&mut self) {
        self.incarnation = None;
        self.recheck();
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

    /// What to ask now, if anything.
    pub(super) fn command(&mut self) -> Option<Command> {
        let fixed = |args: &[&str]| Some(Command::from_args(args));
        match self.step {
            Step::Settled => None,
            Step::Login => self.login.as_ref().map(|login| match &login.user {
                Some(user) => Command::from_args(&["AUTH", user, &login.password]),
                None => Command::from_args(&["AUTH", &login.password]),
            }),
            Step::Server => fixed(&["INFO", "server"]),
            Step::Replication => fixed(&["INFO", "replication"]),
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
                self.traits = server::traits(&info).map_err(Trouble::Refused)?;
                self.identity.run_id = server::field(&info, "run_id").ok_or_else(odd)?.to_owned();
                Step::Replication
            }
            Step::Replication => return self.replication(&text()),
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
            return Err(Trouble::Unfit("the server is a replica: give its master as `storage`".to_owned()));
        }
        let same = self.incarnation.as_ref().is_some_and(|incarnation| incarnation.identity == self.identity);
        if same {
            self.step = if self.unfenced.is_empty() { Step::Settled } else { Step::Fence };
            return Ok(Progress::Next);
        }
        self.step = Step::WhoAmI;
        Ok(if self.incarnation.take().is_some() { Progress::Void } else { Progress::Next })
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
            Step::List => "ACL USERS",
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
                _ => Value::Integer(0),
            }
        }
    }

    fn takeover(seed: u64) -> Takeover {
        let mut takeover = Takeover::new(None, "test", "shim-0", SmallRng::seed_from_u64(seed));
        takeover.restart();
        takeover
    }

    #[test]
    fn of_shims_that_take_over_at_once_never_two_can_write() {
        let mut alone = 0;
        for seed in 0..300 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut server = Server::default();
            let mut shims = [takeover(seed), takeover(seed + 1000), takeover(seed + 2000)];
            for _ in 0..100 {
                let shim = &mut shims[random.random_range(0..3)];
                let user = shim.settled().map(|incarnation| incarnation.user.clone());
                match (shim.command(), user) {
                    (Some(command), _) => {
                        let reply = server.execute(&command);
                        shim.reply(&reply).expect("a server without troubles");
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
        assert!(alone > 3000, "the test must reach what it tests: {alone}");
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
