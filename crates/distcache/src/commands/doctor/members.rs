//! Every member of a configuration as it is reached from this machine: links, front doors, controllers, admin ports.

use std::collections::BTreeSet;
use std::time::Duration;

use config::Address;
use config::{Config, FrontProtocol};
use controller::{MemberState, MemberView};
use runtime::peers::handshake::LinkKey;
use runtime::status::ClusterStatus;
use runtime::tls::{Certificates, Dialer};
use serde::Deserialize;
use wire::Peer;
use wire::resp::Command;

use super::finding::{DoctorFindings, Level};
use super::talk::{ProbeAnswer, ProbeProtocol, ProbeQuestion, ask};
use crate::commands::ask::agent;

pub(super) fn check(
    config: &Config,
    certificates: &Certificates,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let agent = agent(patience, certificates.http_asker());
    for controller in &config.controllers {
        check_controller(&agent, &controller.id, &config.http_url(controller.listen, ""), findings);
    }
    check_links(config, certificates.peers_dialer(), patience, findings)?;
    check_doors(config, patience, findings)?;
    for id in config.member_ids() {
        if let Some(admin) = config.admin(id) {
            check_ready(&agent, id, &config.http_url(admin, "/ready?strict"), findings);
        }
    }
    for controller in &config.controllers {
        if let Ok(status) = fetch(&agent, &config.http_url(controller.listen, "/v1/status")) {
            judge_stale(&status, findings);
            judge_upgrade(&status, findings);
            break;
        }
    }
    Ok(())
}

/// Whether reads are answered although storage is gone.
fn judge_stale(status: &ClusterStatus, findings: &mut DoctorFindings) {
    for shim in status.shims.iter().filter(|shim| shim.statistics.stale_milliseconds > 0) {
        let seconds = shim.statistics.stale_milliseconds.div_ceil(1000);
        let what = format!(
            "its storage is gone, and for {seconds} s copies that may be stale have answered reads of prefixes with stale_if_error_ms"
        );
        findings.wrong(&shim.id, &what, "bring storage back before that time is over");
    }
}

/// Whether members may be replaced one by one by those of the next release.
fn judge_upgrade(status: &ClusterStatus, findings: &mut DoctorFindings) {
    let releases: BTreeSet<&String> = status.releases.values().collect();
    let told: Vec<&str> = releases.iter().map(|release| release.as_str()).collect();
    let (level, wrong) = (status.level, findings.count(Level::Wrong));
    match told[..] {
        [] => {}
        [release] if wrong == 0 => {
            let what = format!("may begin: every member is of release {release}, at feature level {level}");
            findings.good("upgrade", &what);
        }
        [release] => {
            let what = format!(
                "should not begin: every member is of release {release}, but {wrong} things are wrong"
            );
            findings.doubt("upgrade", &what, "mend them first: who is replaced needs the others");
        }
        _ => {
            let what = format!(
                "is under way: members are of releases {}, at feature level {level}",
                told.join(" and ")
            );
            let advice = "bring all members to one of them before the next upgrade begins; distcache status shows who is of which";
            findings.doubt("upgrade", &what, advice);
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReadinessBody {
    ready: bool,
    lacking: Vec<serde_json::Value>,
}

fn fetch<T: for<'de> Deserialize<'de>>(agent: &ureq::Agent, url: &str) -> Result<T, String> {
    let mut reply = agent.get(url).call().map_err(|error| error.to_string())?;
    let text = reply.body_mut().read_to_string().map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|_| "what answers there is not of DistCache".to_owned())
}

fn check_controller(agent: &ureq::Agent, id: &str, base: &str, findings: &mut DoctorFindings) {
    check_ready(agent, id, &format!("{base}/ready"), findings);
    let Ok(members) = fetch::<Vec<MemberView>>(agent, &format!("{base}/v1/members")) else { return };
    for member in members {
        let what = match member.state {
            MemberState::Up | MemberState::Drained => continue,
            MemberState::Late => format!("{id} has not heard from it for a while"),
            MemberState::Lost | MemberState::Down => format!("{id} hears nothing from it"),
        };
        let advice = "start it, or look whether it reaches the controller's `listen`";
        match member.state {
            MemberState::Late => findings.doubt(&member.id, &what, advice),
            _ => findings.wrong(&member.id, &what, advice),
        }
    }
}

fn check_ready(agent: &ureq::Agent, id: &str, url: &str, findings: &mut DoctorFindings) {
    match fetch::<ReadinessBody>(agent, url) {
        Ok(readiness) if readiness.ready => findings.good(id, &format!("ready ({url})")),
        Ok(readiness) => {
            let lacking: Vec<String> = readiness.lacking.iter().map(lack).collect();
            findings.wrong(id, &format!("is not ready: {}", lacking.join("; ")), "mend what it lacks");
        }
        Err(what) => {
            let what = format!("does not answer at {url}: {what}");
            findings.wrong(id, &what, "start it, or mend the address");
        }
    }
}

/// Members name who lacks what, controllers only what.
fn lack(ailment: &serde_json::Value) -> String {
    match (ailment["id"].as_str(), ailment["what"].as_str()) {
        (Some(id), Some(what)) => format!("{id} {what}"),
        _ => ailment.as_str().unwrap_or("something").to_owned(),
    }
}

fn check_links(
    config: &Config,
    dialer: Option<&Dialer>,
    patience: Duration,
    findings: &mut DoctorFindings,
) -> std::io::Result<()> {
    let key = LinkKey::derive(config.secret());
    let nodes = config.nodes.iter().map(|node| (&node.id, &node.listen));
    let shims = config.shims.iter().map(|shim| (&shim.id, &shim.listen));
    let standbys = config.standbys.iter().map(|standby| (&standby.id, &standby.listen));
    let members: Vec<(&String, &Address, Peer)> = nodes
        .chain(shims)
        .chain(standbys)
        .filter_map(|(id, address)| Some((id, address, config.peer(id)?)))
        .collect();
    let question = |&(_, address, peer): &(&String, &Address, Peer)| ProbeQuestion {
        address: address.clone(),
        tls: match address {
            Address::Tcp(_) => dialer.cloned(),
            Address::Unix(_) => None,
        },
        speech: ProbeProtocol::Link { key: key.clone(), peer, agreement: config.agreement() },
    };
    let answers = ask(members.iter().map(question).collect(), patience)?;
    for ((id, address, _), answer) in members.into_iter().zip(answers) {
        match answer {
            Ok(_) => findings.good(id, &format!("answers at {address} and has this secret")),
            Err(what) => {
                let what = format!("cannot be linked at {address}: {what}");
                findings.wrong(id, &what, link_advice(&what));
            }
        }
    }
    Ok(())
}

fn link_advice(what: &str) -> &'static str {
    let known = [
        ("another configuration", "give every machine the same file"),
        ("proof", "write the same secret in [cluster] on every machine"),
        ("TLS", "give every machine the same [tls.peers], or none"),
        ("certificate", "mend [tls.peers]: ca_file, server_name or the member's certificate"),
        ("expected", "mend its `listen`: another member answers there"),
        ("version", "run the same release everywhere"),
        ("speaks feature level", "upgrade one release at a time"),
    ];
    let found = known.iter().find(|(part, _)| what.contains(part)).map(|(_, advice)| *advice);
    found.unwrap_or("start it, mend its `listen`, or open the firewall")
}

/// Where clients come in.
fn check_doors(config: &Config, patience: Duration, findings: &mut DoctorFindings) -> std::io::Result<()> {
    let mut doors = Vec::new();
    for router in &config.routers {
        // Of clients' TLS this configuration has only the router's end.
        for listen in router.listens().filter(|listen| !listen.tls) {
            let speech = match router.protocol {
                FrontProtocol::Redis => ProbeProtocol::Redis(vec![Command::from_args(&["PING"])]),
                FrontProtocol::Memcached => ProbeProtocol::Memcached("version\r\n".to_owned(), "\r\n"),
            };
            let question = ProbeQuestion { address: listen.address.clone(), tls: None, speech };
            doors.push(((&router.id, listen.key, listen.address), question));
        }
    }
    let (doors, questions): (Vec<_>, Vec<_>) = doors.into_iter().unzip();
    for ((id, key, address), answer) in doors.into_iter().zip(ask(questions, patience)?) {
        match answer {
            // An error is an answer, too: it may want a password.
            Ok(ProbeAnswer::Values(_) | ProbeAnswer::Text(_) | ProbeAnswer::Proven) => {
                findings.good(id, &format!("answers clients at {address} ({key})"));
            }
            Err(what) => {
                let what = format!("does not answer clients at {address} ({key}): {what}");
                findings.wrong(id, &what, "start it, mend the address, or stop what else listens there");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{DoctorFindings, Level, judge_upgrade};
    use runtime::status::ClusterStatus;

    #[test]
    fn an_upgrade_begins_where_all_is_well_and_everybody_is_of_one_release() {
        let judged = |releases: &[(&str, &str)], ill: bool| {
            let mut findings = DoctorFindings::default();
            if ill {
                findings.wrong("n0", "does not answer", "start it");
            }
            let releases = releases.iter().map(|(id, release)| ((*id).to_owned(), (*release).to_owned()));
            let status = ClusterStatus { level: 1, releases: releases.collect(), ..ClusterStatus::default() };
            judge_upgrade(&status, &mut findings);
            findings
                .0
                .into_iter()
                .find(|finding| finding.subject == "upgrade")
                .map(|found| (found.level, found.what))
        };
        let of_one = [("n0", "1.2.0"), ("n1", "1.2.0")];
        let found = |level, what: &str| Some((level, what.to_owned()));
        assert_eq!(
            judged(&of_one, false),
            found(Level::Ok, "may begin: every member is of release 1.2.0, at feature level 1")
        );
        let what = "should not begin: every member is of release 1.2.0, but 1 things are wrong";
        assert_eq!(judged(&of_one, true), found(Level::Warning, what));
        let what = "is under way: members are of releases 1.2.0 and 1.3.0, at feature level 1";
        assert_eq!(judged(&[("n0", "1.2.0"), ("n1", "1.3.0")], false), found(Level::Warning, what));
        assert_eq!(judged(&[], false), None);
    }
}
