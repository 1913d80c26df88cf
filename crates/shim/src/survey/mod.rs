//! A look at Redis servers before they are served: where their keys lie, and who else serves them. It changes nothing.
//!
//! It is a sample, and a look at one moment. memcached tells neither its keys nor whose connections it has, and is left
//! out.

mod ask;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use config::{Address, Config, Login, RedisServers};
use protocol::placement::Placement;
use protocol::storage::MarkedPart;
use runtime::tls::{Certificates, Dialer};
use wire::resp::{Command, Value};
use wire::{Sharding, ShimId};

use ask::{SurveyAnswers, SurveyedServer, ask};

/// Random keys of one server, drawn in one round trip. A part of one in fifty that lies elsewhere is then missed once in
/// 150 times.
const SAMPLES: usize = 256;
/// What the ACL users of every shim begin with.
const USER_PREFIX: &str = "distcache:";

/// What one server showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSeen {
    /// The one in front of it; of a Redis Cluster's servers the first.
    pub shim: ShimId,
    pub address: Address,
    /// Unless it does not tell.
    pub keys: Option<u64>,
    /// Some of its keys, at random.
    pub sample: Vec<Bytes>,
    pub strays: Vec<Stray>,
    pub others: Vec<Other>,
    /// Why it is unknown who else is connected, if so.
    pub others_untold: Option<String>,
    /// What it holds that this configuration would look for elsewhere, as its mark says.
    pub other_mark: Option<String>,
    /// It was there and said something.
    pub has_answered: bool,
    /// Why not all could be looked at.
    pub trouble: Option<String>,
}

/// A key that lies at another server than this configuration would look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub key: Bytes,
    pub home: ShimId,
}

/// A connection of a shim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Other {
    /// What tells its cluster from others, as ACL users have it.
    pub cluster: String,
    pub shim: String,
    /// From where it is connected.
    pub address: String,
}

/// One server while it is looked at.
struct Look {
    server: SurveyedServer,
    seen: ServerSeen,
}

/// Looks at the Redis servers of `shims`.
///
/// # Errors
/// Only if the kernel refuses to wait for sockets.
pub fn survey(
    config: &Config,
    certificates: &Certificates,
    shims: &[ShimId],
    patience: Duration,
) -> io::Result<Vec<ServerSeen>> {
    let mut looks = servers(config, certificates, shims, patience)?;
    let asked = [&["CLIENT", "LIST"][..], &["INFO", "keyspace"], &MarkedPart::QUESTION];
    let questions = || asked.map(Command::from_args).to_vec();
    for (look, answers) in ask_all(&mut looks, patience, |_| questions())? {
        let part = config.marked_part(look.seen.shim);
        look.first(answers, part.as_ref());
    }
    let placement = config.placement(config.map_in_change()).map_err(io::Error::other)?;
    if placement.map().sharding != Sharding::Slots && config.shims.len() > 1 {
        for (look, answers) in ask_all(&mut looks, patience, |look| draws(look.seen.keys))? {
            look.judge(answers, &placement);
        }
    }
    Ok(looks.into_iter().map(|look| look.seen).collect())
}

/// The answers of those that there are questions for and that can be reached.
fn ask_all(
    looks: &mut [Look],
    patience: Duration,
    questions: impl Fn(&Look) -> Vec<Command>,
) -> io::Result<impl Iterator<Item = (&mut Look, SurveyAnswers)>> {
    let asked = |look: &Look| (look.server.clone(), questions(look));
    let is_asked = |look: &Look, questions: &[Command]| look.seen.trouble.is_none() && !questions.is_empty();
    let (mut calls, mut called) = (Vec::new(), Vec::new());
    for look in looks {
        let call = asked(look);
        if is_asked(look, &call.1) {
            calls.push(call);
            called.push(look);
        }
    }
    let answers = ask(&calls, patience)?;
    Ok(called.into_iter().zip(answers))
}

impl Look {
    fn new(shim: ShimId, server: SurveyedServer, trouble: Option<String>) -> Look {
        let address = server.address.clone();
        let seen = ServerSeen {
            shim,
            address,
            keys: None,
            sample: Vec::new(),
            strays: Vec::new(),
            others: Vec::new(),
            others_untold: None,
            other_mark: None,
            has_answered: false,
            trouble,
        };
        Look { server, seen }
    }

    fn first(&mut self, answers: SurveyAnswers, part: Option<&MarkedPart>) {
        self.seen.has_answered = answers.is_ok();
        let answers = match answers.as_deref() {
            Ok([clients, keyspace, mark]) => {
                self.seen.other_mark = part.and_then(|part| part.check(mark, keyspace).err());
                [clients, keyspace]
            }
            Ok(_) => return,
            Err(trouble) => return self.seen.trouble = Some(trouble.clone()),
        };
        let [clients, keyspace] = answers;
        match (clients, keyspace) {
            // Whatever is asked is answered so.
            (Value::Error(error), Value::Error(same)) if error == same => {
                self.seen.trouble = Some(String::from_utf8_lossy(error).into_owned());
            }
            (Value::Error(error), _) => {
                let error = String::from_utf8_lossy(error);
                self.seen.others_untold =
                    Some(format!("CLIENT LIST: {}", error.split(", with args").next().unwrap_or_default()));
            }
            (clients, _) => self.seen.others = others(&text(clients)),
        }
        self.seen.keys = keyspace.bytes().map(|_| keys(&text(keyspace)));
    }

    fn judge(&mut self, answers: SurveyAnswers, placement: &Placement) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(trouble) => return self.seen.trouble = Some(trouble),
        };
        let refusal = answers.iter().find_map(|answer| match answer {
            Value::Error(error) => Some(String::from_utf8_lossy(error).into_owned()),
            _ => None,
        });
        let keys: BTreeSet<&Bytes> = answers
            .iter()
            .filter(|answer| matches!(answer, Value::Bulk(_)))
            .filter_map(Value::bytes)
            .collect();
        if let Some(refusal) = refusal.filter(|_| keys.is_empty()) {
            return self.seen.trouble = Some(format!("RANDOMKEY: {refusal}"));
        }
        self.seen.sample = keys.into_iter().cloned().collect();
        for key in &self.seen.sample {
            let home = placement.home(&placement.key(0, key.clone()));
            if home.shim != self.seen.shim && home.other != Some(self.seen.shim) {
                let home = home.shim;
                self.seen.strays.push(Stray { key: key.clone(), home });
            }
        }
    }
}

fn draws(keys: Option<u64>) -> Vec<Command> {
    vec![Command::from_args(&["RANDOMKEY"]); if keys == Some(0) { 0 } else { SAMPLES }]
}

fn text(value: &Value) -> String {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// How many keys database 0 has, from `INFO keyspace`. The others are not served.
fn keys(info: &str) -> u64 {
    let facts = info.lines().find_map(|line| line.strip_prefix("db0:")).unwrap_or_default();
    facts.split(',').find_map(|fact| fact.strip_prefix("keys=")?.parse().ok()).unwrap_or(0)
}

/// Connections that log in as users of shims, from `CLIENT LIST`.
fn others(clients: &str) -> Vec<Other> {
    let other = |line: &str| {
        let word = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key));
        let mut parts = word("user=")?.strip_prefix(USER_PREFIX)?.split(':');
        let (cluster, shim) = (parts.next()?.to_owned(), parts.next()?.split('/').next()?.to_owned());
        Some(Other { cluster, shim, address: word("addr=").unwrap_or_default().to_owned() })
    };
    let mut others: Vec<Other> = clients.lines().filter_map(other).collect();
    others.sort();
    // One of its connections is enough.
    others.dedup_by(|a, b| (&a.cluster, &a.shim) == (&b.cluster, &b.shim));
    others
}

/// The servers behind the shims, with those that others have to name asked for.
fn servers(
    config: &Config,
    certificates: &Certificates,
    shims: &[ShimId],
    patience: Duration,
) -> io::Result<Vec<Look>> {
    let mut looks = Vec::new();
    for &shim in shims {
        let Some(redis) = config.shim(shim).storage.redis() else { continue };
        let tls = certificates.storage().filter(|_| redis.tls);
        let look = |address: Address, tls: Option<Dialer>, trouble: Option<String>| {
            Look::new(shim, SurveyedServer { address, tls, login: redis.login.clone() }, trouble)
        };
        match &redis.servers {
            RedisServers::One { address, host } => {
                looks.push(look(address.clone(), tls.map(|tls| tls.or_named(host)), None));
            }
            RedisServers::Sentinels(group) => {
                let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &group.name];
                let told = tell(&group.sentinels, &group.login, tls, &question, patience, primary)?;
                let (address, trouble) = told
                    .map_or_else(|trouble| (group.sentinels[0], Some(trouble)), |address| (address, None));
                looks.push(look(Address::Tcp(address), tls.cloned(), trouble));
            }
            // Slots decide where its keys lie, and every shim has the same servers.
            RedisServers::Cluster(_) if looks.iter().any(|look: &Look| look.seen.shim != shim) => {}
            RedisServers::Cluster(seeds) => {
                let told = tell(seeds, &redis.login, tls, &["CLUSTER", "NODES"], patience, primaries)?;
                let (addresses, trouble) = told
                    .map_or_else(|trouble| (vec![seeds[0]], Some(trouble)), |addresses| (addresses, None));
                let looked = |address| look(Address::Tcp(address), tls.cloned(), trouble.clone());
                looks.extend(addresses.into_iter().map(looked));
            }
        }
    }
    Ok(looks)
}

/// What the first of some servers says that can say it.
fn tell<T>(
    servers: &[SocketAddr],
    login: &Login,
    tls: Option<&Dialer>,
    question: &[&str],
    patience: Duration,
    read: impl Fn(&Value) -> Option<T>,
) -> io::Result<Result<T, String>> {
    let calls: Vec<_> = servers
        .iter()
        .map(|&address| {
            let server =
                SurveyedServer { address: Address::Tcp(address), tls: tls.cloned(), login: login.clone() };
            (server, vec![Command::from_args(question)])
        })
        .collect();
    let mut trouble = String::new();
    for (address, answers) in servers.iter().zip(ask(&calls, patience)?) {
        match answers.as_deref() {
            Ok([Value::Error(error)]) => trouble = format!("{address}: {}", String::from_utf8_lossy(error)),
            Ok([value]) => match read(value) {
                Some(told) => return Ok(Ok(told)),
                None => trouble = format!("{address} knows nothing of it"),
            },
            Ok(_) => {}
            Err(error) => trouble = format!("{address}: {error}"),
        }
    }
    Ok(Err(trouble))
}

/// From the reply to SENTINEL GET-MASTER-ADDR-BY-NAME.
fn primary(value: &Value) -> Option<SocketAddr> {
    let [host, port] = value.elements()? else { return None };
    Some(SocketAddr::new(text(host).parse().ok()?, text(port).parse().ok()?))
}

/// From the reply to CLUSTER NODES.
fn primaries(value: &Value) -> Option<Vec<SocketAddr>> {
    let text = text(value);
    let primary = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?.split('@').next()?, words.next()?);
        let flags: Vec<&str> = flags.split(',').collect();
        let well = flags.contains(&"master") && !flags.contains(&"fail") && !flags.contains(&"noaddr");
        address.parse().ok().filter(|_| well)
    };
    Some(text.lines().filter_map(primary).collect::<Vec<_>>()).filter(|found| !found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_shims_are_found_once_each() {
        let clients = "id=3 addr=127.0.0.1:50000 laddr=127.0.0.1:6379 name= user=default cmd=ping\r\n\
                       id=4 addr=10.0.0.9:1 name= user=distcache:pro%20d:shim-1:00ff redir=-1\r\n\
                       id=5 addr=10.0.0.9:2 name= user=distcache:pro%20d:shim-1:00ff redir=-1\n\
                       id=6 addr=/run/r.sock:0 name= user=distcache:b:s:01\n";
        let other = |cluster: &str, shim: &str, address: &str| Other {
            cluster: cluster.to_owned(),
            shim: shim.to_owned(),
            address: address.to_owned(),
        };
        let expected = [other("b", "s", "/run/r.sock:0"), other("pro%20d", "shim-1", "10.0.0.9:1")];
        assert_eq!(others(clients), expected);
        assert!(others("").is_empty());
    }

    #[test]
    fn a_database_with_keys_is_sampled() {
        assert_eq!(keys("# Keyspace\r\ndb0:keys=12,expires=0,avg_ttl=0\r\ndb11:keys=3,expires=3\r\n"), 12);
        assert_eq!(keys("# Keyspace\r\ndb11:keys=3,expires=3\r\n"), 0);
        assert_eq!([Some(0), Some(1), None].map(|keys| draws(keys).len()), [0, SAMPLES, SAMPLES]);
    }

    #[test]
    fn primaries_are_told_by_the_others() {
        let nodes = "07c37 127.0.0.1:30004@31004,host slave e7d1e 0 1426238317239 4 connected\n\
                     67ed2 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5461-10922\n\
                     292f8 127.0.0.1:30003@31003 master,fail - 0 0 3 connected\n\
                     e7d1e [::1]:30001@31001 myself,master - 0 0 1 connected 0-5460\n";
        let value = Value::Bulk(Bytes::from_static(nodes.as_bytes()));
        let expected = ["127.0.0.1:30002", "[::1]:30001"].map(|address| address.parse().expect("an address"));
        assert_eq!(primaries(&value), Some(expected.to_vec()));
        assert_eq!(primaries(&Value::Bulk(Bytes::from_static(b"nothing"))), None);
        let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        assert_eq!(primary(&Value::Array(vec![bulk("10.0.0.1"), bulk("7")])), "10.0.0.1:7".parse().ok());
        assert_eq!(primary(&Value::Array(vec![bulk("name")])), None);
    }
}
