//! `distcache doctor` before living servers and members: what it finds wrong, and what it says to do. Not every advice.

use serde_json::Value as Json;

use crate::cluster::{Cluster, Layout, RedisServer, distcache, installed, shared, text, until};

/// The exit code, and the findings.
pub(crate) fn doctor(cluster: &Cluster, flags: &[&str]) -> (Option<i32>, Vec<Json>) {
    let mut command = distcache();
    command.args(["doctor", "--json", "--timeout", "30", "--config"]).arg(&cluster.config).args(flags);
    let output = command.output().expect("the doctor runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let findings = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    (output.status.code(), findings)
}

pub(crate) fn found<'a>(findings: &'a [Json], level: &str, what: &str) -> Option<&'a Json> {
    let is_it = |finding: &&Json| {
        finding["level"] == level && finding["what"].as_str().is_some_and(|text| text.contains(what))
    };
    findings.iter().find(is_it)
}

#[test]
fn what_is_wrong_with_storage_is_found_and_nothing_is_left_there() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let mut client = server.connect();
    let cluster = Cluster::unstarted(Layout::new(vec![server.url_with("doc:secret@")]));

    let (code, findings) = doctor(&cluster, &["--storage-only"]);
    let refused = found(&findings, "wrong", "WRONGPASS").unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!(code, Some(1));
    assert!(refused["advice"].as_str().is_some_and(|advice| advice.contains("password")), "{refused}");
    assert!(!findings.iter().any(|finding| finding.to_string().contains("secret@")), "{findings:?}");

    // Fencing needs what it may not do.
    let rules =
        ["ACL", "SETUSER", "doc", "on", ">secret", "~*", "&*", "+@all", "-acl|deluser", "-client|kill"];
    assert_eq!(text(&client.call(&rules)), "OK");
    let (code, findings) = doctor(&cluster, &["--storage-only"]);
    assert_eq!(code, Some(1));
    let refused = found(&findings, "wrong", "refuses ACL DELUSER (NOPERM), CLIENT KILL (NOPERM)");
    let refused = refused.unwrap_or_else(|| panic!("{findings:?}"));
    assert!(refused["advice"].as_str().is_some_and(|advice| advice.contains("ACL SETUSER doc")), "{refused}");

    assert_eq!(text(&client.call(&["ACL", "SETUSER", "doc", "+@all"])), "OK");
    assert_eq!(text(&client.call(&["CONFIG", "SET", "maxmemory", "100mb"])), "OK");
    assert_eq!(text(&client.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])), "OK");
    let (code, findings) = doctor(&cluster, &["--storage-only"]);
    let evicts = found(&findings, "wrong", "maxmemory-policy is allkeys-lru").expect("it evicts");
    assert_eq!(
        (code, &evicts["advice"].as_str().is_some_and(|it| it.contains("noeviction"))),
        (Some(1), &true)
    );

    assert_eq!(text(&client.call(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])), "OK");
    let (code, findings) = doctor(&cluster, &["--storage-only"]);
    assert_eq!(code, Some(0), "{findings:?}");
    assert!(found(&findings, "warning", "no append-only file").is_some(), "{findings:?}");
    assert!(found(&findings, "ok", "mode strict works").is_some(), "{findings:?}");
    let users = format!("{:?}", client.call(&["ACL", "USERS"]));
    assert!(!users.contains("doctor"), "{users}");
}

#[test]
fn members_are_reached_over_every_link_and_those_that_are_not_are_named() {
    let _machine = shared();
    let mut cluster = Cluster::unstarted(Layout::embedded(2));
    let (code, findings) = doctor(&cluster, &[]);
    assert_eq!(code, Some(1));
    assert!(found(&findings, "wrong", "does not answer clients").is_some(), "{findings:?}");
    for id in cluster.layout.ids() {
        cluster.start(&id);
    }
    cluster.wait_linked();
    until("everybody is heard of", || {
        let (code, findings) = doctor(&cluster, &[]);
        (code == Some(0)).then_some(findings)
    });
    let (_, findings) = doctor(&cluster, &[]);
    for part in ["and has this secret", "answers clients at", "ready (http://"] {
        assert!(found(&findings, "ok", part).is_some(), "{part}: {findings:?}");
    }

    // Another secret is no link, and the members go on with theirs.
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    std::fs::write(&cluster.config, toml.replace("0011223344", "ffffffffff")).expect("written");
    let (code, findings) = doctor(&cluster, &[]);
    let refused = found(&findings, "wrong", "proof").unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!(code, Some(1));
    assert!(refused["advice"].as_str().is_some_and(|advice| advice.contains("the same secret")), "{refused}");
    std::fs::write(&cluster.config, toml).expect("written");
    assert_eq!(text(&cluster.connect(0).call(&["SET", "a", "1"])), "OK");

    cluster.kill("shim-1");
    let (code, findings) = doctor(&cluster, &[]);
    assert_eq!(code, Some(1));
    let lost = found(&findings, "wrong", "cannot be linked").expect("it is named");
    assert_eq!(lost["subject"], "shim-1", "{findings:?}");
}
