//! What is looked at first, and what always helps: no cache at all, and no copies of what was there. Not who is lost.

use super::Site;
use super::page::{section, shell};
use crate::cluster::{RedisServer, alone, installed, ok, text, total, until};
use crate::coherence::{hit_ratio, layout};
use crate::history::History;

/// The page's own lines, one after the other.
fn look_first(site: &Site) {
    let url = format!("http://{}", site.cluster.layout.controller);
    for id in ["router-0", "leaf-0", "shim-0"] {
        let admin = site.admins[id].to_string();
        let places = [("http://127.0.0.1:7000", &url[..]), ("ADMIN", &admin)];
        let block = section("Look first").block();
        let told: Vec<_> = block.iter().map(|line| shell(line, &places)).collect();
        assert_eq!(told.len(), 3, "{block:?}");
        // A node has no line of the third kind while all is well.
        let well = |(index, (code, _)): (usize, &(Option<i32>, String))| {
            *code == Some(0) || index == 2 && id == "leaf-0" && *code == Some(1)
        };
        assert!(told.iter().enumerate().all(well), "{id}: {told:?}");
        assert!(told[0].1.contains("ROUTER") && told[0].1.contains("shim-1"), "{told:?}");
        assert!(told[1].1.contains("\"ready\":true"), "{told:?}");
        let metric = match id {
            "router-0" => "distcache_router_breakers_open{id=\"router-0\"} 0",
            "shim-0" => "distcache_shim_storage_up{id=\"shim-0\",rack=\"r0\"} 1",
            _ => "",
        };
        assert!(told[2].1.contains(metric), "{metric}: {}", told[2].1);
    }
}

#[test]
fn the_cache_is_switched_off_and_on_and_emptied_under_load() {
    if !installed(&["redis-server", "curl"]) {
        return;
    }
    let _machine = alone();
    let servers = [RedisServer::durable(), RedisServer::durable()];
    let mut site = Site::apart(layout(&servers));
    let history = History::start(&site.cluster.layout.routers, 6, 2);
    until("copies are hit", || (hit_ratio(&site.cluster.status()) > 0.3).then_some(()));
    until("everybody is heard of", || site.is_well());
    look_first(&site);

    let switch = section("Look first").says("observe_only = true");
    site.reload("[cluster]\n", &format!("[cluster]\n{switch}\n"));
    let hits = |site: &Site| total(&site.cluster.status(), "nodes", "hits_total");
    until("copies are revoked, and every command goes to storage", || {
        let before = hits(&site);
        history.wait_for(300, 30);
        let status = site.cluster.status();
        let copies = total(&status, "shims", "copies") + total(&status, "nodes", "objects");
        (copies == 0 && hits(&site) == before).then_some(())
    });
    site.reload(switch, "observe_only = false");
    let before = hits(&site);
    until("copies are hit again", || (hits(&site) > before + 100).then_some(()));

    let restart = section("What logs say").says("restart needed for [cluster] lease_ms");
    site.rewrite("lease_ms = 1000", "lease_ms = 900");
    let told = site.run(&section("Look first").command("distcache reload"));
    assert!(told.contains(restart), "{told}");
    let log = site.cluster.process("shim-0").log();
    assert!(log.contains(restart), "{log}");
    site.reload("lease_ms = 900", "lease_ms = 1000");

    let purge = section("Stale data").command("distcache purge KEY");
    let mut client = site.cluster.connect(0);
    ok(&mut client, &["SET", "stale", "v"]);
    for scope in ["stale", "--prefix stal", "--all"] {
        until("copies of it are dropped", || {
            (0..50).for_each(|_| assert_eq!(text(&client.call(&["GET", "stale"])), "v"));
            let told = site.run(&purge.replace("KEY", scope));
            assert!(told.ends_with(" copies dropped\n"), "{told}");
            (!told.starts_with("0 ")).then_some(())
        });
    }
    let report = history.finish();
    assert!(report.errors.is_empty(), "clients stay connected: {report:?}");
}
