//! Certificates that expire, are broken, or are shown by nobody: what is seen of it and that new files end it. Not the handshake.

use std::io::Write;
use std::net::TcpStream;

use rustix::process::Signal;

use super::Site;
use super::page::{page, section, shell};
use crate::cluster::{Layout, free_port, installed, shared, until};
use crate::tls::{Authority, TlsClient, table};

const TWO_WEEKS_S: f64 = 14.0 * 24.0 * 3600.0;

struct Trial {
    site: Site,
    authority: Authority,
    port: u16,
}

impl Trial {
    fn metric(&self, name: &'static str) -> f64 {
        let name = section("Certificates").says(name);
        until(name, || self.site.metric("router-0", name, "table=\"clients\""))
    }

    /// What the page on security has for those who do not send SIGHUP.
    fn reload(&self) -> String {
        let page = page("security.md");
        let mut commands = page.split('`').filter(|part| part.starts_with("curl -X POST"));
        let command = commands.next().expect("the command").replace("curl", "curl -s");
        let file = self.site.cluster.config.display().to_string();
        let admin = self.site.admins["router-0"].to_string();
        let (code, told) = shell(&command, &[("ADMIN", &admin), ("FILE", &file)]);
        assert_eq!(code, Some(0), "{told}");
        told
    }

    fn connects(&self) -> Option<TlsClient> {
        let mut client = TlsClient::connect(&self.authority, self.port).ok()?;
        client.ping().is_ok().then_some(client)
    }
}

#[test]
fn certificates_expire_and_are_replaced_while_clients_stay() {
    if !installed(&["curl"]) {
        return;
    }
    let _machine = shared();
    let (authority, port) = (Authority::new(), free_port());
    authority.sign("router");
    let router_keys = format!("listen_tls = \"127.0.0.1:{port}\"");
    let tables = table(&authority, "clients", "router", "");
    let site = Site::apart(Layout { router_keys, tables, ..Layout::embedded(1) });
    let mut trial = Trial { site, authority, port };
    let mut stays = trial.connects().expect("a client");

    let mut plain = TcpStream::connect(("127.0.0.1", port)).expect("the port accepts");
    plain.write_all(b"PING\r\n").expect("written");
    until("it is counted", || (trial.metric("distcache_tls_handshakes_failed_total") > 0.0).then_some(()));
    let log = trial.site.cluster.process("router-0").log();
    assert!(log.contains("a TLS handshake has failed") && log.contains("127.0.0.1"), "{log}");

    let expires = "distcache_tls_certificate_expires_in_seconds";
    assert!(trial.metric(expires) > TWO_WEEKS_S);
    trial.authority.sign_until("router", 2020);
    trial.site.cluster.signal("router-0", Signal::HUP);
    until("it has expired", || (trial.metric(expires) < 0.0).then_some(()));
    assert!(trial.connects().is_none(), "others refuse it");
    stays.ping().expect("connections that stand go on");
    trial.authority.sign("router");
    assert_eq!(trial.reload(), "{\"reloaded\":true}");
    until("new clients come in", || trial.connects());
    assert!(trial.metric(expires) > TWO_WEEKS_S);

    std::fs::write(trial.authority.path("router.crt"), "nothing").expect("written");
    trial.site.cluster.signal("router-0", Signal::HUP);
    until("it is counted", || (trial.metric("distcache_tls_reloads_failed_total") > 0.0).then_some(()));
    let log = trial.site.cluster.process("router-0").log();
    let (_, told) = log.rsplit_once("[tls.clients] ").expect("which file and why");
    let told = told.lines().next().expect("a line").split('"').next().expect("the beginning");
    let check = section("Certificates").command("distcache check");
    let (code, checked) = trial.site.shell(&check);
    assert!(code != Some(0) && checked.contains(told.trim()), "{told}: {checked}");
    assert!(trial.connects().is_some(), "the old stay in use");
    trial.authority.sign("router");
    trial.site.cluster.signal("router-0", Signal::HUP);
    until("the file is taken", || trial.site.shell(&check).0.filter(|code| *code == 0));
    stays.ping().expect("connections that stand go on");
}
