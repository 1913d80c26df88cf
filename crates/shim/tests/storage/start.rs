//! How a shim starts before a real redis-server, and how it leaves it.

use std::sync::Arc;

use runtime::Address;
use runtime::config::{Config, LayerConfig, NodeConfig, Password, Secret, ShimConfig, StorageConfig};
use runtime::stop::Stop;
use wire::Partition;

use crate::server::Server;

fn config(server: &Server, password: Option<&str>) -> Arc<Config> {
    let mut config = Config::new("test", Secret([3; 16]));
    let local: Address = "127.0.0.1:0".parse().expect("an address");
    let password = password.map(|password| Password(password.to_owned()));
    let storage =
        StorageConfig::Redis { address: Address::Unix(server.socket()), user: None, password, tls: None };
    config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("node-0", "leaf", None, local.clone()));
    config.shims.push(ShimConfig::new("shim-0", "r0", local, storage));
    Arc::new(config)
}

#[test]
fn storage_that_refuses_the_credentials_keeps_a_shim_from_starting() {
    let Some(server) = Server::start(&["--requirepass", "right"]) else { return };
    let stop = Stop::new();
    let start = |password| shim::spawn(&config(&server, password), "shim-0", &stop);
    let error = start(Some("wrong")).expect_err("the password is wrong").to_string();
    assert!(error.starts_with("shim-0: ") && error.contains("WRONGPASS"), "{error}");
    let error = start(None).expect_err("there is no password").to_string();
    assert!(error.contains("NOAUTH"), "{error}");
    assert!(!stop.is_set(), "other members go on");
    let shim = start(Some("right")).expect("the password is right");
    stop.stop();
    assert!(shim.join());
}

#[test]
fn a_stopped_shim_leaves_no_user_behind() {
    let Some(server) = Server::start(&[]) else { return };
    let stop = Stop::new();
    let shim = shim::spawn(&config(&server, None), "shim-0", &stop).expect("it starts");
    assert_eq!(super::redis::users(&server).len(), 2);
    stop.stop();
    assert!(shim.join());
    assert_eq!(super::redis::users(&server), ["default"]);
}
