//! Purges and reloads over HTTP: asks the members concerned and answers when they have. Not how they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use config::Reloaded;
use runtime::heartbeat::{OrderKind, OrderOutcome};
use runtime::orders::PurgeScope;
use runtime::reload::read_again;
use serde::{Deserialize, Serialize};

use crate::http::{HttpApi, problem, refused};
use crate::orders::OrderProgress;
use crate::service::Service;
use crate::view::MapView;

/// A purge waits for leases, which are shorter by default; members that have not answered by then are named.
const WAIT_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// What `PURGE_PATH` takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purge {
    pub scope: PurgeScope,
}

/// How many copies were dropped, in all and by the shims that had granted them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeView {
    pub copies: u64,
    pub shims: BTreeMap<String, u64>,
}

/// What `RELOAD_PATH` takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reload {
    /// Not only the controller itself.
    pub members: bool,
}

/// The map after a reload, and what each member has made of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReloadView {
    #[serde(flatten)]
    pub map: MapView,
    pub members: BTreeMap<String, Reloaded>,
}

pub(crate) async fn purge(
    State(api): State<HttpApi>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refusal) = refused(from, &headers) {
        return refusal;
    }
    let scope = match serde_json::from_slice(&body) {
        Ok(Purge { scope }) => scope,
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let members: BTreeSet<String> = {
        let service = api.service();
        let all = service.config().shims.iter().map(|shim| shim.id.clone());
        let (here, away): (Vec<_>, Vec<_>) = all.partition(|id| service.statuses.contains_key(id));
        if !away.is_empty() {
            let what = format!(
                "nothing was purged, because nothing is heard of {}; try again later",
                away.join(", ")
            );
            return problem(StatusCode::SERVICE_UNAVAILABLE, &what);
        }
        here.into_iter().collect()
    };
    let progress = match ask(&api, OrderKind::Purge(scope), members).await {
        Ok(progress) => progress,
        Err((code, what)) => return problem(code, &what),
    };
    let mut shims = BTreeMap::new();
    let mut failed: Vec<String> =
        progress.waiting.iter().map(|id| format!("{id} has not answered")).collect();
    for (id, outcome) in progress.outcomes {
        match outcome {
            OrderOutcome::Purged { copies } => drop(shims.insert(id, copies)),
            OrderOutcome::Failed { reason } => failed.push(format!("{id}: {reason}")),
            OrderOutcome::Reloaded(_) => failed.push(format!("{id} has answered something else")),
        }
    }
    if !failed.is_empty() {
        return problem(StatusCode::BAD_GATEWAY, &format!("copies may be left: {}", failed.join("; ")));
    }
    Json(PurgeView { copies: shims.values().sum(), shims }).into_response()
}

/// The controller's own part comes first: members that the file has more.
pub(crate) async fn reload(
    State(api): State<HttpApi>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refusal) = refused(from, &headers) {
        return refusal;
    }
    let asked: Result<Option<Reload>, _> = match body.is_empty() {
        true => Ok(None),
        false => serde_json::from_slice(&body),
    };
    let everybody = match asked {
        Ok(asked) => asked.is_none_or(|asked| asked.members),
        Err(error) => return problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let (map, members) = match grow(&api) {
        Ok(grown) => grown,
        Err((code, what)) => return problem(code, &what),
    };
    if !everybody {
        return Json(ReloadView { map, members: BTreeMap::new() }).into_response();
    }
    let progress = match ask(&api, OrderKind::Reload, members).await {
        Ok(progress) => progress,
        Err((code, what)) => return problem(code, &what),
    };
    let mut members = BTreeMap::new();
    let mut failed: Vec<String> =
        progress.waiting.iter().map(|id| format!("{id} has not answered")).collect();
    for (id, outcome) in progress.outcomes {
        match outcome {
            OrderOutcome::Reloaded(reloaded) => drop(members.insert(id, reloaded)),
            OrderOutcome::Failed { reason } => failed.push(format!("{id}: {reason}")),
            OrderOutcome::Purged { .. } => failed.push(format!("{id} has answered something else")),
        }
    }
    if !failed.is_empty() {
        return problem(StatusCode::BAD_GATEWAY, &format!("not everywhere reloaded: {}", failed.join("; ")));
    }
    Json(ReloadView { map, members }).into_response()
}

type HttpProblem = (StatusCode, String);

/// Reads the controller's file again; the map then, and the members that are heard of.
fn grow(api: &HttpApi) -> Result<(MapView, BTreeSet<String>), HttpProblem> {
    let config = Arc::clone(api.service().config());
    let newer = read_again(&config).map_err(|error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    let mut service = api.service();
    let away = |service: &Service| match service.problem() {
        Some(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
        None => Ok(()),
    };
    away(&service)?;
    let reloaded = service.reload((api.clock)(), &newer);
    reloaded.map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
    away(&service)?;
    Ok((MapView::of(&service), service.statuses.keys().cloned().collect()))
}

async fn ask(
    api: &HttpApi,
    kind: OrderKind,
    members: BTreeSet<String>,
) -> Result<OrderProgress, HttpProblem> {
    let Some(number) = api.service().orders.begin((api.clock)(), kind, members) else {
        let what = "too many purges and reloads are under way; try again later";
        return Err((StatusCode::TOO_MANY_REQUESTS, what.to_owned()));
    };
    let begun = (api.clock)();
    loop {
        let late = (api.clock)().since(begun) >= WAIT_MAX;
        if let Some(progress) = api.service().orders.end(number, late) {
            return Ok(progress);
        }
        if late {
            return Err((StatusCode::INTERNAL_SERVER_ERROR, "it has been forgotten".to_owned()));
        }
        tokio::time::sleep(LOOK).await;
    }
}
