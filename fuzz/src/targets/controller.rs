//! The controller's machine between members that say anything and a store that others write to: its epochs only grow,
//! and each of its maps places keys.

use arbitrary::{Result, Unstructured};
use protocol::controller::partitions::{Effect, Input, Ownership, Partitions, Terms};
use protocol::controller::resharding::{ReshardingReport, ShimPart};
use protocol::placement::{Placement, Secret};
use protocol::shim::ReshardingPhase;
use protocol::time::Time;
use wire::{ClusterMap, NodeId, Peer, Relocation, RouterId, ShimId, ShimState};

use super::speech::{peer, placement};

pub(crate) fn run(data: &[u8]) {
    let _ = steps(&mut Unstructured::new(data));
}

fn steps(bytes: &mut Unstructured<'_>) -> Result<()> {
    let first = placement(true).map().clone();
    let mut now = Time(1_000_000);
    let mut machine = Partitions::new(now, Terms::default(), first.clone(), &[Peer::Router(RouterId(0))]);
    while !bytes.is_empty() {
        now.0 += u64::from(bytes.arbitrary::<u16>()?) * 40;
        let (mut effects, before) = (Vec::new(), machine.map().epoch);
        let input = input(bytes, before, &first)?;
        machine.step(now, input, &mut effects);
        assert!(machine.map().epoch >= before, "it goes back to {} from {before}", machine.map().epoch);
        assert!(effects.len() <= 1, "{effects:?}");
        for Effect::Publish(map) in effects {
            assert!(map.epoch > before, "an epoch stands for two maps");
            assert_eq!(&map, machine.map());
            assert_eq!(machine.ownership().len(), first.layers.len());
        }
    }
    let placed = Placement::new(Secret([3; 16]), machine.map().clone());
    assert!(placed.is_ok(), "{placed:?}");
    Ok(())
}

fn epoch(bytes: &mut Unstructured<'_>, current: u32) -> Result<u32> {
    Ok(match bytes.int_in_range(0..=7)? {
        0 => bytes.arbitrary()?,
        1 => current.saturating_add(1),
        2 => current.saturating_sub(1),
        3 => *bytes.choose(&[u32::MAX, u32::MAX / 2])?,
        _ => current,
    })
}

const PHASES: [ReshardingPhase; 4] =
    [ReshardingPhase::Settled, ReshardingPhase::Moving, ReshardingPhase::Moved, ReshardingPhase::Ended];

fn part(bytes: &mut Unstructured<'_>) -> Result<ShimPart> {
    let states = [ShimState::Normal, ShimState::Joining, ShimState::Leaving, ShimState::Absent];
    let relocations = [Relocation::Moving, Relocation::Announced, Relocation::Closing, Relocation::Gone];
    Ok(ShimPart { state: *bytes.choose(&states)?, relocation: *bytes.choose(&relocations)? })
}

fn input(bytes: &mut Unstructured<'_>, current: u32, map: &ClusterMap) -> Result<Input> {
    Ok(match bytes.int_in_range(0..=12)? {
        0 => Input::Forgotten { epoch: epoch(bytes, current)? },
        1 => Input::Registered { member: peer(bytes)? },
        2 => Input::Expired { member: peer(bytes)? },
        3 => Input::Left { member: peer(bytes)? },
        4 => Input::Drain { node: NodeId(bytes.int_in_range(0..=3)?), drained: bytes.arbitrary()? },
        5 | 6 => {
            let mut nodes = Vec::new();
            for _ in 0..bytes.int_in_range(0..=3)? {
                nodes.push(Ownership { share: bytes.int_in_range(0..=1000)?, drained: bytes.arbitrary()? });
            }
            let mut shims = Vec::new();
            for _ in 0..bytes.int_in_range(0..=3)? {
                shims.push(part(bytes)?);
            }
            Input::Published { epoch: epoch(bytes, current)?, level: bytes.arbitrary()?, nodes, shims }
        }
        7 => Input::Grown { map: map.clone(), others: vec![peer(bytes)?], stored: bytes.arbitrary()? },
        8 | 9 => Input::Heartbeat {
            level: bytes.arbitrary()?,
            member: peer(bytes)?,
            epoch: epoch(bytes, current)?,
            empty: bytes.arbitrary()?,
            resharding: Some(ReshardingReport { shim: ShimId(0), phase: *bytes.choose(&PHASES)? }),
        },
        10 => Input::Reshard { shim: ShimId(0), joins: bytes.arbitrary()? },
        _ => Input::Tick,
    })
}
