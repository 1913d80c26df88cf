//! The controller's HTTP API: the only place that knows its paths and status codes.
//!
//! Heartbeats are authenticated. The rest is read-only and, like every port, on loopback unless configured otherwise.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use protocol::time::Time;
use runtime::heartbeat::{self, Heartbeat, HeartbeatKey, MAC_HEADER};
use runtime::metrics;
use runtime::status::{MemberStatus, key_bytes};
use serde::Deserialize;
use serde_json::json;

use crate::hot::hottest;
use crate::inspect::inspect;
use crate::service::{Refusal, Service};
use crate::view::{self, MapView};

/// A process with hundreds of members posts about 2 KiB for each.
const HEARTBEAT_BYTES_MAX: usize = 16 << 20;

/// What the request functions share with the controller's thread.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) service: Arc<Mutex<Service>>,
    pub(crate) key: HeartbeatKey,
    pub(crate) clock: fn() -> Time,
}

impl Api {
    pub(crate) fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn routes(api: Api) -> Router {
    Router::new()
        .route(heartbeat::PATH, post(take_heartbeat).layer(DefaultBodyLimit::max(HEARTBEAT_BYTES_MAX)))
        .route("/v1/status", get(|State(api): State<Api>| async move { Json(api.service().status()) }))
        .route("/v1/map", get(map))
        .route(
            "/v1/members",
            get(|State(api): State<Api>| async move { Json(view::members(&api.service())) }),
        )
        .route(
            "/v1/hot",
            get(|State(api): State<Api>| async move { Json(hottest(api.service().statuses.values())) }),
        )
        .route("/v1/inspect", get(inspect_key))
        .route("/health", get(|| async { Json(json!({ "healthy": true })) }))
        .route("/metrics", get(metrics_text))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "there is no such path") })
        .with_state(api)
}

fn problem(code: StatusCode, what: &str) -> Response {
    (code, Json(json!({ "error": what }))).into_response()
}

async fn take_heartbeat(State(api): State<Api>, headers: HeaderMap, body: Bytes) -> Response {
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
        Ok(reply) => authentic(&api.key, code, serde_json::to_vec(&reply).unwrap_or_default()),
        Err(refusal) => {
            let status = match refusal {
                Refusal::Replay => StatusCode::CONFLICT,
                Refusal::Stranger(..) => StatusCode::UNPROCESSABLE_ENTITY,
                Refusal::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
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

async fn map(State(api): State<Api>) -> Response {
    let service = api.service();
    Json(MapView::of(&service.config, service.machine.map())).into_response()
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

async fn inspect_key(State(api): State<Api>, key: Result<Query<Key>, QueryRejection>) -> Response {
    let Ok(Query(Key { key })) = key else {
        return problem(StatusCode::BAD_REQUEST, "the key is missing: ask /v1/inspect?key=KEY");
    };
    match inspect(&api.service(), &key_bytes(&key)) {
        Ok(inspection) => Json(inspection).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn metrics_text(State(api): State<Api>) -> Response {
    let status = api.service().own_status();
    let text = metrics::render(vec![MemberStatus::Controller(status)]);
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}
