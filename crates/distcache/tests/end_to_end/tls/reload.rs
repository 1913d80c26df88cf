//! New certificates in a running process: nobody is disconnected, and broken files change nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::process::Signal;

use super::client::TlsClient;
use super::{Authority, table};
use crate::cluster::{Cluster, Layout, UP, free_port, shared, until};

struct Running {
    authority: Authority,
    cluster: Cluster,
    port: u16,
    admin: u16,
}

fn running() -> Running {
    let authority = Authority::new();
    authority.sign("router");
    let (port, admin) = (free_port(), free_port());
    let router_keys = format!("listen_tls = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:{admin}\"");
    let tables = table(&authority, "clients", "router", "");
    let cluster = Cluster::up(Layout { router_keys, tables, ..Layout::embedded(1) });
    Running { authority, cluster, port, admin }
}

impl Running {
    fn connect(&self) -> TlsClient {
        let mut client = TlsClient::connect(&self.authority, self.port).expect("a connection");
        client.ping().expect("a reply");
        client
    }

    fn metric(&self, name: &str) -> i64 {
        let url = format!("http://127.0.0.1:{}/metrics", self.admin);
        let text = ureq::get(url).call().expect("metrics").body_mut().read_to_string().expect("text");
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}:\n{text}"));
        line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("a number")
    }

    fn post(&self) -> (u16, String) {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let url = format!("http://127.0.0.1:{}/certificates/reload", self.admin);
        let request = ureq::Agent::new_with_config(config)
            .post(url)
            .header("x-distcache-command", self.cluster.token());
        let mut reply = request.send_empty().expect("an answer");
        (reply.status().as_u16(), reply.body_mut().read_to_string().expect("text"))
    }
}

#[test]
fn new_certificates_come_into_use_under_load_without_a_failed_request() {
    let _machine = shared();
    let mut running = running();
    let mut old = running.connect();
    let (done, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let port = running.port;
    std::thread::scope(|scope| {
        let load = |keeps: bool| {
            let (authority, done, requests) = (&running.authority, &done, &requests);
            move || {
                let mut kept = None;
                while !done.load(Ordering::Relaxed) {
                    let mut client = kept.take().unwrap_or_else(|| {
                        TlsClient::connect(authority, port).expect("no connection is refused")
                    });
                    client.ping().expect("no request fails");
                    requests.fetch_add(1, Ordering::Relaxed);
                    kept = Some(client).filter(|_| keeps);
                }
            }
        };
        scope.spawn(load(true));
        scope.spawn(load(false));
        let ends = |count: usize| {
            until("the load runs", || (requests.load(Ordering::Relaxed) >= count).then_some(()))
        };
        ends(50);
        let before = old.certificate();
        running.authority.sign("router");
        running.cluster.signal(UP, Signal::HUP);
        until("the new certificate is shown", || (running.connect().certificate() != before).then_some(()));
        ends(requests.load(Ordering::Relaxed) + 50);
        done.store(true, Ordering::Relaxed);
    });
    old.ping().expect("a connection from before goes on");
    assert!(running.metric("distcache_tls_reloads_total{table=\"clients\"}") >= 1);
    assert!(running.metric("distcache_tls_certificate_expires_in_seconds{table=\"clients\"}") > 0);
    let log = running.cluster.process(UP).log();
    assert!(log.contains("certificates reloaded"), "{log}");
}

#[test]
fn broken_files_leave_the_old_certificate_in_use_and_are_named() {
    let _machine = shared();
    let mut running = running();
    let before = running.connect().certificate();
    std::fs::write(running.authority.path("router.crt"), "nothing").expect("written");
    let (code, answer) = running.post();
    assert!(code == 422 && answer.contains("[tls.clients] certificate_file"), "{code} {answer}");
    assert_eq!(running.connect().certificate(), before);
    assert_eq!(running.metric("distcache_tls_reloads_failed_total{table=\"clients\"}"), 1);
    let log = running.cluster.process(UP).log();
    assert!(log.contains("the certificates in use stay: [tls.clients] certificate_file"), "{log}");

    running.authority.sign("router");
    let (code, answer) = running.post();
    assert_eq!((code, answer.as_str()), (200, "{\"reloaded\":true}"));
    assert_ne!(running.connect().certificate(), before);
}
