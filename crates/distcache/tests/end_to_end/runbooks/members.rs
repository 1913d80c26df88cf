//! One member of each kind is lost, hangs or has another file, and is helped as the page says. Hosts and etcd are in files of their own.

use rustix::process::Signal;
use wire::resp::Value;

use super::Site;
use super::page::section;
use crate::cluster::{Layout, RedisServer, alone, installed, loopback, ok, shared, text, until};
use crate::coherence::{hit_ratio, layout};
use crate::history::{History, ROUTER_LOST};

/// Until the status tells who is lost, in the page's words, and the controller counts it.
fn until_lost(site: &Site, id: &str, words: &'static str) {
    let words = section("A member is lost").says(words).replace("...", id);
    until("the status tells who is lost", || {
        let (code, shown) = site.status();
        (code == Some(3) && shown.trim_end().ends_with(&words)).then_some(())
    });
    until("it is counted", || site.above_zero("controller", "distcache_controller_members_down", ""));
}

fn no_errors(history: &History, what: &str) {
    history.wait_without_errors(300, 20, what);
}

#[test]
fn one_of_each_kind_is_lost_and_started_again() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let controller_keys = "return_step_ms = 200".to_owned();
    // Routers that learn would soon not ask a node that hangs.
    let mut site = Site::apart(Layout { controller_keys, routing: "on-path", spines: 2, ..layout(&servers) });
    let history = History::roaming(&site.cluster.layout.routers, 6, 4);
    until("copies are hit", || (hit_ratio(&site.cluster.status()) > 0.3).then_some(()));
    until("everybody is heard of", || site.is_well());

    site.cluster.kill("spine-0");
    until_lost(&site, "spine-0", "no heartbeat from, partition taken over: ...");
    no_errors(&history, "without a node");
    let waited = section("Writes are slow").says("distcache_shim_leases_lost_total");
    until("writes have waited for its lease", || {
        ["shim-0", "shim-1"].iter().find_map(|shim| site.above_zero(shim, waited, ""))
    });
    site.cluster.start("spine-0");
    until("it is there again", || site.is_well());

    let open = section("A member is lost").says("distcache_router_breakers_open");
    site.cluster.signal("spine-1", Signal::STOP);
    until("routers leave it alone", || {
        ["router-0", "router-1"].iter().find_map(|router| site.above_zero(router, open, ""))
    });
    no_errors(&history, "while a node hangs");
    site.cluster.kill("spine-1");
    site.cluster.start("spine-1");
    until("it is asked again", || {
        let open = ["router-0", "router-1"].map(|router| site.metric(router, open, ""));
        (open == [Some(0.0); 2]).then_some(())
    });
    until("it is there again", || site.is_well());
    no_errors(&history, "after it was restarted");

    site.cluster.kill("controller");
    no_errors(&history, "without a controller");
    site.cluster.start("controller");
    until("everybody is heard of again", || site.is_well());
    no_errors(&history, "with a controller again");

    site.cluster.kill("router-1");
    history.wait_for_error(ROUTER_LOST);
    until_lost(&site, "router-1", "no heartbeat from: ...");
    history.report();
    no_errors(&history, "without a router");
    site.cluster.start("router-1");

    lose_a_shim(&mut site, &history);
    history.finish();
}

fn lose_a_shim(site: &mut Site, history: &History) {
    let page = section("A member is lost");
    site.cluster.wait_linked();
    site.cluster.kill("shim-0");
    history.wait_for_error(page.says("is not reachable; the command was not executed"));
    until_lost(site, "shim-0", "no heartbeat from: ...");
    let rule = "rule=\"unavailable\"";
    until("the rule is counted", || site.above_zero("router-0", "distcache_router_sheds_total", rule));
    let mut client = site.cluster.connect(0);
    let served = (0..40).filter(|key| {
        let reply = text(&client.call(&["SET", &format!("beside:{key}"), "v"]));
        assert!(reply == "OK" || reply.contains("shim-0 is not reachable"), "{reply}");
        reply == "OK"
    });
    let served = served.count();
    assert!((1..40).contains(&served), "keys of the other server are served: {served}");
    until("its nodes tell what they lack", || {
        let told = crate::status::http(site.admins["leaf-0"], "/ready");
        told.contains("does not reach shim-0").then_some(())
    });
    site.cluster.start("shim-0");
    site.cluster.wait_linked();
    history.wait_for_each_key();
    history.report();
    no_errors(history, "after the shim was started again");
    until("everybody is there", || site.is_well());
}

#[test]
fn a_member_with_another_file_serves_nothing_until_it_has_that_of_the_others() {
    let _machine = shared();
    let page = section("A member is refused");
    let layout = Layout { routers: vec![loopback(), loopback()], ..Layout::embedded(3) };
    let mut site = Site::unstarted(layout);
    let ids = site.cluster.layout.ids();
    ids.iter().filter(|id| *id != "router-1").for_each(|id| site.cluster.start(id));
    let whole = std::fs::read_to_string(&site.cluster.config).expect("the file");
    let (before, last) = whole.rsplit_once("[[shim]]\n").expect("shims");
    let (_, routers) = last.split_once("[[router]]\n").expect("routers");
    let write = |site: &Site, file: &str| std::fs::write(&site.cluster.config, file).expect("written");
    write(&site, &format!("{before}[[router]]\n{routers}"));
    site.cluster.start("router-1");
    let told = [
        page.says("the controller refuses router-1: [[shim]] entries: 3 here and 2 there"),
        page.says("shim-0: router 1: [[shim]] entries: 3 here and 2 there"),
    ];
    until("the status tells who is refused", || {
        let (code, shown) = site.status();
        let row = site.row("router-1")?;
        (code == Some(3) && told.iter().all(|told| shown.contains(told)) && row.contains("router-1 refused"))
            .then_some(())
    });
    let refused = page.says("distcache_shim_peers_refused");
    until("shims count it", || site.above_zero("shim-0", refused, ""));
    let reply = site.cluster.connect(1).call(&["GET", "k"]);
    assert!(matches!(reply, Value::Error(_)), "{reply:?}");

    write(&site, &whole.replace("00112233", "ffffffff"));
    site.cluster.kill("router-1");
    site.cluster.start("router-1");
    let proof = page.says("the proof is wrong");
    until("its log says so", || site.cluster.process("router-1").log().contains(proof).then_some(()));
    let log = section("What logs say");
    let log = [log.says("link not made"), log.says("suppressed"), log.says("reason")];
    let written = site.cluster.process("router-1").log();
    assert!(written.lines().any(|line| log.iter().all(|word| line.contains(word))), "{written}");

    write(&site, &whole);
    site.cluster.kill("router-1");
    site.cluster.start("router-1");
    site.cluster.wait_linked();
    ok(&mut site.cluster.connect(1), &["SET", "k", "v"]);
    until("nobody is refused", || {
        site.is_well()?;
        (site.metric("shim-0", refused, "")? == 0.0).then_some(())
    });
}

#[test]
fn a_router_that_knows_nothing_yet_says_so() {
    let _machine = shared();
    let tables = "[security]\nusers = \"storage\"\n".to_owned();
    let mut site = Site::unstarted(Layout { tables, ..Layout::new(vec![format!("redis://{}", loopback())]) });
    site.cluster.start("router-0");
    section("Clients get other errors").says("`-LOADING ... users of storage`");
    let told = text(&site.cluster.connect(0).call(&["GET", "k"]));
    assert!(told.starts_with("LOADING ") && told.contains("users of storage"), "{told}");
}

#[test]
fn a_new_node_is_refused_until_the_controller_is_told_of_it() {
    let _machine = shared();
    let mut site = Site::apart(Layout::embedded(1));
    let listen = loopback();
    site.cluster.append(&format!("[[node]]\nid = \"spine-1\"\nlayer = \"spine\"\nlisten = \"{listen}\"\n"));
    site.cluster.start("spine-1");
    let page = section("What logs say");
    let told = [
        page.says("no controller takes heartbeats"),
        page.says("is not a node in the controller's configuration"),
    ];
    until("its log says so", || {
        let log = site.cluster.process("spine-1").log();
        told.iter().all(|told| log.contains(told)).then_some(())
    });
    site.run(&section("Look first").command("distcache reload"));
    until("it is there", || site.row("spine-1").filter(|row| row.starts_with("spine-1 up")).map(drop));
}
