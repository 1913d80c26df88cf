//! `distcache storage`: has keys go to a storage server that is new, or away from one that is to go, and shows how far that is. The
//! controllers decide and the shims move; this asks and watches.

use std::time::{Duration, Instant};

use anyhow::bail;
use controller::{MapView, STORAGE_PATH, ShimView, StorageChange};
use runtime::status::{ClusterStatus, ReshardingStatus, ShimStatus};
use serde::Serialize;
use wire::{Relocation, ShimState};

use super::ask::{CommandArguments, Commander, ControllerArguments};
use lab::terminal::{print, say};

/// How often it looks how far it is, and says so.
const LOOK: Duration = Duration::from_millis(100);
const SAY: Duration = Duration::from_secs(5);
/// For so long nothing may be heard of the controller: it may be replaced meanwhile.
const AWAY_MAX: Duration = Duration::from_secs(30);
/// Controllers need no longer to agree on a map.
const BEGUN: Duration = Duration::from_secs(10);

/// Add and remove storage servers while the cluster serves
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StorageArguments {
    #[command(subcommand)]
    command: StorageCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum StorageCommand {
    /// Give a shim that has no keys its part of them; the others' servers keep the rest
    ///
    /// Its [[shim]] has state = "joining" in the file of every host, and every process has been replaced since. Once it is done,
    /// write "joined" there.
    Add(ChangeArguments),
    /// Have all keys of a shim go to the others, so that its server can be taken away
    ///
    /// Its [[shim]] has state = "leaving" in the file of every host, and every process has been replaced since. Once it is done,
    /// write "left" there: the entry keeps the numbers of the others.
    Remove(ChangeArguments),
    /// Show which shims have keys, and how far it is with those that move
    Status(ControllerArguments),
}

#[derive(Clone, Debug, clap::Args)]
struct ChangeArguments {
    /// The shim before the server: an id of the configuration
    #[arg(value_name = "ID")]
    id: String,

    /// Do not wait until all keys have moved
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    command: CommandArguments,
}

/// How it stands with one shim.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ShimOutcome {
    #[serde(flatten)]
    shim: ShimView,
    resharding: Option<ReshardingStatus>,
}

pub(crate) fn run(arguments: &StorageArguments) -> anyhow::Result<()> {
    match &arguments.command {
        StorageCommand::Add(change) => run_change(change, true),
        StorageCommand::Remove(change) => run_change(change, false),
        StorageCommand::Status(controller) => {
            let outcomes = outcomes(&controller.get("/v1/map", &[])?, &controller.get("/v1/status", &[])?);
            show(&outcomes, controller.json)
        }
    }
}

fn show(outcomes: &[ShimOutcome], json: bool) -> anyhow::Result<()> {
    print(&match json {
        true => serde_json::to_string(outcomes)?,
        false => {
            let joins = outcomes.iter().any(|outcome| outcome.shim.part.state == ShimState::Joining);
            outcomes.iter().map(|outcome| line(outcome, joins)).collect::<Vec<_>>().join("\n")
        }
    });
    Ok(())
}

fn run_change(arguments: &ChangeArguments, joins: bool) -> anyhow::Result<()> {
    let commander = arguments.command.open()?;
    let request = StorageChange { shim: arguments.id.clone(), joins };
    let map: MapView = commander.post(STORAGE_PATH, &request)?;
    let json = arguments.command.controller.json;
    if arguments.no_wait {
        return show(&outcomes(&map, &ClusterStatus::default()), json);
    }
    let wanted = if joins { ShimState::Normal } else { ShimState::Absent };
    let is_done =
        |outcome: &ShimOutcome| outcome.shim.id == arguments.id && outcome.shim.part.state == wanted;
    let outcomes = watch(&commander, |outcomes| outcomes.iter().any(is_done))?;
    show(&outcomes, json)?;
    if !json {
        let word = if joins { "joined" } else { "left" };
        print(&format!("write state = {word:?} in [[shim]] {:?} in the file of every host", arguments.id));
    }
    Ok(())
}

/// Until it is done. The map that is told first may be the one of before. Keys move on while a controller is away.
fn watch(
    commander: &Commander,
    is_done: impl Fn(&[ShimOutcome]) -> bool,
) -> anyhow::Result<Vec<ShimOutcome>> {
    let begun = Instant::now();
    let (mut said, mut moved, mut heard) = (begun, begun, begun);
    loop {
        let told = commander.get("/v1/map").and_then(|map| Ok(outcomes(&map, &commander.get("/v1/status")?)));
        let outcomes = match told {
            Ok(outcomes) => outcomes,
            Err(error) if heard.elapsed() > AWAY_MAX => {
                return Err(
                    error.context("keys go on moving; `distcache storage status` shows how far it is")
                );
            }
            Err(_) => {
                std::thread::park_timeout(LOOK);
                continue;
            }
        };
        heard = Instant::now();
        match outcomes.iter().any(|outcome| moves(outcome.shim.part.state)) {
            true => moved = Instant::now(),
            false if is_done(&outcomes) => return Ok(outcomes),
            false if moved.elapsed() > BEGUN => {
                bail!("the map does not show the change; ask for `distcache storage status`")
            }
            false => {}
        }
        if said.elapsed() >= SAY {
            said = Instant::now();
            say(&summary(&outcomes, begun.elapsed()));
        }
        std::thread::park_timeout(LOOK);
    }
}

fn moves(state: ShimState) -> bool {
    matches!(state, ShimState::Joining | ShimState::Leaving)
}

/// What shims have said last of keys that move is of no use once none does.
fn outcomes(map: &MapView, status: &ClusterStatus) -> Vec<ShimOutcome> {
    let changes = map.shims.iter().any(|shim| moves(shim.part.state));
    let of = |shim: &ShimView| {
        let is_it = |status: &&ShimStatus| changes && status.storage_up && status.of == shim.id;
        let resharding = status.shims.iter().find(is_it).map(|status| (*status.resharding).clone());
        ShimOutcome { shim: shim.clone(), resharding }
    };
    map.shims.iter().map(of).collect()
}

/// `joins`: keys go to a shim that has none, so that those with keys give some of them.
fn line(outcome: &ShimOutcome, joins: bool) -> String {
    let part = outcome.shim.part;
    let gives = match part.state {
        ShimState::Normal => joins,
        ShimState::Leaving => true,
        ShimState::Joining | ShimState::Absent => false,
    };
    let state = match part.state {
        ShimState::Normal => "has keys",
        ShimState::Joining => "gets keys",
        ShimState::Leaving => "gives all keys away",
        ShimState::Absent => "has no keys",
    };
    let stage = match part.leaving {
        // Of one that gives none it says that it can have what comes.
        _ if !gives => "",
        Relocation::Moving => "",
        Relocation::Announced | Relocation::Closing => ", hands those that have moved over",
        Relocation::Gone => ", has handed those that have moved over",
    };
    let moving = outcome.resharding.as_ref().filter(|moving| !matches!(&moving.phase[..], "" | "settled"));
    let moving = moving.map(|moving| format!(", {}", told(moving))).unwrap_or_default();
    format!("{}: {state}{stage}{moving}", outcome.shim.id)
}

fn told(moving: &ReshardingStatus) -> String {
    let ReshardingStatus { moved, keys, seen, stuck, reason, .. } = moving;
    let share = (100 * seen.min(keys)).checked_div(*keys).unwrap_or(0);
    let stuck = match (stuck, reason) {
        (0, None) => String::new(),
        (0, Some(reason)) => format!("; waits: {reason}"),
        (stuck, reason) => {
            format!("; {stuck} cannot be moved yet: {}", reason.as_deref().unwrap_or("no reason is known"))
        }
    };
    if prepares(moving) {
        return format!("looks for old values of keys that come{stuck}");
    }
    format!("{moved} keys moved, {share} % of its {keys} looked at{stuck}")
}

fn prepares(moving: &ReshardingStatus) -> bool {
    matches!(&moving.phase[..], "preparing" | "prepared")
}

/// All together in one line, with the time that is left if it goes on like that.
fn summary(outcomes: &[ShimOutcome], elapsed: Duration) -> String {
    let moving = || outcomes.iter().filter_map(|outcome| outcome.resharding.as_ref());
    let sum = |of: fn(&ReshardingStatus) -> u64| moving().map(of).sum::<u64>();
    let (moved, keys, seen) = (sum(|one| one.moved), sum(|one| one.keys), sum(|one| one.seen.min(one.keys)));
    let left = (seen > 0).then(|| elapsed.as_secs_f64() * (keys - seen) as f64 / seen as f64);
    let left = left.map(|left| format!(", about {left:.0} s left")).unwrap_or_default();
    let stuck = sum(|one| one.stuck);
    let stuck = if stuck > 0 { format!(", {stuck} cannot be moved yet") } else { String::new() };
    let waits = outcomes.iter().find_map(|outcome| {
        let moving = outcome.resharding.as_ref()?;
        let reason = moving.reason.as_ref().filter(|_| moving.stuck == 0)?;
        Some(format!("; {} waits: {reason}", outcome.shim.id))
    });
    let waits = waits.unwrap_or_default();
    if moving().any(prepares) {
        return format!("old values of keys that come are looked for{waits}");
    }
    format!("{moved} keys moved, {seen} of {keys} looked at{left}{stuck}{waits}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        ClusterStatus, MapView, ReshardingStatus, ShimOutcome, ShimStatus, ShimView, line, outcomes, summary,
    };
    use runtime::heartbeat::ShimPartText;
    use wire::{Relocation, ShimState};

    fn outcome(state: ShimState, leaving: Relocation, resharding: Option<ReshardingStatus>) -> ShimOutcome {
        let (id, rack) = ("shim-0".to_owned(), "r".to_owned());
        ShimOutcome { shim: ShimView { id, rack, part: ShimPartText { state, leaving } }, resharding }
    }

    #[test]
    fn how_far_it_is_is_told_in_words() {
        let view = |state| MapView {
            epoch: 7,
            layers: Vec::new(),
            shims: vec![outcome(state, Relocation::Moving, None).shim],
        };
        let said = ShimStatus { of: "shim-0".to_owned(), storage_up: true, ..ShimStatus::default() };
        let status = ClusterStatus { shims: vec![said], ..ClusterStatus::default() };
        let told = |state| outcomes(&view(state), &status)[0].resharding.is_some();
        assert!(
            told(ShimState::Leaving) && !told(ShimState::Normal),
            "of a change that is over nothing is told"
        );
        let moving = ReshardingStatus {
            phase: "moving".to_owned(),
            moved: 300,
            keys: 1000,
            seen: 250,
            ..ReshardingStatus::default()
        };
        let stuck = ReshardingStatus { stuck: 2, reason: Some("OOM".to_owned()), ..moving.clone() };
        let check = |outcome: ShimOutcome, expected: &str| assert_eq!(line(&outcome, true), expected);
        let (normal, joining) = (ShimState::Normal, ShimState::Joining);
        check(outcome(normal, Relocation::Moving, None), "shim-0: has keys");
        check(outcome(joining, Relocation::Moving, Some(ReshardingStatus::default())), "shim-0: gets keys");
        let told = "shim-0: has keys, 300 keys moved, 25 % of its 1000 looked at";
        check(outcome(normal, Relocation::Moving, Some(moving.clone())), told);
        let told = "shim-0: gives all keys away, 300 keys moved, 25 % of its 1000 looked at; 2 cannot be moved yet: OOM";
        check(outcome(ShimState::Leaving, Relocation::Moving, Some(stuck.clone())), told);
        let receives = outcome(normal, Relocation::Announced, None);
        assert_eq!(line(&receives, false), "shim-0: has keys");
        check(receives, "shim-0: has keys, hands those that have moved over");
        let reason = Some("its server has 5 keys already".to_owned());
        let preparing =
            ReshardingStatus { phase: "preparing".to_owned(), reason, ..ReshardingStatus::default() };
        let preparing = outcome(joining, Relocation::Moving, Some(preparing));
        let told = "old values of keys that come are looked for; shim-0 waits: its server has 5 keys already";
        assert_eq!(summary(std::slice::from_ref(&preparing), Duration::from_secs(10)), told);
        check(
            preparing,
            "shim-0: gets keys, looks for old values of keys that come; waits: its server has 5 keys already",
        );
        let both = [moving, stuck].map(|moving| outcome(normal, Relocation::Moving, Some(moving)));
        let told = "600 keys moved, 500 of 2000 looked at, about 30 s left, 2 cannot be moved yet";
        assert_eq!(summary(&both, Duration::from_secs(10)), told);
    }
}
