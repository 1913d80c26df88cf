//! The machine's spans with the names that OpenTelemetry has for what is in them. Not which commands have any.

use config::Config;
use protocol::router::{CommandSpan, RequestSpan};
use runtime::spans::{Attribute, Span};
use wire::Peer;

use Attribute::{Number, Text, Truth};

type Attributes = Vec<(&'static str, Attribute)>;

/// The span of a client's command.
pub(crate) fn span(config: &Config, router: &str, command: CommandSpan) -> Span {
    let mut attributes = about(config, &command.name);
    push_peer(&command.client, &mut attributes);
    attributes.push(("distcache.router", Text(router.to_owned())));
    attributes.push(("distcache.retries", Number(i64::from(command.retries))));
    let waited = command.launched.since(command.received);
    attributes.push(("distcache.waited_us", Number(waited.as_micros() as i64)));
    attributes.extend(command.hit.map(|hit| ("distcache.hit", Truth(hit))));
    if command.requests_left_out > 0 {
        let left_out = i64::from(command.requests_left_out);
        attributes.push(("distcache.requests_left_out", Number(left_out)));
    }
    let error = command.error.map(|error| String::from_utf8_lossy(&error).into_owned());
    if let Some(error) = &error {
        attributes.push(("db.response.status_code", Text(error.clone())));
        attributes.push(("error.type", Text(error.clone())));
    }
    let children = command.requests.iter().map(|request| child(config, &command.name, request)).collect();
    let (start, end) = (command.received, command.ended);
    Span { name: command.name, client: false, start, end, attributes, error, children }
}

/// The span of a request to a node or shim.
fn child(config: &Config, command: &str, request: &RequestSpan) -> Span {
    let id = config.peer_name(request.peer);
    let mut attributes = about(config, command);
    let (role, address) = match request.peer {
        Peer::Node(node) => {
            let node = config.nodes.get(usize::from(node.0));
            attributes.extend(node.map(|node| ("distcache.layer", Text(node.layer.clone()))));
            ("node", node.map(|node| node.listen.to_string()))
        }
        Peer::Shim(shim) => {
            ("shim", config.shims.get(usize::from(shim.0)).map(|shim| shim.listen.to_string()))
        }
        Peer::Router(_) => ("router", None),
    };
    push_peer(address.as_deref().unwrap_or_default(), &mut attributes);
    attributes.push((if role == "node" { "distcache.node" } else { "distcache.shim" }, Text(id.clone())));
    attributes.extend(request.hit.map(|hit| ("distcache.hit", Truth(hit))));
    let error = request.retried.then(|| "busy or lost".to_owned());
    attributes.extend(error.iter().map(|error| ("error.type", Text(error.clone()))));
    let name = format!("{role} {id}");
    let (start, end) = (request.sent, request.ended);
    Span { name, client: true, start, end, attributes, error, children: Vec::new() }
}

fn about(config: &Config, command: &str) -> Attributes {
    let system = if config.has_memcached_storage() { "memcached" } else { "redis" };
    vec![("db.system.name", Text(system.to_owned())), ("db.operation.name", Text(command.to_owned()))]
}

/// `HOST:PORT`; the path of a Unix socket has no port.
fn push_peer(address: &str, attributes: &mut Attributes) {
    match address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) if port > 0 => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            attributes.push(("network.peer.address", Text(host.to_owned())));
            attributes.push(("network.peer.port", Number(i64::from(port))));
        }
        _ if !address.is_empty() => {
            let path = address.strip_suffix(":0").unwrap_or(address);
            attributes.push(("network.peer.address", Text(path.to_owned())));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribute, push_peer};

    #[test]
    fn addresses_are_split() {
        let check = |address: &str, expected: &str, port: Option<i64>| {
            let mut attributes = Vec::new();
            push_peer(address, &mut attributes);
            let mut all = vec![("network.peer.address", Attribute::Text(expected.to_owned()))];
            all.extend(port.map(|port| ("network.peer.port", Attribute::Number(port))));
            assert_eq!(attributes, all);
        };
        check("127.0.0.1:6380", "127.0.0.1", Some(6380));
        check("[::1]:80", "::1", Some(80));
        check("/run/router.sock:0", "/run/router.sock", None);
        check("/run/shim.sock", "/run/shim.sock", None);
    }
}
