//! TLS to servers that others name: those of a Redis Cluster, sentinels and what they watch. Not how they move.

use super::members::server_options;
use super::{Authority, ca, table};
use crate::cluster::{Cluster, Layout, RedisCluster, Sentinels, UP, installed, shared, until};
use crate::redis_cluster::{check_commands_over, check_failovers_over, check_moves_over, two_routers};
use crate::sentinel::check_followed;

/// Servers that want certificates, and what shims have to show them.
fn authority() -> Option<(Authority, Vec<String>, String)> {
    if !installed(&["redis-server"]) {
        return None;
    }
    let authority = Authority::new();
    ["redis", "shim"].iter().for_each(|name| authority.sign(name));
    let options = server_options(&authority, true);
    let tables = table(&authority, "storage", "shim", &ca(&authority));
    Some((authority, options, tables))
}

fn start(options: &[String]) -> RedisCluster {
    RedisCluster::with_tls(&options.iter().map(String::as_str).collect::<Vec<_>>())
}

fn layout(storage: &RedisCluster, tables: String) -> Layout {
    two_routers(Layout { tables, ..Layout::new(vec![storage.url_with_tls(); 3]) })
}

#[test]
fn a_redis_cluster_is_served_over_mutual_tls() {
    let Some((_authority, options, tables)) = authority() else { return };
    let _machine = shared();
    check_commands_over(layout(&start(&options), tables));
}

#[test]
fn slots_move_over_mutual_tls() {
    let Some((_authority, options, tables)) = authority() else { return };
    let _machine = shared();
    let storage = start(&options);
    check_moves_over(&storage, layout(&storage, tables));
}

#[test]
fn replicas_of_a_redis_cluster_take_over_behind_mutual_tls() {
    let Some((_authority, options, tables)) = authority() else { return };
    let _machine = shared();
    let storage = start(&options);
    check_failovers_over(&storage, layout(&storage, tables));
}

#[test]
fn sentinels_and_their_servers_are_reached_over_mutual_tls() {
    let Some((_authority, options, tables)) = authority() else { return };
    let _machine = shared();
    let storage = Sentinels::with(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let layout = two_routers(Layout { tables, ..Layout::new(vec![storage.url_with_tls()]) });
    check_followed(storage, layout);
}

/// Servers are asked about the others before anything else: what is wrong with that is said, too.
#[test]
fn what_is_wrong_toward_a_redis_cluster_is_in_the_log() {
    let Some((authority, options, tables)) = authority() else { return };
    let _machine = shared();
    let storage = start(&options);
    let reason = "the other end's certificate is refused";
    let wrong = tables.replace("[tls.storage]", "[tls.storage]\nserver_name = \"storage.example\"");
    let other = Authority::new();
    let stranger = tables.replace(&ca(&authority), &ca(&other));
    for (tables, reason) in [(wrong, "storage.example is wanted"), (stranger, reason)] {
        let mut cluster = Cluster::unstarted(layout(&storage, tables));
        cluster.start(UP);
        until(reason, || cluster.process(UP).log().contains(reason).then_some(()));
    }
}
