//! The admin port of a process: metrics, health and status of its members, and its certificates, over HTTP.

mod ready;
mod serve;

pub use serve::serve;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;

use crate::metrics;
use crate::reload::Reloader;
use crate::status::StatusCell;
use crate::stop::Stop;
use crate::tls::Certificates;

/// Serves `members` on `listener` until `stop`, on a thread of its own.
pub fn start(listener: TcpListener, process: Process, stop: &Stop) -> io::Result<JoinHandle<()>> {
    serve("admin", listener, routes(process), stop)
}

/// Binds an address for [`start`] or [`serve`].
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Marks requests that change something: a page in a browser cannot send it without asking first.
const COMMAND_HEADER: &str = "x-distcache-command";
const CERTIFICATES_PATH: &str = "/certificates/reload";
const RELOAD_PATH: &str = "/reload";

type Members = State<Arc<Process>>;

/// What an admin port is about.
pub struct Process {
    pub members: Vec<StatusCell>,
    pub reloader: Arc<Reloader>,
    pub certificates: Certificates,
    /// Set when the process is about to stop: it is not ready any more, though it serves for a while.
    pub leaving: Stop,
}

fn routes(process: Process) -> Router {
    Router::new()
        .route("/metrics", get(metrics_text))
        .route("/health", get(health))
        .route("/ready", get(readiness))
        .route("/status", get(status))
        .route(CERTIFICATES_PATH, post(reload_certificates))
        .route(RELOAD_PATH, post(reload))
        .with_state(Arc::new(process))
}

async fn metrics_text(State(process): Members) -> Response {
    let members = process.members.iter().map(StatusCell::get).collect();
    let text = metrics::render(members, process.certificates.status());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn status(State(process): Members) -> Response {
    Json(process.members.iter().map(StatusCell::get).collect::<Vec<_>>()).into_response()
}

async fn reload_certificates(
    State(process): Members,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refused(from, &headers) {
        return refusal;
    }
    match process.certificates.reload() {
        Ok(()) => Json(json!({ "reloaded": true })).into_response(),
        Err(errors) => {
            let errors = Json(json!({ "reloaded": false, "errors": errors }));
            (StatusCode::UNPROCESSABLE_ENTITY, errors).into_response()
        }
    }
}

async fn reload(
    State(process): Members,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = refused(from, &headers) {
        return refusal;
    }
    match process.reloader.reload() {
        Ok(reloaded) => Json(reloaded).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({ "error": error }))).into_response(),
    }
}

fn refused(from: SocketAddr, headers: &HeaderMap) -> Option<Response> {
    if from.ip().is_loopback() && headers.contains_key(COMMAND_HEADER) {
        return None;
    }
    let what = format!("only taken from this machine, with the header {COMMAND_HEADER}");
    Some((StatusCode::FORBIDDEN, Json(json!({ "error": what }))).into_response())
}

async fn health(State(process): Members) -> Response {
    let ill: Vec<_> = process.members.iter().filter_map(ready::hangs).collect();
    let code = if ill.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "healthy": ill.is_empty(), "ailments": ill }))).into_response()
}

async fn readiness(State(process): Members) -> Response {
    let lacking: Vec<_> = match process.leaving.is_set() {
        true => {
            let leaving = |member: &StatusCell| {
                let id = member.get().id().to_owned();
                ready::Ailment { id, what: "is stopping".to_owned() }
            };
            process.members.iter().map(leaving).collect()
        }
        false => process.members.iter().filter_map(ready::lacks).collect(),
    };
    let code = if lacking.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "ready": lacking.is_empty(), "lacking": lacking }))).into_response()
}

#[cfg(test)]
mod tests {
    use super::{Process, Reloader, bind, start};
    use crate::config::{Config, Secret};
    use crate::status::{MemberStatus, NodeStatus, ShimStatus, StatusCell};
    use crate::stop::Stop;
    use crate::tls::Certificates;
    use std::sync::Arc;

    fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        let mut reply =
            ureq::Agent::new_with_config(config).get(format!("http://{address}{path}")).call().unwrap();
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    }

    #[test]
    fn metrics_status_and_health_are_served_until_stop() {
        let node = NodeStatus { id: "n".to_owned(), epoch: 1, hits_total: 3, ..NodeStatus::default() };
        let status = ShimStatus { id: "s".to_owned(), epoch: 1, ..ShimStatus::default() };
        let shim = StatusCell::new(MemberStatus::Shim(status.clone()));
        let members = vec![StatusCell::new(MemberStatus::Node(node)), shim.clone()];
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new();
        let config = Arc::new(Config::new("t", Secret([1; 16])));
        let reloader = Arc::new(Reloader::new(&config, Vec::new(), Box::new(|_| ())));
        let leaving = Stop::new();
        let certificates = Certificates::default();
        let process = Process { members, reloader, certificates, leaving: leaving.clone() };
        let thread = start(listener, process, &stop).unwrap();

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
        assert_eq!(get(address, "/ready"), (200, "{\"lacking\":[],\"ready\":true}".to_owned()));
        leaving.stop();
        let (code, text) = get(address, "/ready");
        assert!(code == 503 && text.matches("is stopping").count() == 2, "{code} {text}");
        assert_eq!(get(address, "/health").0, 200);
        assert_eq!(get(address, "/nothing").0, 404);

        stop.stop();
        thread.join().unwrap();
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}
