//! A group of Redis servers that sentinels watch, as storage. Not how sentinels agree.

use crate::cluster::{Cluster, Layout, Sentinels, installed, shared, text, until};
use crate::history::History;
use crate::redis_cluster::{check_truth, two_routers};

#[test]
fn the_primary_that_sentinels_choose_is_followed() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = Sentinels::start();
    let layout = two_routers(Layout::new(vec![storage.url()]));
    check_followed(storage, layout);
}

pub(crate) fn check_followed(mut storage: Sentinels, layout: Layout) {
    let cluster = Cluster::up(layout);
    for by_hand in [true, false] {
        let history = History::start(&cluster.layout.routers, 6, 2);
        history.wait_for(2000, 200);
        let keys = history.keys();
        let report = history.finish();
        assert!(report.errors.is_empty(), "{report:?}");
        let before = storage.primary();
        if by_hand {
            storage.fail_over();
        } else {
            storage.servers[before].kill();
        }
        // Until a client of sentinels has heard of it, the old primary takes writes that nobody will see again.
        let after = until("the shim has followed to another server", || {
            let primary = storage.primary();
            (primary != before && !storage.servers[primary].shim_users().is_empty()).then_some(primary)
        });
        let mut clients = [cluster.connect(0), cluster.connect(1)];
        // Redis may lose what the replica has not got; what is cached must then be what is left.
        check_truth(&mut clients, &keys, |_| storage.servers[after].connect());
        let counted = text(&storage.servers[after].connect().call(&["DBSIZE"]));
        assert_eq!(text(&clients[0].call(&["DBSIZE"])), counted);
        assert_eq!(text(&clients[0].call(&["FLUSHALL"])), "OK");
        if by_hand {
            storage.wait_whole();
        }
    }
}
