//! What decides what the machine will do, for the model checker. Changes nothing.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use super::{Migration, MoveQuestion};

impl Migration {
    /// The same for machines that will do the same. Left out: what people are told, and the number of the round in which the home is
    /// gone through.
    pub fn fingerprint(&self, state: &mut impl Hasher) {
        let Migration {
            config: _,
            progress: _,
            phase,
            departures,
            unconnected,
            again,
            recorded,
            libraries,
            home,
            destinations,
            apart,
            recalled,
            watches,
            watch_last,
            watch_void,
            drains,
            questions,
            units,
            sent,
            keys,
            halted,
            later,
            settled,
            at_home,
            held,
            scan,
            asked,
            told,
            is_void,
            other_data,
        } = self;
        hash_all(&[phase, &departures.is_some(), unconnected, again, recorded, libraries], state);
        hash_all(&[home, destinations, apart, recalled, watches, watch_last, watch_void, drains], state);
        hash_all(&[units, sent, keys, halted, later, settled, at_home, held], state);
        hash_all(&[asked, told, is_void, other_data], state);
        scan.fingerprint(state);
        for (ticket, (place, question)) in questions {
            match question {
                MoveQuestion::Scan(round) => (ticket, place, scan.is_round(*round)).hash(state),
                question => hash_all(&[&ticket, place, question], state),
            }
        }
    }
}

pub(super) fn hash_all(parts: &[&dyn Debug], state: &mut impl Hasher) {
    parts.iter().for_each(|part| format!("{part:?}").hash(state));
}
