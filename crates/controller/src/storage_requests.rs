//! Storage servers that come and go, over HTTP: what has to be so before keys begin to move. Not how they move.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use config::{Mode, ShimChange};
use runtime::status::MemberStatus;
use serde::{Deserialize, Serialize};
use wire::{ShimId, ShimState};

use crate::command::{CommandBody, HttpProblem};
use crate::http::{HttpApi, has_store};
use crate::service::Service;
use crate::view::MapView;

const REPLACE: &str = "have each process replaced (kill -USR2)";

/// What `STORAGE_PATH` takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageChange {
    pub shim: String,
    /// It gets keys, or gives all of them to the others.
    pub joins: bool,
}

/// Keys begin to move; or why they do not.
pub(crate) async fn change(
    State(api): State<HttpApi>,
    body: CommandBody,
) -> Result<Json<MapView>, HttpProblem> {
    let StorageChange { shim, joins } = body.read()?;
    let mut service = api.service();
    has_store(&service)?;
    let refused = |what| HttpProblem::new(StatusCode::CONFLICT, what);
    let number = known(&service, &shim).map_err(refused)?;
    // Who asks once more sees how far it is.
    let state = service.machine.partitions().map().shims[usize::from(number.0)].state;
    if state == if joins { ShimState::Joining } else { ShimState::Leaving } {
        return Ok(Json(MapView::of(&service)));
    }
    // Who asks for what is there already has nothing to write in any file first.
    let allowed = service.machine.partitions().may_reshard(number, joins);
    allowed.map_err(|refusal| refused(format!("{shim:?}: {refusal}")))?;
    may_change(&service, number, joins).map_err(refused)?;
    service.reshard((api.clock)(), number, joins);
    has_store(&service)?;
    Ok(Json(MapView::of(&service)))
}

fn known(service: &Service, id: &str) -> Result<ShimId, String> {
    let config = service.config();
    config.shim_id(id).ok_or_else(|| {
        let ids: Vec<&str> = config.shims.iter().map(|shim| shim.id.as_str()).collect();
        format!("{id:?} is not a shim; the shims are {}", ids.join(", "))
    })
}

fn may_change(service: &Service, shim: ShimId, joins: bool) -> Result<(), String> {
    let config = service.config();
    let id = &config.shim(shim).id;
    if config.cluster.mode == Mode::Bounded {
        return Err(
            "mode = \"bounded\" lets others write to storage, and they would not find keys that move"
                .to_owned(),
        );
    }
    if config.controllers.iter().any(|controller| controller.etcd().is_none()) {
        return Err("controllers have to remember how far it is when they are restarted: give [[controller]] store = \"etcd://...\""
            .to_owned());
    }
    let wanted = if joins { ShimChange::Joining } else { ShimChange::Leaving };
    if config.shim(shim).state != Some(wanted) {
        return Err(format!(
            "every member has to know of it first: write state = {:?} in [[shim]] {id:?} in the file of every host; {REPLACE}",
            wanted.word()
        ));
    }
    let silent = service.machine.liveness().map(|(peer, _)| config.peer_name(peer));
    let silent: Vec<String> = silent.filter(|id| !service.statuses.contains_key(id)).collect();
    if !silent.is_empty() {
        return Err(format!(
            "nothing is heard of {}; start them, or take them out of the file",
            silent.join(", ")
        ));
    }
    let fewer = service.with_fewer_shims();
    if !fewer.is_empty() {
        return Err(format!(
            "{}: started with a file that does not list {id:?} yet; {REPLACE}",
            fewer.join(", ")
        ));
    }
    let away = service.statuses.values().filter_map(|status| match status {
        MemberStatus::Shim(shim) if !shim.storage_up && !shim.standing_by => Some(shim.id.as_str()),
        _ => None,
    });
    let away: Vec<&str> = away.collect();
    if away.is_empty() { Ok(()) } else { Err(format!("storage of {} cannot be reached", away.join(", "))) }
}
