//! A controller over its real HTTP API: the heartbeat agent on one side, a reader on the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Address;
use config::{
    Config, ControllerConfig, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig,
};
use protocol::node::NodeStatistics;
use runtime::admin::{COMMAND_HEADER, CommandToken};
use runtime::heartbeat::{self, HeartbeatKey, LENGTH_MAC_HEADER, MAC_HEADER, Pulse};
use runtime::instance::{Instance, MapCell, StartError};
use runtime::orders::Orders;
use runtime::status::{ClusterStatus, MemberStatus, NodeStatus, RouterStatus, StatusCell};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use serde_json::Value;
use wire::Partition;

fn config(listen: &str) -> Config {
    let address = || "127.0.0.1:0".parse().unwrap();
    let mut config = Config::new("test", Secret([3; 16]));
    config.controllers.push(ControllerConfig::new("c", listen.parse().unwrap()));
    config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("n0", "spine", None, address()));
    config.shims.push(ShimConfig::new("s0", "r0", address(), StorageConfig::Embedded));
    config.routers.push(RouterConfig::new("x0", address()));
    config.validate().unwrap();
    config
}

fn spawn(config: Config, id: &str, stop: &Stop) -> Result<Instance, StartError> {
    controller::spawn(&Arc::new(config), &Certificates::default(), id, stop)
}

fn start(stop: &Stop) -> (Instance, String, Config) {
    let mut config = config("127.0.0.1:0");
    let instance = spawn(config.clone(), "c", stop).unwrap();
    let [Address::Tcp(address)] = instance.addresses[..] else { panic!("one TCP address") };
    config.controllers[0].listen = address;
    (instance, format!("http://{address}"), config)
}

fn agent() -> ureq::Agent {
    ureq::Agent::new_with_config(
        ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build(),
    )
}

fn get(url: &str) -> (u16, Value) {
    let mut reply = agent().get(url).call().unwrap();
    let code = reply.status().as_u16();
    (code, serde_json::from_str(&reply.body_mut().read_to_string().unwrap()).unwrap())
}

/// Polls until `done`, since heartbeats come when they come.
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn statuses_go_in_as_heartbeats_and_come_out_as_json() {
    let stop = Stop::new();
    let (instance, url, config) = start(&stop);
    let statistics = NodeStatistics { requests: 5, ..NodeStatistics::default() };
    let node = NodeStatus { id: "n0".to_owned(), statistics, ..NodeStatus::default() };
    let status = StatusCell::new(MemberStatus::Node(node));
    let pulse = Pulse { status: Some(status), maps: MapCell::default(), orders: Orders::default() };
    let agents =
        heartbeat::start(&Arc::new(config), &Certificates::default(), vec![pulse], None, &stop).unwrap();

    wait("the status of n0", || get(&format!("{url}/v1/status")).1["nodes"][0]["requests_total"] == 5);
    let status: ClusterStatus = serde_json::from_value(get(&format!("{url}/v1/status")).1).unwrap();
    assert_eq!((status.epoch, status.nodes.len(), status.shims.len()), (1, 1, 0));
    let (_, members) = get(&format!("{url}/v1/members"));
    assert_eq!((&members[0]["id"], &members[0]["state"]), (&Value::from("n0"), &Value::from("up")));
    assert_eq!(members[1]["state"], "lost");
    let (_, map) = get(&format!("{url}/v1/map"));
    assert_eq!((&map["epoch"], &map["layers"][0]["nodes"][0]["id"]), (&Value::from(1), &Value::from("n0")));
    assert_eq!(get(&format!("{url}/v1/hot")), (200, Value::Array(Vec::new())));
    let (_, inspection) = get(&format!("{url}/v1/inspect?key=a%20b"));
    assert_eq!((&inspection["key"], &inspection["shim"]), (&Value::from("a b"), &Value::from("s0")));
    assert_eq!(get(&format!("{url}/v1/inspect")).0, 400);
    assert_eq!(get(&format!("{url}/nothing")).0, 404);
    assert_eq!(get(&format!("{url}/health")).0, 200);
    assert_eq!(get(&format!("{url}/ready")).0, 200);
    let text =
        self::agent().get(format!("{url}/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(text.contains("distcache_controller_members_up{id=\"c\"} 1\n"), "{text}");

    stop.stop();
    agents.into_iter().for_each(|agent| agent.join().unwrap());
    assert!(instance.join());
}

#[test]
fn heartbeats_without_the_secret_are_refused() {
    let stop = Stop::new();
    let (instance, url, _) = start(&stop);
    let router = RouterStatus { id: "x0".to_owned(), ..RouterStatus::default() };
    let beat = heartbeat::Heartbeat {
        agent: 7,
        sequence: 1,
        agreement: config("127.0.0.1:0").agreement(),
        release: "9.9.9\u{7}".to_owned(),
        level: 1,
        members: vec![MemberStatus::Router(router)],
        leaving: Vec::new(),
        history: 0,
        known: config("127.0.0.1:0").roster_size(),
        reports: Vec::new(),
    };
    let body = serde_json::to_vec(&beat).unwrap();
    let post = |body: &[u8], code: &str| {
        let request = agent().post(format!("{url}{}", heartbeat::PATH)).header(MAC_HEADER, code);
        let reply = request.send(body).unwrap();
        let reply_code = reply.headers().get(MAC_HEADER).map(|code| code.to_str().unwrap().to_owned());
        (reply.status().as_u16(), reply_code, reply.into_body().read_to_vec().unwrap())
    };
    let key = HeartbeatKey::derive(&Secret([3; 16]));
    let code = key.of_request(&body);
    assert_eq!(post(&body, "").0, 401);
    assert_eq!(post(&body, &HeartbeatKey::derive(&Secret([4; 16])).of_request(&body)).0, 401);
    assert_eq!(post(b"{}", &code).0, 401);
    assert_eq!(post(b"{}", &key.of_request(b"{}")).0, 400);
    assert_eq!(get(&format!("{url}/v1/status")).1["routers"], Value::Array(Vec::new()));

    let (status, reply_code, reply) = post(&body, &code);
    assert_eq!(status, 200);
    assert!(key.is_reply(&code, &reply, &reply_code.unwrap()));
    let reply: heartbeat::HeartbeatReply = serde_json::from_slice(&reply).unwrap();
    assert_eq!((reply.epoch, reply.shares, reply.roster), (1, [].into(), None));
    assert_eq!(post(&body, &code).0, 409);
    stop.stop();
    assert!(instance.join());
}

#[test]
fn a_large_heartbeat_has_to_be_announced_by_a_member() {
    let stop = Stop::new();
    let (instance, url, _) = start(&stop);
    let key = HeartbeatKey::derive(&Secret([3; 16]));
    let body = vec![b' '; 200_000];
    let post = |announced: usize| {
        let request = agent().post(format!("{url}{}", heartbeat::PATH));
        let request = request.header(MAC_HEADER, key.of_request(&body));
        request.header(LENGTH_MAC_HEADER, key.of_length(announced)).send(&body[..])
    };
    // It may be cut off while it is still being sent.
    let refused = |answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>| {
        answer.map_or(true, |reply| reply.status().as_u16() == 413)
    };
    assert!(refused(post(200_001)) && refused(post(0)));
    assert_eq!(post(200_000).unwrap().status().as_u16(), 400, "it was read, and says nothing");
    stop.stop();
    assert!(instance.join());
}

#[test]
fn changes_are_taken_as_commands_only() {
    let stop = Stop::new();
    let (instance, url, _) = start(&stop);
    let post = |path: &str, marked: bool, body: &str| {
        let request = agent().post(format!("{url}{path}"));
        let token = CommandToken::derive(&Secret([if marked { 3 } else { 4 }; 16])).text();
        let request = request.header(COMMAND_HEADER, token);
        let mut reply = request.send(body).unwrap();
        let text = reply.body_mut().read_to_string().unwrap();
        (reply.status().as_u16(), serde_json::from_str::<Value>(&text).unwrap())
    };
    let drain = r#"{"node":"n0","drained":true}"#;
    assert_eq!(post(controller::DRAIN_PATH, false, drain).0, 403, "a browser's page could send it");
    assert_eq!(post(controller::RELOAD_PATH, false, "").0, 403);
    assert_eq!(get(&format!("{url}/v1/map")).1["epoch"], 1);
    assert_eq!(post(controller::DRAIN_PATH, true, r#"{"node":"n0"}"#).0, 400);
    let (code, unknown) = post(controller::DRAIN_PATH, true, r#"{"node":"s0","drained":true}"#);
    assert!(code == 404 && unknown["error"].as_str().unwrap().contains("the nodes are n0"), "{unknown}");
    let (code, map) = post(controller::DRAIN_PATH, true, drain);
    assert_eq!(
        (code, &map["epoch"], &map["layers"][0]["nodes"][0]["drained"]),
        (200, &2.into(), &true.into())
    );
    let (code, unread) = post(controller::RELOAD_PATH, true, "");
    assert!(code == 422 && unread["error"].as_str().unwrap().contains("not read from a file"), "{unread}");
    stop.stop();
    assert!(instance.join());
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = spawn(config(&address), "c", &Stop::new()).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }));
    let expected = format!("c: cannot listen on {address}: the address is in use");
    assert!(error.to_string().starts_with(&expected), "{error}");
    let unknown = spawn(config(&address), "n0", &Stop::new()).unwrap_err();
    assert_eq!(unknown.to_string(), "no controller has the id \"n0\" in this configuration");
}
