//! Spans at an OpenTelemetry collector, and what a collector that is away costs. Which commands are sampled is the machine's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use wire::resp::Value;

use crate::cluster::{Cluster, Layout, free_port, shared, text, total, until};

/// What came with one request.
struct Export {
    path: String,
    headers: Vec<String>,
    body: ExportTraceServiceRequest,
}

type Exports = Arc<Mutex<Vec<Export>>>;

/// Takes everything for as long as the test runs.
fn collector() -> (SocketAddr, Exports) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let exports = Exports::default();
    let seen = Arc::clone(&exports);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let export = receive(stream);
            seen.lock().unwrap().push(export);
        }
    });
    (address, exports)
}

fn receive(stream: TcpStream) -> Export {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line of the request");
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_lowercase()),
        }
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.expect("a length").trim().parse().expect("a number");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the whole body");
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.get_mut().write_all(reply).expect("the reply is written");
    let path = lines.remove(0);
    let body = ExportTraceServiceRequest::decode(&body[..]).expect("OTLP");
    Export { path, headers: lines, body }
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let shown = |value: &KeyValue| match value.value.as_ref().and_then(|value| value.value.clone()) {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::BoolValue(truth)) => truth.to_string(),
        other => panic!("{other:?}"),
    };
    list.iter().map(|value| (value.key.clone(), shown(value))).collect()
}

fn spans(exports: &Exports) -> Vec<Span> {
    let exports = exports.lock().unwrap();
    let resources = exports.iter().flat_map(|export| &export.body.resource_spans);
    resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
}

/// A command's span that fits, with those below it.
fn find(
    exports: &Exports,
    fits: impl Fn(&Span, &BTreeMap<String, String>) -> bool,
) -> Option<(Span, Vec<Span>)> {
    let all = spans(exports);
    let roots = all.iter().filter(|span| span.parent_span_id.is_empty());
    let root = roots.clone().find(|span| fits(span, &attributes(&span.attributes)))?.clone();
    let children: Vec<Span> = all.into_iter().filter(|span| span.parent_span_id == root.span_id).collect();
    for child in &children {
        assert_eq!(child.trace_id, root.trace_id);
        assert!(root.start_time_unix_nano <= child.start_time_unix_nano, "{child:?}");
        assert!(child.start_time_unix_nano <= child.end_time_unix_nano, "{child:?}");
        assert!(child.end_time_unix_nano <= root.end_time_unix_nano, "{child:?}");
        assert_eq!(child.kind, SpanKind::Client as i32);
    }
    assert_eq!((root.trace_id.len(), root.span_id.len(), root.kind), (16, 8, SpanKind::Server as i32));
    Some((root, children))
}

fn tables(endpoint: &str) -> String {
    format!(
        "[tracing]\notlp_endpoint = \"http://{endpoint}\"\nsample_one_in = 1\nservice_name = \"cache\"\n\
         headers_file = \"headers\"\n[[policy]]\nprefix = \"\"\ncache = \"always\"\n"
    )
}

fn cluster(endpoint: &str) -> Cluster {
    let mut cluster = Cluster::unstarted(Layout { tables: tables(endpoint), ..Layout::embedded(1) });
    let headers = cluster.config.with_file_name("headers");
    std::fs::write(headers, "X-Tenant: one\n").expect("the headers are written");
    cluster.start(crate::cluster::UP);
    cluster.wait_linked();
    cluster
}

#[test]
fn hits_misses_writes_and_errors_have_spans() {
    let _machine = shared();
    let (address, exports) = collector();
    let cluster = cluster(&address.to_string());
    let mut client = cluster.connect(0);
    client.call(&["SET", "k", "1"]);
    let (root, children) = until("a write is there", || find(&exports, |span, _| span.name == "SET"));
    let about = attributes(&root.attributes);
    assert_eq!(about["db.system.name"], "redis");
    assert_eq!(about["db.operation.name"], "SET");
    assert_eq!(about["distcache.router"], "router-0");
    assert_eq!(about["network.peer.address"], "127.0.0.1");
    assert!(!about.contains_key("distcache.hit") && root.status.is_none(), "{about:?}");
    assert_eq!(children.len(), 1);
    assert_eq!(children[0].name, "shim shim-0");
    assert_eq!(attributes(&children[0].attributes)["distcache.shim"], "shim-0");

    let (_, children) = until("a miss is there", || {
        client.call(&["GET", "nothing"]);
        find(&exports, |span, about| span.name == "GET" && about["distcache.hit"] == "false")
    });
    assert_eq!(children.len(), 1);
    let (_, children) = until("a hit is there", || {
        assert_eq!(text(&client.call(&["GET", "k"])), "1");
        find(&exports, |span, about| span.name == "GET" && about["distcache.hit"] == "true")
    });
    let about = attributes(&children[0].attributes);
    let node = &about["distcache.node"];
    assert_eq!(children[0].name, format!("node {node}"));
    assert!(node.starts_with(&about["distcache.layer"]), "{about:?}");
    assert_eq!(about["distcache.hit"], "true");

    assert!(matches!(client.call(&["INCRBY", "k", "x"]), Value::Error(_)));
    let (root, children) = until("an error is there", || find(&exports, |span, _| span.name == "INCRBY"));
    let about = attributes(&root.attributes);
    assert_eq!((about["error.type"].as_str(), about["db.response.status_code"].as_str()), ("ERR", "ERR"));
    assert_eq!(root.status.expect("it is an error").message, "ERR");
    assert_eq!(children.len(), 1);

    let first = &exports.lock().unwrap()[0];
    assert_eq!(first.path, "post /v1/traces http/1.1");
    assert!(first.headers.iter().any(|line| line == "x-tenant: one"), "{:?}", first.headers);
    let resource = first.body.resource_spans[0].resource.as_ref().expect("it says who it is");
    let about = attributes(&resource.attributes);
    assert_eq!(
        (about["service.name"].as_str(), about["service.instance.id"].as_str()),
        ("cache", "router-0")
    );
}

#[test]
fn a_dead_collector_costs_spans_and_nothing_else() {
    let _machine = shared();
    let cluster = cluster(&format!("127.0.0.1:{}", free_port()));
    let mut client = cluster.connect(0);
    until("spans are dropped", || {
        assert_eq!(text(&client.call(&["SET", "k", "1"])), "OK");
        (total(&cluster.status(), "routers", "spans_dropped_total") > 0).then_some(())
    });
    assert_eq!(total(&cluster.status(), "routers", "spans_exported_total"), 0);
    assert_eq!(text(&client.call(&["GET", "k"])), "1");
}
