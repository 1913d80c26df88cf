//! The admin port of a process: metrics, health and status of its members, and its certificates, over HTTP.

mod guard;
mod serve;

pub use guard::{COMMAND_HEADER, CommandToken, HttpGuard};
pub use serve::{BODY_BYTES_MAX, HttpDoor, Proven, serve};

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use crate::metrics;
use crate::ready;
use crate::reload::Reloader;
use crate::status::StatusCell;
use crate::stop::Stop;
use crate::tls::Certificates;
use crate::upgrade::sockets::{self, SharedSocket};

/// Serves `members` on `listener` until `stop`, on a thread of its own.
pub fn start(listener: HttpListener, process: AdminProcess, stop: &Stop) -> io::Result<JoinHandle<()>> {
    let (guard, tls) = (process.guard.clone(), process.certificates.http_acceptor().cloned());
    serve("admin", HttpDoor { listener, tls, guard }, routes(process), stop)
}

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 4096;

/// A socket that listens for HTTP.
#[derive(Debug)]
pub struct HttpListener {
    socket: TcpListener,
    shared: SharedSocket,
}

impl HttpListener {
    /// Port 0 resolved.
    ///
    /// # Errors
    /// None on a system with sockets.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Binds an address for [`start`] or [`serve()`].
///
/// # Errors
/// An address that cannot be listened on.
pub fn bind(address: SocketAddr) -> io::Result<HttpListener> {
    let socket = match sockets::inherited_tcp(address) {
        Some(inherited) => inherited,
        None => TcpListener::bind(address)?,
    };
    // Of a flood whoever finds no room comes again a second later, members among them.
    rustix::net::listen(&socket, BACKLOG)?;
    socket.set_nonblocking(true)?;
    let shared = SharedSocket::new(&config::Address::Tcp(address), &socket);
    Ok(HttpListener { socket, shared })
}

const CERTIFICATES_PATH: &str = "/certificates/reload";
const RELOAD_PATH: &str = "/reload";

type AdminMembers = State<Arc<AdminProcess>>;

/// What an admin port is about.
pub struct AdminProcess {
    pub members: Vec<StatusCell>,
    pub reloader: Arc<Reloader>,
    pub certificates: Certificates,
    pub guard: HttpGuard,
    /// Set when the process is about to stop: it is not ready any more, though it serves for a while.
    pub leaving: Stop,
}

fn routes(process: AdminProcess) -> Router {
    Router::new()
        .route("/metrics", get(metrics_text))
        .route("/health", get(health))
        .route("/ready", get(readiness))
        .route("/status", get(status))
        .route(CERTIFICATES_PATH, post(reload_certificates))
        .route(RELOAD_PATH, post(reload))
        .with_state(Arc::new(process))
}

async fn metrics_text(State(process): AdminMembers) -> Response {
    let members = process.members.iter().map(StatusCell::get).collect();
    let text = metrics::render(members, process.certificates.status());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn status(State(process): AdminMembers) -> Response {
    Json(process.members.iter().map(StatusCell::get).collect::<Vec<_>>()).into_response()
}

async fn reload_certificates(State(process): AdminMembers) -> Response {
    match process.certificates.reload() {
        Ok(()) => Json(json!({ "reloaded": true })).into_response(),
        Err(errors) => {
            let errors = Json(json!({ "reloaded": false, "errors": errors }));
            (StatusCode::UNPROCESSABLE_ENTITY, errors).into_response()
        }
    }
}

async fn reload(State(process): AdminMembers) -> Response {
    match process.reloader.reload() {
        Ok(reloaded) => Json(reloaded).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": error }))).into_response(),
    }
}

async fn health(State(process): AdminMembers) -> Response {
    let ill: Vec<_> = process.members.iter().filter_map(ready::hangs).collect();
    let code = if ill.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "healthy": ill.is_empty(), "ailments": ill }))).into_response()
}

/// `?strict` asks whether nothing at all is missing.
async fn readiness(State(process): AdminMembers, RawQuery(query): RawQuery) -> Response {
    let strict =
        query.is_some_and(|query| query.split('&').any(|word| matches!(word, "strict" | "strict=1")));
    let readiness = ready::of(&process.members, process.leaving.is_set(), strict);
    let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(readiness)).into_response()
}

#[cfg(test)]
mod tests {
    use super::{AdminProcess, HttpGuard, Reloader, bind, start};
    use crate::status::{MemberStatus, NodeStatus, RouterStatus, ShimStatus, StatusCell};
    use crate::stop::Stop;
    use crate::tls::Certificates;
    use config::{Config, Secret};
    use protocol::node::NodeStatistics;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::thread::JoinHandle;

    fn get(address: SocketAddr, path: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let mut reply =
            ureq::Agent::new_with_config(config).get(format!("http://{address}{path}")).call().unwrap();
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    }

    /// The address of an admin port, its two flags and its thread.
    fn started(members: Vec<StatusCell>) -> (SocketAddr, Stop, Stop, JoinHandle<()>) {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (leaving, stop) = (Stop::new(), Stop::new());
        let config = Arc::new(Config::new("t", Secret([1; 16])));
        let reloader =
            Arc::new(Reloader::new(&config, &Certificates::default(), Vec::new(), Box::new(|_| ())));
        let certificates = Certificates::default();
        let process = AdminProcess {
            members,
            reloader,
            certificates,
            guard: HttpGuard::new(&config),
            leaving: leaving.clone(),
        };
        let thread = start(listener, process, &stop).unwrap();
        (address, leaving, stop, thread)
    }

    #[test]
    fn a_router_that_lacks_a_shim_is_ready_and_not_when_asked_strictly() {
        let missing = vec!["t".to_owned()];
        let status =
            RouterStatus { id: "r".to_owned(), epoch: 1, shims_linked: 1, ..RouterStatus::default() };
        let status = RouterStatus { shims_missing: missing, shims_needed: 1, ..status };
        let router = StatusCell::new(MemberStatus::Router(status.clone()));
        let (address, _, stop, thread) = started(vec![router.clone()]);
        let (code, text) = get(address, "/ready");
        assert!(code == 200 && text.contains("does not reach t"), "{code} {text}");
        assert_eq!(get(address, "/ready?strict").0, 503);
        let (_, metrics) = get(address, "/metrics");
        assert!(metrics.contains("distcache_router_ready{id=\"r\"} 1\n"), "{metrics}");
        router.set(MemberStatus::Router(RouterStatus { shims_needed: 2, ..status }));
        assert_eq!(get(address, "/ready").0, 503);
        assert!(get(address, "/metrics").1.contains("distcache_router_ready{id=\"r\"} 0\n"));
        stop.stop();
        thread.join().unwrap();
    }

    #[test]
    fn metrics_status_and_health_are_served_until_stop() {
        let statistics = NodeStatistics { hits: 3, ..NodeStatistics::default() };
        let node = NodeStatus { id: "n".to_owned(), epoch: 1, statistics, ..NodeStatus::default() };
        let status = ShimStatus { id: "s".to_owned(), epoch: 1, ..ShimStatus::default() };
        let shim = StatusCell::new(MemberStatus::Shim(status.clone()));
        let members = vec![StatusCell::new(MemberStatus::Node(node)), shim.clone()];
        let (address, leaving, stop, thread) = started(members);

        let (code, text) = get(address, "/metrics");
        assert!(
            code == 200 && text.contains("distcache_node_hits_total{id=\"n\",layer=\"\"} 3\n"),
            "{code} {text}"
        );
        let (code, text) = get(address, "/status");
        assert!(code == 200 && text.contains(r#""role":"node""#), "{code} {text}");
        assert_eq!(get(address, "/health").0, 200, "a process without storage lives");
        let (code, text) = get(address, "/ready");
        assert!(code == 503 && text.contains("storage is down"), "{code} {text}");
        shim.set(MemberStatus::Shim(ShimStatus { storage_up: true, ..status }));
        assert_eq!(get(address, "/ready"), (200, "{\"ready\":true,\"lacking\":[]}".to_owned()));
        leaving.stop();
        let (code, text) = get(address, "/ready");
        assert!(code == 503 && text.matches("is stopping").count() == 2, "{code} {text}");
        assert_eq!(get(address, "/health").0, 200);
        assert_eq!(get(address, "/nothing").0, 404);

        stop.stop();
        thread.join().unwrap();
        assert!(std::net::TcpStream::connect(address).is_err());
    }
    /// More than the server has places for: whoever says something is answered, and those who came first and said nothing go.
    #[test]
    fn silent_connections_keep_nobody_out() {
        let (address, _, stop, thread) = started(Vec::new());
        let connect = || std::net::TcpStream::connect(address).expect("it accepts");
        let mut silent: Vec<_> = (0..300).map(|_| connect()).collect();
        assert_eq!(get(address, "/health").0, 200);
        let (first, last) = (&mut silent[0], 299);
        first.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        assert_eq!(std::io::Read::read(first, &mut [0]).ok(), Some(0), "it came first");
        silent[last].set_nonblocking(true).unwrap();
        let waits = std::io::Read::read(&mut silent[last], &mut [0]).expect_err("nothing is said");
        assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock, "it came last");
        stop.stop();
        thread.join().unwrap();
    }

    #[test]
    fn what_web_pages_may_send_is_refused() {
        let (address, _, stop, thread) = started(Vec::new());
        let ask = |request: String| {
            let mut stream = std::net::TcpStream::connect(address).expect("it accepts");
            std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
            let mut reply = String::new();
            std::io::Read::read_to_string(&mut stream, &mut reply).unwrap();
            reply
        };
        let with = |method: &str, path: &str, fields: &str| {
            ask(format!("{method} {path} HTTP/1.1\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n"))
        };
        let token = super::CommandToken::derive(&Secret([1; 16])).text();
        let own = format!("Host: localhost\r\nx-distcache-command: {token}\r\n");
        assert!(with("GET", "/status", "Host: localhost\r\n").starts_with("HTTP/1.1 200"));
        assert!(with("GET", "/status", "Host: rebound.example\r\n").starts_with("HTTP/1.1 403"));
        assert!(with("GET", "/metrics", "Host: any.example\r\n").starts_with("HTTP/1.1 200"));
        assert!(
            with("POST", "/reload", "Host: localhost\r\nx-distcache-command: 1\r\n")
                .starts_with("HTTP/1.1 403")
        );
        assert!(with("POST", "/reload", &own).starts_with("HTTP/1.1 422"), "it was not read from a file");
        let page = format!("{own}Origin: http://localhost\r\n");
        assert!(with("POST", "/reload", &page).starts_with("HTTP/1.1 403"));
        let long = format!("GET /status HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        assert!(!ask(long).starts_with("HTTP/1.1 200"), "a head may not be so long");
        stop.stop();
        thread.join().unwrap();
    }
}
