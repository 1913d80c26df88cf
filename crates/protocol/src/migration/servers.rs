//! What the servers report, and what that makes of storage as a whole. Not what they are asked.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::ShimId;

use super::{Effect, Migration, MigrationPhase, MigrationStep, MoveQuestion};
use crate::coherence::lease::EarlierIncarnations;
use crate::shards::invalidate;
use crate::shim::changed_keys;
use crate::storage::{Lane, Reach, StorageEvent, StorageTraits, Store};

/// Where a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigrationPlace {
    /// The storage of the shim itself.
    Home,
    /// Another shim's.
    Destination(ShimId),
}

/// One server, as its connections report it.
#[derive(Clone, Debug, Default)]
pub(super) struct MigrationServer {
    pub(super) up: Option<(u64, StorageTraits)>,
    /// The incarnation before, if it was ever up.
    last: Option<u64>,
    /// Commands were lost there and not fenced since.
    pub(super) owes_fence: bool,
}

impl MigrationServer {
    pub(super) fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Whether what it is asked now is carried out after everything that it was asked before.
    pub(super) fn is_ready(&self) -> bool {
        self.is_up() && !self.owes_fence
    }
}

/// The machine's own tickets are no shim's.
const OWN: u64 = 1 << 63;

impl Migration {
    pub(super) fn server(&self, place: MigrationPlace) -> Option<&MigrationServer> {
        match place {
            MigrationPlace::Home => Some(&self.home),
            MigrationPlace::Destination(shim) => self.destinations.get(&shim),
        }
    }

    fn server_mut(&mut self, place: MigrationPlace) -> Option<&mut MigrationServer> {
        match place {
            MigrationPlace::Home => Some(&mut self.home),
            MigrationPlace::Destination(shim) => self.destinations.get_mut(&shim),
        }
    }

    pub(super) fn server_event(
        &mut self,
        step: &mut MigrationStep<'_>,
        place: MigrationPlace,
        event: StorageEvent,
    ) {
        match event {
            StorageEvent::Up { incarnation, traits, earlier } => {
                self.server_up(step, place, (incarnation, traits), earlier);
            }
            StorageEvent::Down { reason, gone } => {
                if let Some(server) = self.server_mut(place) {
                    server.up = None;
                }
                if place == MigrationPlace::Home {
                    self.drop_units(step);
                    step.report(StorageEvent::Down { reason, gone });
                }
            }
            StorageEvent::Replies { ticket, replies } if ticket & OWN != 0 => {
                if let Some((_, question)) = self.questions.try_remove((ticket & !OWN) as usize) {
                    self.answered(step, question, &replies);
                }
            }
            StorageEvent::Lost { ticket, sent } => self.lost(step, place, ticket, sent),
            StorageEvent::Fenced => {
                if let Some(server) = self.server_mut(place) {
                    server.owes_fence = false;
                }
                if !self.owes_fence() {
                    step.report(StorageEvent::Fenced);
                }
            }
            StorageEvent::Replies { ticket, replies } => self.replied(step, ticket, replies),
            // What is the machine's own is kept until it is whole.
            StorageEvent::Large { ticket } if ticket & OWN != 0 => {}
            StorageEvent::Part { ticket, last, .. } => {
                if last {
                    self.ended(ticket);
                }
                step.report(event);
            }
            StorageEvent::ReadChanged(push) if place == MigrationPlace::Home => {
                if let Some(push) = self.changed_by_others(push) {
                    step.report(StorageEvent::ReadChanged(push));
                }
            }
            // Of what is at destinations their own shims hear, which is all of it in the end.
            _ if place != MigrationPlace::Home
                && !matches!(event, StorageEvent::Large { .. } | StorageEvent::Note { .. }) => {}
            event => step.report(event),
        }
    }

    /// What moves is deleted here by this machine.
    fn changed_by_others(&self, push: Bytes) -> Option<Bytes> {
        let Some(Some(keys)) = changed_keys(&push).filter(|_| self.divides()) else { return Some(push) };
        let moves = |key: &Bytes| self.keys.contains_key(key) || self.settled.contains(key);
        let left: Vec<Bytes> = keys.iter().filter(|key| !moves(key)).cloned().collect();
        match left.len() {
            0 => None,
            some if some == keys.len() => Some(push),
            _ => Some(invalidate(&left)),
        }
    }

    pub(super) fn owes_fence(&self) -> bool {
        self.home.owes_fence || self.destinations.values().any(|server| server.owes_fence)
    }

    /// A server that is another one than before may have lost what it was told, and may have again what was deleted there.
    fn server_up(
        &mut self,
        step: &mut MigrationStep<'_>,
        place: MigrationPlace,
        up: (u64, StorageTraits),
        earlier: EarlierIncarnations,
    ) {
        let Some(server) = self.server_mut(place) else { return };
        let is_other = server.last.is_some_and(|last| last != up.0);
        (server.up, server.last) = (Some(up), Some(up.0));
        if is_other {
            server.owes_fence = false;
            self.settled.clear();
            self.restart_scan();
            // What was granted of its keys may not be what it has.
            self.other_data |= place != MigrationPlace::Home;
            self.is_void = true;
            // Somebody else may have had the home meanwhile.
            self.again |= self.phase == MigrationPhase::Connecting;
        }
        if place == MigrationPlace::Home || is_other {
            self.tell_up(
                step,
                if place == MigrationPlace::Home { earlier } else { EarlierIncarnations::NONE },
            );
        }
    }

    /// Under the number that the shim knows, unless a server is another one than it was.
    pub(super) fn tell_up(&mut self, step: &mut MigrationStep<'_>, earlier: EarlierIncarnations) {
        let Some((home, mut traits)) = self.home.up else { return };
        traits.many_servers |= self.divides();
        let incarnation = match self.told {
            Some(told) if !self.is_void => told,
            Some(told) if self.phase != MigrationPhase::Idle => told.rotate_left(1) ^ home,
            _ => home,
        };
        let same_data = earlier.same_data && !self.other_data;
        (self.told, self.is_void, self.other_data) = (Some(incarnation), false, false);
        let earlier = EarlierIncarnations { same_data, ..earlier };
        step.report(StorageEvent::Up { incarnation, traits, earlier });
    }

    /// Whether commands may be carried out elsewhere than at home.
    pub(super) fn divides(&self) -> bool {
        !matches!(self.phase, MigrationPhase::Idle | MigrationPhase::Connecting | MigrationPhase::Draining)
    }

    /// Whether what leaves may be elsewhere, or is about to be.
    pub(super) fn divides_or_may(&self) -> bool {
        match self.phase {
            MigrationPhase::Idle => false,
            MigrationPhase::Connecting => self.again,
            _ => true,
        }
    }

    pub(super) fn ask(
        &mut self,
        step: &mut MigrationStep<'_>,
        place: MigrationPlace,
        question: MoveQuestion,
        commands: SmallVec<[Bytes; 2]>,
    ) {
        self.ask_on(step, place, Lane::Shared { resp3: false }, question, commands);
    }

    pub(super) fn ask_on(
        &mut self,
        step: &mut MigrationStep<'_>,
        place: MigrationPlace,
        lane: Lane,
        question: MoveQuestion,
        commands: SmallVec<[Bytes; 2]>,
    ) {
        let ticket = OWN | self.questions.insert((place, question)) as u64;
        step.effects
            .push(Effect::Store { place, store: Store { ticket, lane, reach: Reach::Whole, commands } });
    }

    fn lost(&mut self, step: &mut MigrationStep<'_>, place: MigrationPlace, ticket: u64, sent: bool) {
        if sent && let Some(server) = self.server_mut(place) {
            server.owes_fence = true;
        }
        if ticket & OWN == 0 {
            self.ended(ticket);
            return step.report(StorageEvent::Lost { ticket, sent });
        }
        if let Some((_, question)) = self.questions.try_remove((ticket & !OWN) as usize) {
            self.unanswered(step, question);
        }
    }
}
