//! What must hold in every state.

use stateright::Property;

use super::backend::{self, What};
use super::config::TICK;
use super::coverage::Event;
use super::setup::Cluster;
use super::state::{Broken, NEXT, NodeCell, SHIM, ShimCell, State};

pub(crate) fn all() -> Vec<Property<Cluster>> {
    vec![
        Property::always("a servable copy equals storage", equals_storage),
        Property::always("a servable copy is in the directory, or a restart wait runs", in_the_directory),
        Property::always(
            "a node's lease ends before its shim thinks so, or a restart wait runs",
            lease_ends_first,
        ),
        Property::always("no write is at storage while a copy is servable", no_write_beside_a_copy),
        Property::always(
            "nothing is read at storage while a copy shows what it has lost",
            no_read_beside_a_lost_copy,
        ),
        Property::always("versions never go back", |_, state: &State| {
            !matches!(state.broken, Some(Broken::VersionWentBack { .. }))
        }),
        Property::always("no read misses a write that was done before it arrived", |_, state: &State| {
            !matches!(state.broken, Some(Broken::StaleRead { .. }))
        }),
        Property::always(
            "nothing is executed of which a client was told that it is not",
            |_, state: &State| !matches!(state.broken, Some(Broken::RefusedAndExecuted(_))),
        ),
        Property::always("no write waits for a node longer than a lease", no_longer_than_a_lease),
        Property::always("no machine panics", |_, state: &State| {
            !matches!(state.broken, Some(Broken::Panicked(_)))
        }),
    ]
}

/// The nodes that would answer a read of the key from a copy now.
fn servable<'a>(cluster: &'a Cluster, state: &'a State) -> impl Iterator<Item = usize> + 'a {
    let serves = |index: &usize| {
        let node = &state.nodes[*index];
        cluster.views().iter().any(|view| node.machine.servable(node.now(), &cluster.key, *view).is_some())
    };
    (0..state.nodes.len()).filter(serves)
}

fn equals_storage(cluster: &Cluster, state: &State) -> bool {
    for node in servable(cluster, state) {
        cluster.coverage.note(Event::CopyServable);
        if !cluster.placement.is_place(&cluster.key, state.nodes[node].id) {
            cluster.coverage.note(Event::FurtherServable);
        }
    }
    state.nodes.iter().all(|node| {
        cluster.views().into_iter().all(|view| {
            let copy = node.machine.servable(node.now(), &cluster.key, view);
            let held = [Some(state.storage.value), state.storage.lost.filter(|_| state.is_loss_hidden())];
            copy.is_none_or(|copy| held.iter().flatten().any(|value| *copy == backend::shown(view, *value).1))
        })
    })
}

fn in_the_directory(cluster: &Cluster, state: &State) -> bool {
    let writes = |shim: &&ShimCell| {
        shim.up && !shim.fenced && cluster.owns(shim) && !shim.machine.holds_writes(shim.now())
    };
    let knows = |shim: &ShimCell, node: usize| {
        shim.machine.would_invalidate(&cluster.key, cluster.holder(state.nodes[node].id))
    };
    state.shims.iter().filter(writes).all(|shim| servable(cluster, state).all(|node| knows(shim, node)))
}

/// A reader there would see that it is gone, while others see it still.
fn no_read_beside_a_lost_copy(cluster: &Cluster, state: &State) -> bool {
    let reads = |what| matches!(what, What::Read(_) | What::Fill(_));
    let governing = &state.shims[state.governing()];
    let Some(lost) = state.storage.lost else { return true };
    if governing.machine.holds_reads(governing.now()) && governing.machine.backlog().waiting > 0 {
        cluster.coverage.note(Event::ReadHeld);
    }
    let shows = |node: &NodeCell, view| {
        let copy = node.machine.servable(node.now(), &cluster.key, view);
        copy.is_some_and(|copy| *copy == backend::shown(view, lost).1 && lost != state.storage.value)
    };
    let quiet = !governing.in_flight().any(|command| reads(command.what));
    quiet || !state.nodes.iter().any(|node| cluster.views().into_iter().any(|view| shows(node, view)))
}

/// Whether the lease ends first at the node; a shim that has crashed thinks nothing.
fn lease_ends_first(cluster: &Cluster, state: &State) -> bool {
    let of = |id| state.nodes.iter().map(move |node| (node, id));
    of(SHIM).chain(of(NEXT)).all(|(node, id)| {
        let Some(session) = node.machine.leased(node.now(), id) else { return true };
        let mut processes = state.shims.iter().filter(|shim| shim.id == id);
        let opener = processes.find(|shim| session >> 32 == u64::from(shim.life) + 1);
        opener.is_none_or(|shim| {
            // One that waits after a restart of storage has given up every session at once.
            let waits = shim.machine.holds_writes(shim.now());
            waits || shim.machine.grants_run(shim.now(), cluster.holder(node.id), session)
        })
    })
}

fn no_write_beside_a_copy(cluster: &Cluster, state: &State) -> bool {
    let waits = |what, done: Option<u8>| matches!(what, What::Write(_)) && done.is_none();
    let sent = state.shims.iter().flat_map(|shim| shim.in_flight()).any(|each| waits(each.what, each.done));
    let quiet = !sent && state.storage.late.is_empty();
    quiet || servable(cluster, state).next().is_none()
}

fn no_longer_than_a_lease(cluster: &Cluster, state: &State) -> bool {
    if state.shims.iter().any(|shim| shim.machine.backlog().outstanding > 0) {
        cluster.coverage.note(Event::WriteWaits);
    }
    state.shims.iter().all(|shim| shim.machine.longest_wait() <= TICK * cluster.config.lease_ticks)
}
