//! Purges and reloads over HTTP: asks the members concerned and answers when they have. Not how they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use config::Reloaded;
use runtime::heartbeat::{OrderKind, OrderOutcome};
use runtime::orders::PurgeScope;
use runtime::reload::read_again;
use runtime::status::MemberStatus;
use serde::{Deserialize, Serialize};
use wire::ShimId;

use crate::command::{CommandBody, HttpProblem};
use crate::http::{HttpApi, has_store};
use crate::orders::OrderProgress;
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

/// The map after a reload, what each member has made of its file, and members that nothing is heard of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReloadView {
    #[serde(flatten)]
    pub map: MapView,
    pub members: BTreeMap<String, Reloaded>,
    #[serde(default)]
    pub unheard: Vec<String>,
}

pub(crate) async fn purge(
    State(api): State<HttpApi>,
    body: CommandBody,
) -> Result<Json<PurgeView>, HttpProblem> {
    let Purge { scope } = body.read()?;
    let members: BTreeSet<String> = {
        let service = api.service();
        let config = Arc::clone(service.config());
        let serves = |id: &String| match service.statuses.get(id) {
            Some(MemberStatus::Shim(shim)) => shim.storage_up,
            _ => false,
        };
        let all = (0..config.shims.len()).map(|index| {
            let shim = ShimId(index as u16);
            let own = config.shim(shim).id.clone();
            // Whoever is the shim has granted the copies.
            let standbys = config.standbys_of(shim).map(|standby| standby.id.clone());
            std::iter::once(own.clone()).chain(standbys).find(serves).unwrap_or(own)
        });
        let (here, away): (Vec<_>, Vec<_>) = all.partition(|id| service.statuses.contains_key(id));
        if !away.is_empty() {
            let what = format!(
                "nothing was purged, because nothing is heard of {}; try again later",
                away.join(", ")
            );
            return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, what));
        }
        here.into_iter().collect()
    };
    let progress = ask(&api, OrderKind::Purge(scope), members).await?;
    let shims = answered(progress, "copies may be left", |outcome| match outcome {
        OrderOutcome::Purged { copies } => Some(copies),
        _ => None,
    })?;
    Ok(Json(PurgeView { copies: shims.values().sum(), shims }))
}

/// The controller's own part comes first: members that the file has more.
pub(crate) async fn reload(
    State(api): State<HttpApi>,
    body: CommandBody,
) -> Result<Json<ReloadView>, HttpProblem> {
    let asked: Option<Reload> = body.read_if_any()?;
    let map = grow(&api)?;
    if !asked.is_none_or(|asked| asked.members) {
        return Ok(Json(ReloadView { map, members: BTreeMap::new(), unheard: Vec::new() }));
    }
    let (members, unheard) = heard(&api).await;
    if members.is_empty() {
        let what = "no member was reloaded, because nothing is heard of any; try again later";
        return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, what));
    }
    let progress = ask(&api, OrderKind::Reload, members).await?;
    let members = answered(progress, "not everywhere reloaded", |outcome| match outcome {
        OrderOutcome::Reloaded(reloaded) => Some(reloaded),
        _ => None,
    })?;
    Ok(Json(ReloadView { map, members, unheard }))
}

/// Members that are heard of, and those that are not.
async fn heard(api: &HttpApi) -> (BTreeSet<String>, Vec<String>) {
    loop {
        let heard = api.service().heard((api.clock)());
        match heard {
            Some(heard) => return heard,
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Reads the controller's file again; the map then.
fn grow(api: &HttpApi) -> Result<MapView, HttpProblem> {
    let config = Arc::clone(api.service().config());
    let newer =
        read_again(&config).map_err(|error| HttpProblem::new(StatusCode::UNPROCESSABLE_ENTITY, error))?;
    let mut service = api.service();
    has_store(&service)?;
    let reloaded = service.reload((api.clock)(), &newer);
    reloaded.map_err(|error| HttpProblem::new(StatusCode::CONFLICT, error))?;
    has_store(&service)?;
    Ok(MapView::of(&service))
}

async fn ask(
    api: &HttpApi,
    kind: OrderKind,
    members: BTreeSet<String>,
) -> Result<OrderProgress, HttpProblem> {
    let Some(number) = api.service().orders.begin((api.clock)(), kind, members) else {
        let what = "too many purges and reloads are under way; try again later";
        return Err(HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, what));
    };
    let begun = (api.clock)();
    loop {
        let late = (api.clock)().since(begun) >= WAIT_MAX;
        if let Some(progress) = api.service().orders.end(number, late) {
            return Ok(progress);
        }
        if late {
            return Err(HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "it has been forgotten"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What each member has answered, if all have and `wanted` takes each answer. `otherwise` is said before what went wrong.
fn answered<T>(
    progress: OrderProgress,
    otherwise: &str,
    wanted: impl Fn(OrderOutcome) -> Option<T>,
) -> Result<BTreeMap<String, T>, HttpProblem> {
    let mut answers = BTreeMap::new();
    let mut failed: Vec<String> =
        progress.waiting.iter().map(|id| format!("{id} has not answered")).collect();
    for (id, outcome) in progress.outcomes {
        match outcome {
            OrderOutcome::Failed { reason } => failed.push(format!("{id}: {reason}")),
            outcome => match wanted(outcome) {
                Some(answer) => drop(answers.insert(id, answer)),
                None => failed.push(format!("{id} has answered something else")),
            },
        }
    }
    match failed.is_empty() {
        true => Ok(answers),
        false => {
            let what = format!("{otherwise}: {}", failed.join("; "));
            Err(HttpProblem::new(StatusCode::BAD_GATEWAY, what))
        }
    }
}
