//! One router that is asked for a cached key again and again, as one kind of user: what the check of users costs when its
//! instructions are counted. Arguments: the kind, the number of hits. Not a clock.

use std::sync::Arc;

use bytes::Bytes;
use commands::acl::Users;
use protocol::placement::{Placement, Secret};
use protocol::router::{ClientId, Effect, Input, Router, RouterConfig, Routing, UserSource};
use protocol::time::Time;
use wire::message::Reply;
use wire::resp::Command;
use wire::{
    ClusterMap, LayerMap, Message, NodeId, NodeMember, Partition, Peer, RackId, SHARE_WHOLE, Sharding,
    ShimId, ShimMember, Status,
};

const CLIENT: ClientId = ClientId(0);
const NODE: Peer = Peer::Node(NodeId(0));

/// A user's rules by its kind; `None`: a router without users.
fn rules(kind: &str) -> Option<String> {
    let patterns = |count: usize| (1..count).map(|number| format!("~tenant{number}:* ")).collect::<String>();
    match kind {
        "nobody" => None,
        "all" => Some("+@all ~* &*".to_owned()),
        "pattern" => Some("+@all ~key:*".to_owned()),
        "rules" => Some(format!("+@all -@dangerous -@admin -flushall {}~key:*", patterns(16))),
        other => panic!("unknown kind {other}: write nobody, all, pattern or rules"),
    }
}

fn map() -> ClusterMap {
    let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
    ClusterMap {
        epoch: 1,
        level: 1,
        layers: vec![LayerMap { name: "spine".to_owned(), partition: Partition::Hash, nodes: vec![node] }],
        sharding: Sharding::Ring,
        shims: vec![ShimMember::new(ShimId(0), RackId(0))],
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let kind = arguments.get(1).map_or("nobody", String::as_str);
    let hits: usize = arguments.get(2).map_or(1000, |text| text.parse().expect("a number of hits"));
    let rules = rules(kind);
    let users: Vec<(String, Vec<&str>)> = rules
        .iter()
        .map(|rules| ("app".to_owned(), ["on", "nopass"].into_iter().chain(rules.split(' ')).collect()))
        .collect();
    let users = Users::configured(&users).expect("right rules");
    let config = RouterConfig {
        routing: Routing::OnPath,
        users: UserSource::Given(Arc::new(users)),
        ..RouterConfig::default()
    };
    let mut router = Router::new(config);
    let placement = Placement::new(Secret([1; 16]), map()).expect("a well-formed map");
    let (now, mut effects) = (Time(0), Vec::new());
    router.step(now, Input::Map(Arc::new(placement)), &mut effects);
    for peer in [NODE, Peer::Shim(ShimId(0))] {
        router.step(now, Input::Linked(peer), &mut effects);
    }
    router.step(now, Input::Opened { client: CLIENT }, &mut effects);
    if rules.is_some() {
        let command = Command::from_args(&["AUTH", "app", "x"]);
        router.step(now, Input::Command { client: CLIENT, command }, &mut effects);
    }
    let value = Bytes::from_static(b"$5\r\nvalue\r\n");
    let command = Command::from_args(&["GET", "key:1"]);
    let mut answered = 0;
    for _ in 0..hits {
        effects.clear();
        router.step(now, Input::Command { client: CLIENT, command: command.clone() }, &mut effects);
        let Some(Effect::Send { message: Message::Read(read), .. }) = effects.pop() else {
            panic!("the read goes to the node: {effects:?}");
        };
        let reply = Reply {
            request: read.request,
            status: Status::Ok,
            hit: true,
            value: value.clone(),
            ..Reply::default()
        };
        router.step(now, Input::Message { from: NODE, message: Message::Reply(reply) }, &mut effects);
        answered += usize::from(matches!(effects.last(), Some(Effect::Reply { .. })));
    }
    assert_eq!(answered, hits, "every hit is answered");
}
