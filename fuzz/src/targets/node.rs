//! The node's machine among peers that say anything: it keeps count of what it holds and does no more than it is asked.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use protocol::coherence::lease::LeaseTerms;
use protocol::heat::HeatConfig;
use protocol::node::{Admission, Effect, Input, Node, NodeConfig, NodeSettings};
use protocol::requests::{Overload, RequestLimits};
use protocol::time::Time;
use wire::{Peer, ShimId};

use super::speech::{Speech, pause, peer, placement};

const LEASE: Duration = Duration::from_millis(300);
/// One input may let several waiting readers go, but each of them was an input before.
const EFFECTS_PER_INPUT_MAX: usize = 8;

pub(crate) fn terms() -> LeaseTerms {
    LeaseTerms { duration: LEASE, guard: LEASE / 100 }
}

/// Small, and a short window, so that keys become hot within few requests.
pub(crate) fn heat() -> HeatConfig {
    HeatConfig { rows: 2, counters: 64, filter_rows: 1, filter_bits: 256, window: Duration::from_millis(10) }
}

pub(crate) fn run(data: &[u8]) {
    let _ = steps(&mut Unstructured::new(data));
}

fn config(bytes: &mut Unstructured<'_>) -> Result<NodeConfig> {
    let settings = NodeSettings {
        objects_max: *bytes.choose(&[0, 1, 2, 16])?,
        bytes_max: *bytes.choose(&[0, 300, 1 << 20])?,
        value_bytes_max: *bytes.choose(&[4, 1 << 16])?,
        heat: heat(),
        admission: Admission { heat_min: 1, hysteresis: 250, hold_off: LEASE / 2, hits_min: 1 },
        views_max: *bytes.choose(&[1, 64])?,
        forwarded_max: *bytes.choose(&[1, 1024])?,
        requests: request_limits(bytes)?,
        ..NodeSettings::default()
    };
    Ok(NodeConfig { lease: terms(), seed: 1, settings, ..NodeConfig::default() })
}

/// Half of the members have what is too much for them wait.
pub(super) fn request_limits(bytes: &mut Unstructured<'_>) -> Result<RequestLimits> {
    let overload =
        *bytes.choose(&[Overload::Refuse, Overload::Wait { patience: Duration::from_millis(300) }])?;
    let (rate_max, queue_max) = *bytes.choose(&[(0, 1 << 16), (100, 4)])?;
    Ok(RequestLimits { rate_max, queue_max, window_max: 16, overload })
}

fn steps(bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut node = Node::new(config(bytes)?, placement(true));
    let (mut speech, mut effects) = (Speech::new(), Vec::new());
    let (mut now, mut inputs, mut done) = (Time(10_000_000), 2, 0);
    for shim in [0, 1] {
        node.step(now, Input::Linked(Peer::Shim(ShimId(shim))), &mut effects);
    }
    while !bytes.is_empty() {
        now.0 += pause(bytes)?;
        let input = match bytes.int_in_range(0..=15)? {
            0 | 1 => Input::Tick,
            2 => Input::Linked(peer(bytes)?),
            3 => Input::Unlinked(peer(bytes)?),
            4 => Input::Map(placement(bytes.arbitrary()?)),
            5 if bytes.ratio(1, 32)? => Input::Drain,
            _ => {
                let from = peer(bytes)?;
                let Some(message) = speech.message(bytes)? else { continue };
                Input::Message { from, message }
            }
        };
        inputs += 1;
        node.step(now, input, &mut effects);
        done += effects.len();
        assert!(done <= EFFECTS_PER_INPUT_MAX * inputs, "{done} effects of {inputs} inputs");
        assert!(node.is_consistent(), "the node has lost count");
        for Effect::Send { message, .. } in effects.drain(..) {
            speech.hear(&message);
        }
    }
    Ok(())
}
