//! What a Redis server must be and allow for a shim to use it, and what is better changed. Not how it is asked.

use std::time::{SystemTime, UNIX_EPOCH};

use config::{Address, Config, Login, Mode};
use protocol::storage::redis::MarkSeen;
use protocol::storage::redis::clients::{self, foreign_connections};
use protocol::storage::redis::server::{Greeting, eviction, field, traits};
use protocol::storage::{MarkedPart, REMEDY};
use runtime::tls::Dialer;
use wire::resp::{Command, Value};

use super::finding::DoctorFindings;
use super::modes::{Refusals, fence_refusals, refusal};
use super::talk::{ProbeAnswer, ProbeProtocol, ProbeQuestion};

/// Clocks that are further apart than this make times in logs and in EXPIREAT hard to follow.
const CLOCK_US_MAX: i128 = 1_000_000;
/// A user that nobody has: it shows whether users may be made and deleted.
const NOBODY: &str = "distcache-doctor";

/// A server in the name of the shim that uses it.
pub(super) struct ExaminedServer {
    pub(super) subject: String,
    pub(super) address: Address,
    pub(super) tls: Option<Dialer>,
    pub(super) login: Login,
    pub(super) cluster_mode: bool,
    /// What it has to hold.
    pub(super) part: Option<MarkedPart>,
}

/// In the order of the replies.
const ASKED: [&[&str]; 14] = [
    &["INFO", "server"],
    &["INFO", "replication"],
    &["INFO", "memory"],
    &["INFO", "persistence"],
    &["TIME"],
    &["ACL", "WHOAMI"],
    &["ACL", "LIST"],
    &["ACL", "USERS"],
    // What fences need: nobody has these.
    &["CLIENT", "KILL", "ID", "9223372036854775807"],
    &["ACL", "DELUSER", NOBODY],
    &MarkedPart::QUESTION,
    &["INFO", "keyspace"],
    clients::QUESTION,
    &["CONFIG", "GET", "replica-read-only"],
];

/// What a shim does on the connection that tells of changes; of keys that nobody has.
const FEED: [&[&str]; 3] = [
    &["HELLO", "3"],
    &["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "distcache-doctor:"],
    &["CLIENT", "TRACKING", "OFF"],
];

/// What is known of a server so far.
pub(super) struct Examined<'a> {
    pub(super) server: &'a ExaminedServer,
    /// Its `INFO server`.
    info: Value,
    pub(super) may_delete: bool,
    refusals: Refusals,
}

impl ExaminedServer {
    fn question(&self, commands: &[&[&str]]) -> ProbeQuestion {
        let login = self.login.command();
        let commands = commands.iter().map(|command| Command::from_args(command));
        let speech = ProbeProtocol::Redis(login.into_iter().chain(commands).collect());
        ProbeQuestion { address: self.address.clone(), tls: self.tls.clone(), speech }
    }

    pub(super) fn first_question(&self) -> ProbeQuestion {
        self.question(&ASKED)
    }

    /// Whether users may be made; only where deleting them is allowed, so that nothing is left.
    pub(super) fn second_question(&self) -> ProbeQuestion {
        self.question(&[&["ACL", "SETUSER", NOBODY, "reset"], &["ACL", "DELUSER", NOBODY]])
    }

    /// How a shim follows changes there, as far as nothing comes of it.
    pub(super) fn feed_question(&self) -> ProbeQuestion {
        let nodes: &[&[&str]] = if self.cluster_mode { &[&["CLUSTER", "NODES"]] } else { &[] };
        self.question(&[&FEED[..], nodes].concat())
    }

    /// What the first answer says; none if the server cannot be asked.
    pub(super) fn judge(
        &self,
        config: &Config,
        answer: Result<ProbeAnswer, String>,
        findings: &mut DoctorFindings,
    ) -> Option<Examined<'_>> {
        let values = match self.values(answer, ASKED.len()) {
            Ok(values) => values,
            Err(what) => {
                let what = format!("cannot be used: {what}");
                findings.wrong(&self.subject, &what, &advice(&what));
                return None;
            }
        };
        let Ok(values) = <[Value; ASKED.len()]>::try_from(values) else { return None };
        let [
            info,
            replication,
            memory,
            persistence,
            time,
            whoami,
            list,
            users,
            kill,
            delete,
            mark,
            keyspace,
            clients,
            read_only,
        ] = values;
        self.judge_role(&text(&replication), findings);
        self.judge_memory(config, [&memory, &read_only], findings);
        self.judge_writers(config, &text(&clients), findings);
        self.judge_demotion(&read_only, findings);
        self.judge_persistence([&persistence, &read_only], findings);
        self.judge_clock(&time, findings);
        self.judge_mark(&mark, &keyspace, findings);
        let user = match text(&whoami) {
            told if !told.is_empty() => told,
            _ => self.login.user.clone().unwrap_or_else(|| "default".to_owned()),
        };
        self.judge_rules(&user, &list, findings);
        let fences = [
            ("ACL WHOAMI", &whoami),
            ("ACL LIST", &list),
            ("ACL USERS", &users),
            ("ACL DELUSER", &delete),
            ("CLIENT KILL", &kill),
        ];
        let refusals =
            Refusals { fence: fence_refusals(&info, &fences), grant: grant(&user), ..Refusals::default() };
        let may_delete = refusal("ACL DELUSER", &delete).is_none();
        Some(Examined { server: self, info, may_delete, refusals })
    }

    /// The replies without that of AUTH, which must be good. Other replies may be errors.
    fn values(&self, answer: Result<ProbeAnswer, String>, count: usize) -> Result<Vec<Value>, String> {
        let ProbeAnswer::Values(mut values) = answer? else {
            return Err("it answers something else".to_owned());
        };
        if values.len() > count
            && let Value::Error(error) = values.remove(0)
        {
            return Err(String::from_utf8_lossy(&error).into_owned());
        }
        // Without a password where one is needed every reply is the same error.
        match values.first() {
            Some(Value::Error(error)) if values.iter().all(|value| *value == values[0]) => {
                Err(String::from_utf8_lossy(error).into_owned())
            }
            _ => Ok(values),
        }
    }

    fn judge_role(&self, info: &str, findings: &mut DoctorFindings) {
        if field(info, "role").is_some_and(|role| role != "master") && !self.cluster_mode {
            let master = field(info, "master_host").zip(field(info, "master_port"));
            let master = master.map(|(host, port)| format!(" ({host}:{port})")).unwrap_or_default();
            let advice = format!("give its primary{master} as `storage`, or redis+sentinel:// to follow it");
            findings.wrong(&self.subject, "the server is a replica: it takes no writes", &advice);
        }
    }

    /// Only mode `strict` rules them out.
    fn judge_writers(&self, config: &Config, clients: &str, findings: &mut DoctorFindings) {
        let writers = foreign_connections(clients, false);
        let Some(first) = writers.first().filter(|_| config.cluster.mode == Mode::Strict) else { return };
        let more = writers.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        findings.wrong(
            &self.subject,
            &format!("others than DistCache have written to it within the last minute: {first}{more}"),
            "let them write through DistCache, or write mode = \"bounded\" in [cluster]",
        );
    }

    /// Who still writes to a primary that was demoted must be told so.
    fn judge_demotion(&self, read_only: &Value, findings: &mut DoctorFindings) {
        let writable =
            read_only.elements().and_then(|pair| pair.get(1)).is_some_and(|value| text(value) == "no");
        if writable {
            findings.wrong(
                &self.subject,
                "replica-read-only is no: once it is a replica, it acknowledges writes and loses them",
                "CONFIG SET replica-read-only yes, and in its file",
            );
        }
    }

    fn judge_memory(&self, config: &Config, asked: [&Value; 2], findings: &mut DoctorFindings) {
        let [memory, setting] = asked;
        let info = text(memory);
        let set = set("maxmemory-policy noeviction", setting);
        let Some(policy) = field(&info, "maxmemory_policy") else {
            let why = refusal("INFO", memory).unwrap_or_else(|| "INFO memory does not say it".to_owned());
            let what = format!("whether it evicts keys is unknown: {why}");
            return findings.doubt(&self.subject, &what, &set);
        };
        match (policy, eviction(&info).is_some()) {
            ("noeviction", _) => {
                findings.good(&self.subject, "evicts nothing (maxmemory-policy noeviction)");
            }
            (policy, false) => findings.doubt(
                &self.subject,
                &format!("maxmemory-policy is {policy}; it evicts nothing only because maxmemory is 0"),
                &set,
            ),
            (policy, true) if config.cluster.mode == Mode::Strict => findings.wrong(
                &self.subject,
                &format!(
                    "maxmemory-policy is {policy}: keys that are evicted may still be served from copies"
                ),
                &format!("{set}, or mode = \"bounded\" in [cluster]"),
            ),
            (policy, true) => findings.doubt(
                &self.subject,
                &format!(
                    "maxmemory-policy is {policy}: keys that DistCache caches are not read here and go first"
                ),
                &set,
            ),
        }
    }

    fn judge_persistence(&self, asked: [&Value; 2], findings: &mut DoctorFindings) {
        let [persistence, setting] = asked;
        let info = text(persistence);
        let is = |name, value| field(&info, name) == Some(value);
        if is("rdb_last_bgsave_status", "err") || is("aof_last_write_status", "err") {
            let what =
                "the last snapshot or append to disk has failed: the server refuses writes or loses them";
            findings.wrong(&self.subject, what, "look into the server's log; often its disk is full");
        }
        let advice = format!("{}, unless the data may be lost", set("appendonly yes", setting));
        match field(&info, "aof_enabled") {
            Some("1") => findings.good(&self.subject, "keeps an append-only file"),
            Some(_) => findings.doubt(
                &self.subject,
                "keeps no append-only file: a restart loses the writes since the last snapshot, or all",
                &advice,
            ),
            None => {
                findings.doubt(&self.subject, "whether it keeps an append-only file is unknown", &advice);
            }
        }
    }

    fn judge_clock(&self, time: &Value, findings: &mut DoctorFindings) {
        let number = |value: &Value| text(value).parse::<i128>().ok();
        let Some([seconds, micros]) = time.elements() else { return };
        let (Some(seconds), Some(micros)) = (number(seconds), number(micros)) else { return };
        let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i128;
        let apart = seconds * 1_000_000 + micros - here;
        if apart.abs() > CLOCK_US_MAX {
            let what = format!("its clock is {:.1} s from this machine's", apart as f64 / 1e6);
            findings.doubt(&self.subject, &what, "run NTP on both (chrony, systemd-timesyncd)");
        } else {
            findings.good(&self.subject, "its clock agrees with this machine's");
        }
    }

    fn judge_mark(&self, mark: &Value, keyspace: &Value, findings: &mut DoctorFindings) {
        let Some(part) = &self.part else { return };
        match part.check(mark, keyspace) {
            Ok(MarkSeen::Fits) => {
                findings.good(&self.subject, &format!("its mark says that it holds the keys of {}", part.shim));
            }
            Ok(MarkSeen::Absent) => findings.good(&self.subject, "has no mark of whose keys it holds yet"),
            Ok(MarkSeen::Untold) => findings.doubt(
                &self.subject,
                "cannot keep a mark of whose keys it holds: started with other shims or another secret, DistCache would only see \
                 it from a sample of the keys",
                "Redis 7 or Valkey, and +function for the user of the storage URL",
            ),
            Err(difference) => findings.wrong(&self.subject, &difference, REMEDY),
        }
    }

    /// A shim's own user has the rules of this one, so that what it may not do clients cannot do either.
    fn judge_rules(&self, user: &str, list: &Value, findings: &mut DoctorFindings) {
        let Some(lines) = list.elements() else { return };
        let own =
            lines.iter().map(text).find(|line| line.split(' ').nth(1) == Some(user)).unwrap_or_default();
        let has = |rules: &[&str]| own.split(' ').any(|word| rules.contains(&word));
        if !has(&["~*", "allkeys"]) || !has(&["+@all", "allcommands"]) || !has(&["&*", "allchannels"]) {
            let what =
                format!("user {user:?} may not do everything; clients of DistCache can do no more than it");
            findings.doubt(&self.subject, &what, &grant(user));
        }
    }
}

impl Examined<'_> {
    /// What the server lets a shim make of users.
    pub(super) fn judge_users(&mut self, answer: Result<ProbeAnswer, String>) {
        match self.server.values(answer, 2) {
            Ok(values) => self.refusals.fence.extend(refusal("ACL SETUSER", &values[0])),
            Err(what) => self.refusals.fence.push(format!("ACL SETUSER ({what})")),
        }
    }

    /// What kind of server it is, whether changes can be followed there, and what follows from all that was asked.
    pub(super) fn judge_feed(
        mut self,
        config: &Config,
        answer: Result<ProbeAnswer, String>,
        findings: &mut DoctorFindings,
    ) {
        let subject = &self.server.subject;
        let values = match self.server.values(answer, FEED.len() + usize::from(self.server.cluster_mode)) {
            Ok(values) => values,
            Err(what) => return findings.wrong(subject, &what, &advice(&what)),
        };
        let [hello, tracking, _, nodes @ ..] = &values[..] else { return };
        self.refusals.hear_feed(hello, tracking);
        self.refusals.always.extend(nodes.first().and_then(|nodes| refusal("CLUSTER NODES", nodes)));
        let greeting = Greeting::read(hello);
        let greeted = greeting.as_ref().map(Greeting::info);
        let info = self.info.bytes().map(|_| text(&self.info)).or(greeted).unwrap_or_default();
        let name = if field(&info, "valkey_version").is_some() { "Valkey" } else { "Redis" };
        let version = field(&info, "valkey_version").or(field(&info, "redis_version")).unwrap_or("unknown");
        match traits(&info, self.server.cluster_mode) {
            Ok(_) => findings.good(subject, &format!("{name} {version}")),
            Err(what) => {
                return findings.wrong(subject, &what, "use another server, or change the storage URL");
            }
        }
        self.refusals.judge(config, subject, findings);
    }
}

/// How a parameter of the server is set, from its reply to CONFIG.
fn set(what: &str, config: &Value) -> String {
    match refusal("CONFIG", config) {
        None => format!("CONFIG SET {what}"),
        Some(_) => format!("set {what} where its provider has such parameters"),
    }
}

fn grant(user: &str) -> String {
    format!("ACL SETUSER {user} +@all ~* &* (or at least what docs/operating/storage.md asks for)")
}

/// What to do about a server that cannot be asked.
pub(super) fn advice(what: &str) -> String {
    let known = [
        ("NOAUTH", "put the password into the storage URL or storage_password_file"),
        ("WRONGPASS", "mend user and password in the storage URL or storage_password_file"),
        ("NOPERM", "give the user of the storage URL +@all ~* &*, or use another"),
        ("speaks memcached", "write memcached:// in `storage`, or the address of a Redis server"),
        ("speaks RESP", "write redis:// in `storage`, or the address of a memcached"),
        ("speaks TLS", "write rediss:// instead of redis://, and [tls.storage] with ca_file"),
        ("is TLS spoken", "if so, write rediss:// instead of redis://, and [tls.storage] with ca_file"),
        ("does not speak TLS", "write redis:// instead of rediss://, or give its TLS port"),
        ("speaks HTTP", "give the address of the storage server"),
        ("certificate", "mend [tls.storage]: ca_file, server_name, or the server's certificate"),
        ("refused", "start the server, or mend the address"),
        ("LOADING", "wait until it has read its data"),
    ];
    let found = known.iter().find(|(part, _)| what.contains(part)).map(|(_, advice)| *advice);
    found.unwrap_or("check the address, the firewall and the server").to_owned()
}

pub(super) fn text(value: &Value) -> String {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}
