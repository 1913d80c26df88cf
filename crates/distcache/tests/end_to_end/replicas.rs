//! Controllers that share an etcd, and what happens while some or all of them are gone, or all that they knew. Not what one of them
//! decides.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::backup::copy;
use crate::cluster::{
    Cluster, Directory, Etcd, Layout, RedisServer, alone, installed, loopback, ok, text, until,
};
use crate::coherence::{hit_ratio, layout};
use crate::history::History;
use crate::status::http;

/// What a controller says; nothing while it does not answer.
pub(crate) fn ask(controller: SocketAddr, path: &str) -> Option<Json> {
    std::net::TcpStream::connect(controller).ok()?;
    let reply = http(controller, path);
    serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
}

/// The map's epoch and what each node owns, in thousandths.
pub(crate) fn shares(controller: SocketAddr) -> Option<(u64, Vec<(String, u64)>)> {
    let map = ask(controller, "/v1/map")?;
    let layers = map["layers"].as_array()?.iter();
    let nodes = layers.flat_map(|layer| layer["nodes"].as_array().into_iter().flatten());
    let share = |node: &Json| {
        Some((node["id"].as_str()?.to_owned(), (node["share"].as_f64()? * 1000.0).round() as u64))
    };
    Some((map["epoch"].as_u64()?, nodes.map(share).collect::<Option<_>>()?))
}

pub(crate) fn share_of(controller: SocketAddr, node: &str) -> Option<u64> {
    let (_, shares) = shares(controller)?;
    shares.into_iter().find(|(id, _)| id == node).map(|(_, share)| share)
}

fn all_whole(controller: SocketAddr) -> Option<u64> {
    let (epoch, shares) = shares(controller)?;
    shares.iter().all(|(_, share)| *share == 1000).then_some(epoch)
}

struct Trial {
    cluster: Cluster,
    etcd: Etcd,
    history: History,
    controllers: [SocketAddr; 2],
    _servers: [RedisServer; 2],
}

impl Trial {
    /// Two controllers on one etcd, clients at work, and copies that are hit.
    fn start() -> Trial {
        let etcd = Etcd::start();
        let servers = [RedisServer::durable(), RedisServer::durable()];
        let controller_keys = format!("store = \"{}\"\nreturn_step_ms = 300", etcd.store());
        let replicas = vec![([127, 0, 0, 1], crate::cluster::free_port()).into()];
        let layout = Layout { spines: 2, controller_keys, replicas, ..layout(&servers) };
        let controllers = [layout.controller, layout.replicas[0]];
        let cluster = Cluster::apart(layout);
        let history = History::start(&cluster.layout.routers, 6, 2);
        until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
        until("every member is registered", || (etcd.members()? == 7).then_some(()));
        Trial { cluster, etcd, history, controllers, _servers: servers }
    }

    /// The highest epoch that any member acts on; nothing while none has been heard of.
    fn epoch(&self) -> Option<u64> {
        let status = self.cluster.status();
        let members =
            ["nodes", "shims", "routers"].iter().flat_map(|list| status[*list].as_array().expect(list));
        members.map(|member| member["epoch"].as_u64().expect("an epoch")).max()
    }

    /// Another life of etcd, which knows what `data` says, or nothing.
    fn etcd_with(&mut self, data: Option<&Path>) {
        self.etcd.kill();
        let place = self.etcd.data();
        std::fs::remove_dir_all(&place).expect("it had data");
        if let Some(data) = data {
            copy(data, &place);
        }
        self.etcd.run();
    }

    /// Until both controllers tell, and every member acts on, one map of at least this epoch in which `spine-1` owns so much. The
    /// epoch that members act on never falls meanwhile.
    fn until_agreed(&self, epoch: u64, share: u64) {
        let [first, second] = self.controllers;
        let mut least = 0;
        until(&format!("a map of {epoch} or later, with {share} thousandths for spine-1"), || {
            let now = self.epoch()?;
            assert!(now >= least, "{now} after {least}");
            least = now;
            let map = shares(first).filter(|map| shares(second).as_ref() == Some(map))?;
            let own = map.1.iter().find(|(id, _)| id == "spine-1").map(|(_, share)| *share)?;
            (map.0 >= epoch && map.0 == now && own == share && self.etcd.members()? == 7).then_some(())
        });
    }

    fn no_errors(&self, what: &str) {
        self.history.wait_without_errors(500, 50, what);
    }
}

fn say(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// Until the map gives a node nothing, which was just killed or can just be noticed; how long that took is reported, and asserted in virtual time elsewhere.
fn until_remapped(controller: SocketAddr, node: &str) {
    let start = Instant::now();
    until("the map is without the node", || (share_of(controller, node)? == 0).then_some(()));
    say(&format!("{node} lost its partition after {:?}", start.elapsed()));
}

/// Until a node owns all of its partition again, in steps that only grow: quarters, with a map each, of which a busy machine may
/// not see every one.
fn until_returned(controller: SocketAddr, node: &str) {
    let mut seen: Vec<(u64, u64)> = Vec::new();
    until("the node owns its partition again", || {
        let (epoch, shares) = shares(controller)?;
        let share = shares.into_iter().find(|(id, _)| id == node).map(|(_, share)| share)?;
        assert!(seen.last().is_none_or(|(_, before)| share >= *before), "{share} after {seen:?}");
        seen.push((epoch, share));
        (share == 1000).then_some(())
    });
    let ((first, share), (last, _)) = (seen[0], seen[seen.len() - 1]);
    assert!(last - first >= (1000 - share) / 250, "not at once: {seen:?}");
}

#[test]
fn one_controller_of_two_is_enough_to_lose_a_node_and_take_it_back() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
    let [first, second] = trial.controllers;
    until("both serve the same map", || (shares(first)? == shares(second)?).then_some(()));
    let epoch = all_whole(second).expect("nobody was lost");
    trial.cluster.kill("controller");
    trial.no_errors("with one controller");
    trial.cluster.kill("spine-0");
    until_remapped(second, "spine-0");
    trial.no_errors("without spine-0");
    trial.cluster.start("controller");
    trial.cluster.start("spine-0");
    until_returned(first, "spine-0");
    until("both serve the same map", || (shares(first)? == shares(second)?).then_some(()));
    let (later, _) = shares(first).expect("it answers");
    assert!(later >= epoch + 4, "{epoch}, then {later}");
    trial.no_errors("after its return");
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

#[test]
fn all_controllers_or_all_of_etcd_gone_costs_nobody_anything() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
    let [first, second] = trial.controllers;
    let epoch = all_whole(first).expect("nobody was lost");

    trial.cluster.kill("controller");
    trial.cluster.kill("controller-1");
    until("every lease has ended", || (trial.etcd.members()? == 0).then_some(()));
    trial.no_errors("without a controller");
    trial.cluster.start("controller");
    trial.cluster.start("controller-1");
    until("every member is there again", || (trial.etcd.members()? == 7).then_some(()));
    trial.no_errors("with controllers again");
    assert_eq!(
        (all_whole(first), all_whole(second)),
        (Some(epoch), Some(epoch)),
        "nobody was taken for lost"
    );

    trial.etcd.kill();
    let store_up = |controller: SocketAddr, up: bool| {
        let line = format!("distcache_controller_store_up{{id=\"controller\"}} {}\n", u8::from(up));
        http(controller, "/metrics").contains(&line).then_some(())
    };
    until("the controllers miss it", || store_up(first, false));
    // For longer than leases last, as the controllers count: their statuses come from heartbeats.
    let away = Instant::now();
    until("leases would have ended", || (away.elapsed() > Duration::from_secs(3)).then_some(()));
    trial.no_errors("without etcd");
    assert_eq!(all_whole(first), Some(epoch));
    // A node that is lost meanwhile is found out afterwards, and none but it.
    trial.cluster.kill("spine-1");
    trial.no_errors("without etcd and spine-1");
    trial.etcd.run();
    until("the controllers have it back", || store_up(first, true));
    until_remapped(second, "spine-1");
    until("both serve the same map", || (shares(first)? == shares(second)?).then_some(()));
    let (_, shares) = shares(first).expect("it answers");
    let lost: Vec<&str> =
        shares.iter().filter(|(_, share)| *share < 1000).map(|(id, _)| id.as_str()).collect();
    assert_eq!(lost, ["spine-1"]);
    trial.cluster.start("spine-1");
    until_returned(second, "spine-1");
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

/// Nothing of etcd needs a backup: who serves knows it, or it is made anew.
#[test]
fn an_etcd_that_has_lost_everything_or_is_an_older_one_costs_nobody_anything() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
    let [first, _] = trial.controllers;
    until("it is drained", || trial.cluster.command(first, &["drain", "spine-1"]).ok().map(drop));
    trial.until_agreed(2, 0);
    let epoch = trial.epoch().expect("members are heard of");
    trial.etcd.kill();
    let older = Directory::new();
    copy(&trial.etcd.data(), older.path());

    trial.etcd_with(None);
    trial.until_agreed(epoch, 0);
    trial.no_errors("after etcd has lost everything");

    // The controllers as well: what was drained is known to nobody, and members know only how far they were.
    trial.cluster.kill("controller");
    trial.cluster.kill("controller-1");
    trial.etcd_with(None);
    trial.no_errors("without controllers and all that they knew");
    trial.cluster.start("controller");
    trial.cluster.start("controller-1");
    trial.until_agreed(epoch + 1, 1000);
    trial.no_errors("with controllers that know nothing");

    // What an older etcd says of drained nodes counts, and its epoch does not.
    let epoch = trial.epoch().expect("members are heard of");
    trial.etcd_with(Some(older.path()));
    trial.until_agreed(epoch + 1, 0);
    trial.no_errors("with an older etcd");
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

#[test]
fn a_cluster_that_was_stopped_starts_again_without_what_etcd_knew() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
    let client = |trial: &Trial| trial.cluster.connect(0);
    let keys: Vec<String> = (0..100).map(|key| format!("kept:{key}")).collect();
    keys.iter().for_each(|key| ok(&mut client(&trial), &["SET", key, key]));
    trial.history.stop();
    let ids = trial.cluster.layout.ids();
    ids.iter().for_each(|id| trial.cluster.kill(id));
    trial.etcd_with(None);
    ids.iter().for_each(|id| trial.cluster.start(id));
    trial.cluster.wait_linked();
    trial.until_agreed(1, 1000);
    let mut client = client(&trial);
    for round in ["kept", "again"] {
        for key in &keys {
            let expected = key.replace("kept", round);
            assert_eq!(text(&client.call(&["GET", key])), expected);
            ok(&mut client, &["SET", key, &key.replace("kept", "again")]);
        }
    }
}

/// All processes end, and begin anew with this in the table of the first leaf.
fn with_another_leaf(trial: &mut Trial, change: impl FnOnce(&str) -> String) {
    let ids = trial.cluster.layout.ids();
    ids.iter().for_each(|id| trial.cluster.kill(id));
    let file = std::fs::read_to_string(&trial.cluster.config).expect("the file");
    let (before, after) = file.split_once("id = \"leaf-0\"\n").expect("a node");
    let changed = format!("{before}id = \"leaf-0\"\n{}", change(after));
    std::fs::write(&trial.cluster.config, changed).expect("written");
    ids.iter().for_each(|id| trial.cluster.start(id));
    trial.cluster.wait_linked();
}

#[test]
fn a_member_may_move_and_is_no_other_one_than_the_map_says() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start();
    let [first, _] = trial.controllers;
    let foreign = "the store's map is not this configuration's";
    until("it is drained", || trial.cluster.command(first, &["drain", "spine-1"]).ok().map(drop));
    trial.history.stop();
    with_another_leaf(&mut trial, |leaf| {
        let (keys, rest) = leaf.split_once("listen = \"").expect("its address");
        let (_, rest) = rest.split_once('"').expect("it ends");
        format!("{keys}listen = \"{}\"{rest}", loopback())
    });
    trial.until_agreed(2, 0);
    assert!(!trial.cluster.process("controller").log().contains(foreign), "it has moved");
    with_another_leaf(&mut trial, |leaf| format!("capacity = 2.0\n{leaf}"));
    until("it is told", || trial.cluster.process("controller").log().contains(foreign).then_some(()));
    let refused = trial.cluster.command(first, &["drain", "spine-0"]).expect_err("it changes nothing");
    assert!(refused.contains(foreign) && refused.contains("leaf-0"), "{refused}");
    trial.etcd.forget_map();
    until("it is drained", || trial.cluster.command(first, &["drain", "spine-1"]).ok().map(drop));
    trial.until_agreed(2, 0);
}
