//! The controller's HTTP API: the only place that knows its paths and status codes.
//!
//! Heartbeats are authenticated, and large ones announced by somebody who can do that. Who else may ask what is the guard's business.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use config::key_bytes;
use protocol::time::Time;
use runtime::admin::{self, Proven};
use runtime::heartbeat::{self, Heartbeat, HeartbeatKey, LENGTH_MAC_HEADER, MAC_HEADER};
use runtime::metrics;
use runtime::status::MemberStatus;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::command::{CommandBody, HttpProblem};
use crate::hot::hottest;
use crate::inspect::inspect;
use crate::order_requests;
use crate::service::{HeartbeatRefusal, Service};
use crate::storage_requests;
use crate::view::{self, MapView};

pub const DRAIN_PATH: &str = "/v1/drain";
pub const RELOAD_PATH: &str = "/v1/reload";
pub const PURGE_PATH: &str = "/v1/purge";
pub const STORAGE_PATH: &str = "/v1/storage";

/// What [`DRAIN_PATH`] takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    pub node: String,
    pub drained: bool,
}

/// A process with hundreds of members posts about 2 KiB for each.
const HEARTBEAT_BYTES_MAX: usize = 16 << 20;
/// Members give up after a second.
const HEARTBEAT_TIME_MAX: Duration = Duration::from_secs(2);
/// Large heartbeats that come at a time; others wait.
pub(crate) const LARGE_MAX: usize = 2;

/// What the request functions share with the controller's thread.
#[derive(Clone)]
pub(crate) struct HttpApi {
    pub(crate) service: Arc<Mutex<Service>>,
    pub(crate) key: HeartbeatKey,
    /// Rights to hold a large heartbeat while it comes.
    pub(crate) large: Arc<Semaphore>,
    pub(crate) clock: fn() -> Time,
}

impl HttpApi {
    pub(crate) fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is answered for a path that the API does not have.
pub const NO_SUCH_PATH: &str = "there is no such path";

pub(crate) fn routes(api: HttpApi) -> Router {
    Router::new()
        .route(heartbeat::PATH, post(take_heartbeat))
        .route("/v1/status", get(|State(api): State<HttpApi>| async move { Json(api.service().status()) }))
        .route("/v1/map", get(map))
        .route(
            "/v1/members",
            get(|State(api): State<HttpApi>| async move { Json(view::members(&api.service(), (api.clock)())) }),
        )
        .route(
            "/v1/hot",
            get(|State(api): State<HttpApi>| async move { Json(hottest(api.service().statuses.values())) }),
        )
        .route("/v1/inspect", get(inspect_key))
        .route(DRAIN_PATH, post(drain))
        .route(STORAGE_PATH, post(storage_requests::change))
        .route(RELOAD_PATH, post(order_requests::reload))
        .route(PURGE_PATH, post(order_requests::purge))
        .route("/health", get(|| async { Json(json!({ "healthy": true })) }))
        .route("/ready", get(readiness))
        .route("/metrics", get(metrics_text))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, NO_SUCH_PATH) })
        .with_state(api)
}

fn problem(code: StatusCode, what: &str) -> Response {
    HttpProblem::new(code, what).into_response()
}

/// The body of a heartbeat, and the right to hold it if it is large.
async fn heartbeat_body<'a>(
    api: &'a HttpApi,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, Option<SemaphorePermit<'a>>), Response> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let length = text("content-length").parse().unwrap_or(0);
    let is_large = length > admin::BODY_BYTES_MAX && length <= HEARTBEAT_BYTES_MAX;
    let permit = match is_large && api.key.is_length(length, text(LENGTH_MAC_HEADER)) {
        true => api.large.acquire().await.ok(),
        false => None,
    };
    let most = if permit.is_some() { length } else { admin::BODY_BYTES_MAX };
    // Whoever stops in the middle does not keep the right from others.
    let body = tokio::time::timeout(HEARTBEAT_TIME_MAX, axum::body::to_bytes(body, most)).await;
    let body = body.map_err(|_| problem(StatusCode::REQUEST_TIMEOUT, "the body takes too long"))?;
    let body = body.map_err(|_| {
        problem(StatusCode::PAYLOAD_TOO_LARGE, "larger than was announced with this cluster's secret")
    })?;
    Ok((body, permit))
}

async fn take_heartbeat(
    State(api): State<HttpApi>,
    Extension(proven): Extension<Proven>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (body, _permit) = match heartbeat_body(&api, &headers, body).await {
        Ok(held) => held,
        Err(refusal) => return refusal,
    };
    let code = headers.get(MAC_HEADER).and_then(|code| code.to_str().ok()).unwrap_or_default();
    let mut service = api.service();
    if !api.key.is_request(&body, code) {
        service.refuse();
        drop(service);
        return problem(StatusCode::UNAUTHORIZED, "not authenticated with this cluster's secret");
    }
    let heartbeat: Heartbeat = match serde_json::from_slice(&body) {
        Ok(heartbeat) => heartbeat,
        Err(error) => {
            service.refuse();
            return problem(StatusCode::BAD_REQUEST, &error.to_string());
        }
    };
    let answer = service.heartbeat((api.clock)(), heartbeat);
    drop(service);
    match answer {
        Ok(reply) => {
            proven.set();
            authentic(&api.key, code, heartbeat::to_json(&reply))
        }
        Err(refusal) => {
            let status = match refusal {
                HeartbeatRefusal::Replay => StatusCode::CONFLICT,
                HeartbeatRefusal::Unread(_) => StatusCode::SERVICE_UNAVAILABLE,
                HeartbeatRefusal::Stranger(..) | HeartbeatRefusal::Disagreement(_) => {
                    StatusCode::UNPROCESSABLE_ENTITY
                }
            };
            problem(status, &refusal.to_string())
        }
    }
}

fn authentic(key: &HeartbeatKey, request_code: &str, body: Vec<u8>) -> Response {
    let code = HeaderValue::from_str(&key.of_reply(request_code, &body));
    let code = code.expect("hexadecimal digits are legal in a header");
    let json = HeaderValue::from_static("application/json");
    ([(HeaderName::from_static(MAC_HEADER), code), (header::CONTENT_TYPE, json)], body).into_response()
}

async fn map(State(api): State<HttpApi>) -> Response {
    let service = api.service();
    match service.unread() {
        Some(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &HeartbeatRefusal::Unread(error).to_string()),
        None => Json(MapView::of(&service)).into_response(),
    }
}

async fn drain(State(api): State<HttpApi>, body: CommandBody) -> Result<Json<MapView>, HttpProblem> {
    let drain: Drain = body.read()?;
    let mut service = api.service();
    let Some(node) = service.config().node_id(&drain.node) else {
        let ids: Vec<&str> = service.config().nodes.iter().map(|node| node.id.as_str()).collect();
        let what = format!("{:?} is not a node; the nodes are {}", drain.node, ids.join(", "));
        return Err(HttpProblem::new(StatusCode::NOT_FOUND, what));
    };
    // Whoever is told that it failed must not find it done later.
    has_store(&service)?;
    service.drain((api.clock)(), node, drain.drained);
    // It is done once the map shows it, unless the store is away.
    has_store(&service)?;
    Ok(Json(MapView::of(&service)))
}

/// A change is neither begun nor promised while the store is away.
pub(crate) fn has_store(service: &Service) -> Result<(), HttpProblem> {
    let unavailable = |what| Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, what));
    match (service.problem(), service.foreign()) {
        (Some(error), _) => unavailable(error.to_string()),
        (None, Some(reason)) => unavailable(reason),
        (None, None) => Ok(()),
    }
}

#[derive(Deserialize)]
struct KeyQuery {
    key: String,
}

async fn inspect_key(State(api): State<HttpApi>, key: Result<Query<KeyQuery>, QueryRejection>) -> Response {
    let Ok(Query(KeyQuery { key })) = key else {
        return problem(StatusCode::BAD_REQUEST, "the key is missing: ask /v1/inspect?key=KEY");
    };
    match inspect(&api.service(), &key_bytes(&key)) {
        Ok(inspection) => Json(inspection).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// It can answer: it has read its store, and hears from it.
async fn readiness(State(api): State<HttpApi>) -> Response {
    match api.service().problem() {
        None => Json(json!({ "ready": true, "lacking": [] })).into_response(),
        Some(error) => {
            let lacking = [error.to_string()];
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "ready": false, "lacking": lacking })))
                .into_response()
        }
    }
}

async fn metrics_text(State(api): State<HttpApi>) -> Response {
    let status = api.service().own_status();
    let text = metrics::render(vec![MemberStatus::Controller(status)], Vec::new());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}
