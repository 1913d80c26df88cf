//! Every storage server of a configuration, asked in the name of its shim. What must hold of a Redis is in `redis`.

use std::net::SocketAddr;
use std::time::Duration;

use config::{Address, Config, RedisServers, RedisStorage, SentinelGroup, StorageConfig};
use protocol::storage::memcached::MARK_QUESTION;
use protocol::storage::{MarkedPart, REMEDY};
use runtime::tls::{Certificates, Dialer};
use wire::ShimId;
use wire::resp::{Command, Value};

use super::finding::DoctorFindings;
use super::redis::{self, ExaminedServer, advice};
use super::store;
use super::talk::{ProbeAnswer, ProbeProtocol, ProbeQuestion, ask};

/// The first release with the meta protocol as shims use it.
const MEMCACHED_VERSION_MIN: (u32, u32) = (1, 6);

pub(super) fn check(
    config: &Config,
    certificates: &Certificates,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let mut servers = Vec::new();
    let mut memcacheds = Vec::new();
    for (index, shim) in config.shims.iter().enumerate() {
        let id = &shim.id;
        match &shim.storage {
            StorageConfig::Embedded => findings.doubt(
                &format!("{id} embedded:"),
                "the data lives in the shim's memory and is gone when it ends",
                "give the address of a server in `storage` for anything but a trial",
            ),
            StorageConfig::Durable(folder) => {
                store::check(id, folder, config.marked_part(ShimId(index as u16)).as_ref(), findings);
            }
            StorageConfig::Memcached { address, .. } => {
                let part = config.part(ShimId(index as u16));
                memcacheds.push((format!("{id} memcached://{address}"), address.clone(), part));
            }
            // All shims have the same cluster.
            storage if storage.is_redis_cluster() && index > 0 => {}
            StorageConfig::Redis(redis) => {
                let part = config.marked_part(ShimId(index as u16));
                let found = examined(certificates, id, redis, patience, findings)?;
                servers
                    .extend(found.into_iter().map(|server| ExaminedServer { part: part.clone(), ..server }));
            }
        }
    }
    check_redis(config, &servers, patience, findings)?;
    check_memcached(&memcacheds, patience, findings)?;
    // What was asked later stands beside what was asked first.
    findings.0.sort_by_key(|finding| {
        let first = servers.iter().position(|server| server.subject == finding.subject);
        first.map_or(0, |first| first + 1)
    });
    Ok(())
}

/// The servers of one shim.
fn examined(
    certificates: &Certificates,
    shim: &str,
    redis: &RedisStorage,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<Vec<ExaminedServer>> {
    let tls = certificates.storage().filter(|_| redis.tls);
    let server = |subject: String, address: Address, tls: Option<Dialer>| {
        let cluster_mode = matches!(redis.servers, RedisServers::Cluster(_));
        ExaminedServer { subject, address, tls, login: redis.login.clone(), cluster_mode, part: None }
    };
    Ok(match &redis.servers {
        RedisServers::One { address, host } => {
            let subject = format!("{shim} {}://{address}", if redis.tls { "rediss" } else { "redis" });
            vec![server(subject, address.clone(), tls.map(|tls| tls.or_named(host)))]
        }
        RedisServers::Sentinels(group) => {
            let primary = primary(tls, shim, group, patience, findings)?;
            let found = primary.map(|primary| {
                let subject = format!("{shim} {} at {primary}", group.name);
                server(subject, Address::Tcp(primary), tls.cloned())
            });
            found.into_iter().collect()
        }
        RedisServers::Cluster(seeds) => {
            let seed = |seed: &SocketAddr| {
                server(format!("redis-cluster {seed}"), Address::Tcp(*seed), tls.cloned())
            };
            seeds.iter().map(seed).collect()
        }
    })
}

fn check_redis(
    config: &Config,
    servers: &[ExaminedServer],
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let answers = ask(servers.iter().map(ExaminedServer::first_question).collect(), patience)?;
    let mut examined = Vec::new();
    for (server, answer) in servers.iter().zip(answers) {
        examined.extend(server.judge(config, answer, findings));
    }
    let mut makers: Vec<_> = examined.iter_mut().filter(|one| one.may_delete).collect();
    let answers = ask(makers.iter().map(|one| one.server.second_question()).collect(), patience)?;
    for (one, answer) in makers.iter_mut().zip(answers) {
        one.judge_users(answer);
    }
    let answers = ask(examined.iter().map(|one| one.server.feed_question()).collect(), patience)?;
    for (one, answer) in examined.into_iter().zip(answers) {
        one.judge_feed(config, answer, findings);
    }
    Ok(())
}

/// Where the sentinels say that the primary is. Each must answer, and they must agree.
fn primary(
    tls: Option<&Dialer>,
    shim: &str,
    group: &SentinelGroup,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<Option<SocketAddr>> {
    let question = |address: &SocketAddr| {
        let login = group.login.command();
        let asked = Command::from_args(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &group.name]);
        ProbeQuestion {
            address: Address::Tcp(*address),
            tls: tls.cloned(),
            speech: ProbeProtocol::Redis(login.into_iter().chain([asked]).collect()),
        }
    };
    let answers = ask(group.sentinels.iter().map(question).collect(), patience)?;
    let mut found: Option<SocketAddr> = None;
    for (address, answer) in group.sentinels.iter().zip(answers) {
        let subject = format!("{shim} sentinel {address}");
        let value = match answer {
            Ok(ProbeAnswer::Values(mut values)) => values.pop().unwrap_or(Value::Null),
            Ok(_) => Value::Null,
            Err(what) => {
                findings.wrong(&subject, &what, &advice(&what));
                continue;
            }
        };
        let place = value.elements().and_then(|parts| match parts {
            [ip, port] => format!("{}:{}", redis::text(ip), redis::text(port)).parse().ok(),
            _ => None,
        });
        match (place, found) {
            (None, _) => findings.wrong(
                &subject,
                &format!("does not know a primary called {:?}", group.name),
                "mend the name after the last slash of `storage`, or SENTINEL MONITOR it",
            ),
            (Some(place), Some(other)) if place != other => findings.wrong(
                &subject,
                &format!("takes {place} for the primary, and another sentinel takes {other}"),
                "wait for the fail-over to end; if it stays so, SENTINEL RESET",
            ),
            (Some(place), _) => {
                findings.good(&subject, &format!("the primary is {place}"));
                found = Some(place);
            }
        }
    }
    Ok(found)
}

fn check_memcached(
    servers: &[(String, Address, MarkedPart)],
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    // Servers without the meta protocol answer the latter two with ERROR.
    let questions = format!("version\r\n{MARK_QUESTION}mn\r\n");
    let question = |(_, address, _): &(String, Address, MarkedPart)| ProbeQuestion {
        address: address.clone(),
        tls: None,
        speech: ProbeProtocol::Memcached(questions.clone(), "MN\r\n"),
    };
    let answers = ask(servers.iter().map(question).collect(), patience)?;
    for ((subject, _, part), answer) in servers.iter().zip(answers) {
        let text = match answer {
            Ok(ProbeAnswer::Text(text)) => text,
            Ok(_) => String::new(),
            Err(what) => {
                findings.wrong(subject, &format!("cannot be used: {what}"), &advice(&what));
                continue;
            }
        };
        let version = text.lines().find_map(|line| line.strip_prefix("VERSION ")).unwrap_or("unknown");
        let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
        let number = parts.next().flatten().zip(parts.next().flatten());
        if let Some(difference) = part.misfit(&text) {
            findings.wrong(subject, &difference, REMEDY);
            continue;
        }
        match number.is_some_and(|number| number >= MEMCACHED_VERSION_MIN) && text.ends_with("MN\r\n") {
            true => findings.good(subject, &format!("memcached {version}, with the meta protocol")),
            false => findings.wrong(
                subject,
                &format!("memcached {version} has no meta protocol"),
                "run memcached 1.6 or newer",
            ),
        }
    }
    Ok(())
}
