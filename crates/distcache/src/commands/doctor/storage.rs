//! Every storage server of a configuration, asked in the name of its shim. What must hold of a Redis is in `redis`.

use std::net::SocketAddr;
use std::time::Duration;

use config::Address;
use config::{Config, SentinelStorage, StorageConfig};
use runtime::tls::Certificates;
use wire::resp::{Command, Value};

use super::finding::DoctorFindings;
use super::redis::{self, ExaminedServer, advice};
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
        let tls = |wanted: bool| certificates.storage().filter(|_| wanted).cloned();
        match &shim.storage {
            StorageConfig::Embedded => findings.doubt(
                &format!("{id} embedded:"),
                "the data lives in the shim's memory and is gone when it ends",
                "give the address of a server in `storage` for anything but a trial",
            ),
            StorageConfig::Memcached { address, .. } => {
                memcacheds.push((format!("{id} memcached://{address}"), address.clone()));
            }
            StorageConfig::Redis { address, user, password, tls: host } => servers.push(ExaminedServer {
                subject: format!("{id} {}://{address}", if host.is_some() { "rediss" } else { "redis" }),
                address: address.clone(),
                tls: host.as_ref().and_then(|host| Some(tls(true)?.or_named(host))),
                user: user.clone(),
                password: password.clone(),
                cluster_mode: false,
            }),
            StorageConfig::RedisSentinel(sentinel) => {
                let primary = primary(certificates, id, sentinel, patience, findings)?;
                servers.extend(primary.map(|primary| ExaminedServer {
                    subject: format!("{id} {} at {primary}", sentinel.name),
                    address: Address::Tcp(primary),
                    tls: tls(sentinel.tls),
                    user: sentinel.user.clone(),
                    password: sentinel.password.clone(),
                    cluster_mode: false,
                }));
            }
            // All shims have the same cluster.
            StorageConfig::RedisCluster { .. } if index > 0 => {}
            StorageConfig::RedisCluster { seeds, user, password, tls: wanted } => {
                servers.extend(seeds.iter().map(|seed| ExaminedServer {
                    subject: format!("redis-cluster {seed}"),
                    address: Address::Tcp(*seed),
                    tls: tls(*wanted),
                    user: user.clone(),
                    password: password.clone(),
                    cluster_mode: true,
                }));
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

fn check_redis(
    config: &Config,
    servers: &[ExaminedServer],
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let answers = ask(servers.iter().map(ExaminedServer::first_question).collect(), patience)?;
    let mut second = Vec::new();
    for (server, answer) in servers.iter().zip(answers) {
        if server.judge(config, answer, findings) {
            second.push(server);
        }
    }
    let answers = ask(second.iter().map(|server| server.second_question()).collect(), patience)?;
    for (server, answer) in second.into_iter().zip(answers) {
        server.judge_second(answer, findings);
    }
    Ok(())
}

/// Where the sentinels say that the primary is. Each must answer, and they must agree.
fn primary(
    certificates: &Certificates,
    shim: &str,
    sentinel: &SentinelStorage,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<Option<SocketAddr>> {
    let question = |address: &SocketAddr| {
        let login = sentinel.sentinel_password.as_ref().map(|password| match &sentinel.sentinel_user {
            Some(user) => Command::from_args(&["AUTH", user, &password.0]),
            None => Command::from_args(&["AUTH", &password.0]),
        });
        let asked = Command::from_args(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &sentinel.name]);
        ProbeQuestion {
            address: Address::Tcp(*address),
            tls: certificates.storage().filter(|_| sentinel.tls).cloned(),
            speech: ProbeProtocol::Redis(login.into_iter().chain([asked]).collect()),
        }
    };
    let answers = ask(sentinel.sentinels.iter().map(question).collect(), patience)?;
    let mut found: Option<SocketAddr> = None;
    for (address, answer) in sentinel.sentinels.iter().zip(answers) {
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
                &format!("does not know a primary called {:?}", sentinel.name),
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
    servers: &[(String, Address)],
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let question = |(_, address): &(String, Address)| ProbeQuestion {
        address: address.clone(),
        tls: None,
        // Servers without the meta protocol answer the second with ERROR.
        speech: ProbeProtocol::Memcached("version\r\nmn\r\n", "MN\r\n"),
    };
    let answers = ask(servers.iter().map(question).collect(), patience)?;
    for ((subject, _), answer) in servers.iter().zip(answers) {
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
