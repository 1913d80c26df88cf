//! Controllers and admin endpoints over HTTPS: members and this program's commands ask them so, and whoever does it another way
//! is told.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value as Json;

use super::{Authority, ca, table};
use crate::cluster::{Cluster, Layout, distcache, free_port, shared, until};

/// What a command with these arguments prints, and its exit code.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = distcache().args(arguments).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// The states of all members, as `distcache status` has them.
fn states(url: &str, ca_file: &Path) -> Vec<String> {
    let ca_file = ca_file.display().to_string();
    let (code, text) = run(&["status", "--json", "--controller", url, "--ca-file", &ca_file]);
    assert!(matches!(code, Some(0 | 3)), "{code:?} {text}");
    let status: Json = serde_json::from_str(&text).expect("status prints JSON");
    let members = status["members"].as_array().expect("a list").iter();
    members.map(|member| member["state"].as_str().expect("a word").to_owned()).collect()
}

fn all_up(url: &str, ca_file: &Path) {
    until("everybody is up", || states(url, ca_file).iter().all(|state| state == "up").then_some(()));
}

#[test]
fn controllers_and_admin_endpoints_are_asked_over_tls() {
    let _machine = shared();
    let authority = Authority::new();
    authority.sign("http");
    let admin = free_port();
    let tables = table(&authority, "http", "http", &ca(&authority));
    let router_keys = format!("admin = \"127.0.0.1:{admin}\"");
    let mut cluster = Cluster::apart(Layout { tables, router_keys, ..Layout::embedded(1) });
    let place = cluster.layout.controller.to_string();
    let (plain, secured) = (format!("http://{place}"), format!("https://{place}"));
    let config = cluster.config.display().to_string();
    all_up(&secured, &authority.path("ca.crt"));

    // A change takes everything from the file.
    for verb in [&["drain", "leaf-0"][..], &["drain", "leaf-0", "--undo"]] {
        let asked = [verb, &["--controller", &place, "--config", &config]].concat();
        let (code, text) = run(&asked);
        assert_eq!(code, Some(0), "{text}");
    }
    let (_, text) = run(&["doctor", "--config", &config]);
    let ready =
        [format!("ready ({secured}/ready)"), format!("ready (https://127.0.0.1:{admin}/ready?strict)")];
    assert!(ready.iter().all(|ready| text.contains(ready)), "{text}");

    let other = Authority::new();
    other.sign("http");
    let other_ca = other.path("ca.crt").display().to_string();
    for (arguments, expected, code) in [
        (&["--controller", &plain][..], "this endpoint speaks TLS ([tls.http]): write https://", 1),
        (&["--controller", &secured], "--ca-file FILE is missing, the ca_file of [tls.http]", 2),
        (&["--controller", &secured, "--ca-file", &other_ca], "--ca-file is who signs its certificate", 1),
        (&["--controller", &secured, "--ca-file", "/nowhere"], "--ca-file = \"/nowhere\"", 2),
    ] {
        let (found, text) = run(&[&["status"], arguments].concat());
        assert!(found == Some(code) && text.contains(expected), "{found:?} {text}");
    }

    // Another CA, and certificates of it, while everything runs.
    for file in ["ca.crt", "http.crt", "http.key"] {
        std::fs::copy(other.path(file), authority.path(file)).expect("copied");
    }
    for id in cluster.layout.ids() {
        cluster.signal(&id, Signal::HUP);
        let log = "certificates reloaded";
        until(log, || cluster.process(&id).log().contains(log).then_some(()));
    }
    all_up(&secured, &other.path("ca.crt"));
}

#[test]
fn an_endpoint_without_tls_says_so() {
    let _machine = shared();
    let authority = Authority::new();
    let cluster = Cluster::up(Layout::embedded(1));
    let url = format!("https://{}", cluster.layout.controller);
    let ca_file = authority.path("ca.crt").display().to_string();
    let (code, text) = run(&["status", "--controller", &url, "--ca-file", &ca_file]);
    assert!(code == Some(1) && text.contains("without [tls.http] write http://"), "{code:?} {text}");
}
