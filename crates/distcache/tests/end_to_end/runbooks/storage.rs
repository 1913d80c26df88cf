//! A storage server that is lost, hangs, is empty or has another shim: what is seen of it, and when it is over. Not how shims find out.

use rustix::process::Signal;
use wire::resp::{Command, Value};

use super::Site;
use super::page::section;
use crate::cluster::{Client, Cluster, Layout, RedisServer, alone, installed, text, until};
use crate::status::http;

/// A write of a key of this shim's.
fn write_of(site: &Site, shim: &str) -> [String; 3] {
    let inspect = |number: usize| {
        let key = format!("k{number}");
        let told = site.run(&format!("distcache inspect {key} --controller URL"));
        told.contains(&format!("stored behind {shim} ")).then(|| ["SET".to_owned(), key, "v".to_owned()])
    };
    (0..100).find_map(inspect).expect("each shim has some of them")
}

fn call(client: &mut Client, command: &[String; 3]) -> String {
    text(&client.call(&command.each_ref().map(String::as_str)))
}

fn until_up(site: &Site) {
    let up = section("A storage server is lost").says("distcache_shim_storage_up");
    until("storage is up", || (site.metric("shim-0", up, "")? == 1.0).then_some(()));
}

fn lost(site: &Site, server: &mut RedisServer) {
    let page = section("A storage server is lost");
    let (mut client, write) = (site.cluster.connect(0), write_of(site, "shim-0"));
    server.kill();
    let up = page.says("distcache_shim_storage_up");
    until("it is seen", || (site.metric("shim-0", up, "")? == 0.0).then_some(()));
    page.says("`status` shows `down` in the column STORAGE");
    until("the status shows it", || site.row("shim-0").filter(|row| row.ends_with(" down")).map(drop));
    let down = page.says("storage is down");
    until("it is not ready", || http(site.admins["shim-0"], "/ready").contains(down).then_some(()));
    let refused = call(&mut client, &write);
    assert!(refused.contains("storage"), "the reason: {refused}");
    server.run();
    until("the shim connects by itself", || (call(&mut client, &write) == "OK").then_some(()));
    until_up(site);
}

/// A shim that is killed while its server does nothing, and started again.
fn outcome(site: &mut Site, server: &mut RedisServer) {
    let (mut client, write) = (site.cluster.connect(0), write_of(site, "shim-0"));
    until("nothing is in the way", || (call(&mut client, &write) == "OK").then_some(()));
    server.process().signal(Signal::STOP);
    client.write(Command::from_args(&["INCRBY", &write[1], "1"]).frame()).expect("written");
    until("storage has it", || site.above_zero("shim-0", "distcache_shim_storage_pending", ""));
    site.cluster.kill("shim-0");
    let told = text(&Value::parse(&client.frame().expect("a reply")).expect("RESP"));
    section("Clients get other errors").says("an error that says the outcome is unknown");
    assert!(told.contains("outcome is unknown"), "{told}");
    server.process().signal(Signal::CONT);
    site.cluster.start("shim-0");
    let words = section("Writes are slow");
    words.says("`distcache status` tells for how long yet (`writes wait 57 s`)");
    until("the status tells", || site.row("shim-0").filter(|row| row.contains("writes wait")).map(drop));
    let hold = words.says("distcache_shim_hold_milliseconds");
    until("it is counted", || site.above_zero("shim-0", hold, ""));
    until("writes wait no longer", || (call(&mut client, &write) == "OK").then_some(()));
}

/// Other shims of the same names are before the servers, while the first hang.
fn taken_over(site: &mut Site, servers: &[RedisServer]) {
    let page = section("A storage server is lost");
    let shims = ["shim-0", "shim-1"];
    shims.iter().for_each(|shim| site.cluster.signal(shim, Signal::STOP));
    let mut other = Cluster::apart(Layout { lease_ms: 3000, ..Layout::before(servers) });
    shims.iter().for_each(|shim| site.cluster.signal(shim, Signal::CONT));
    let told = page.says("another process of this shim has taken the server over");
    until("its log says so", || site.cluster.process("shim-0").log().contains(told).then_some(()));
    let stands = page.says("distcache_shim_standing_by");
    until("it stands by", || site.above_zero("shim-0", stands, ""));
    for shim in shims {
        other.process(shim).signal(Signal::TERM);
        assert_eq!(other.process(shim).wait().code(), Some(0));
    }
    until_up(site);
    let (mut client, write) = (site.cluster.connect(0), write_of(site, "shim-0"));
    until("the older serves again", || (call(&mut client, &write) == "OK").then_some(()));
}

fn emptied(site: &mut Site, server: &mut RedisServer) {
    let page = section("Writes are slow");
    let (mut client, write) = (site.cluster.connect(0), write_of(site, "shim-1"));
    until("it is served", || (call(&mut client, &write) == "OK").then_some(()));
    site.cluster.kill("shim-1");
    server.kill();
    server.run();
    site.cluster.start("shim-1");
    let told = page.says("no shim has left a record of its leases here");
    until("its log says so", || site.cluster.process("shim-1").log().contains(told).then_some(()));
    until("the status tells for how long yet", || {
        let row = site.row("shim-1")?;
        let seconds: u64 = row.split_once("writes wait ")?.1.split(' ').next()?.parse().ok()?;
        (seconds > 30).then_some(())
    });
    let refused =
        until("it is refused", || Some(call(&mut client, &write)).filter(|told| told.starts_with("BUSY")));
    page.says("so do the errors that clients get");
    assert!(
        refused.contains("may run at this storage server for ") && refused.contains(" s more"),
        "{refused}"
    );
}

#[test]
fn a_server_is_lost_hangs_is_taken_over_and_comes_back_empty() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut servers = [RedisServer::durable(), RedisServer::start()];
    let tables = "[limits]\nqueue_ms_max = 7000\n".to_owned();
    let mut site = Site::apart(Layout { tables, lease_ms: 3000, ..Layout::before(&servers) });
    lost(&site, &mut servers[0]);
    outcome(&mut site, &mut servers[0]);
    taken_over(&mut site, &servers);
    emptied(&mut site, &mut servers[1]);
}
