//! Near copies: the hottest objects, held by the router itself. It is a node like any other to the shims, on the router's own
//! links; a read that it answers costs no hop. Not when a read may be answered so.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::{Key, Message, NodeId, Peer, ShimId, Status, View};

use crate::coherence::lease::LeaseTerms;
use crate::heat::HeatConfig;
use crate::node::{Admission, Effect, Input, NearRead, Node, NodeConfig, NodeSettings};
use crate::placement::Placement;
use crate::router::settings::NearSettings;
use crate::router::step::RouterStep;
use crate::time::Time;

const VALUE_BYTES_MAX: usize = 64 << 10;
/// So much for each object, of all together.
const OBJECT_BYTES: u64 = 16 << 10;
/// Heat is counted of few keys: those that are asked for a hundred times a second.
const HEAT: HeatConfig = HeatConfig {
    rows: 4,
    counters: 8192,
    filter_rows: 3,
    filter_bits: 32_768,
    window: Duration::from_secs(1),
};

#[derive(Debug, Default)]
pub(crate) struct NearCopies {
    /// Since the first map, if there may be any.
    node: Option<Box<Node>>,
    settings: NearSettings,
    lease: LeaseTerms,
    seed: u64,
    effects: Vec<Effect>,
}

impl NearCopies {
    pub(crate) fn new(settings: NearSettings, lease: LeaseTerms, seed: u64) -> NearCopies {
        NearCopies { node: None, settings, lease, seed, effects: Vec::new() }
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// Whether there may be any.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.node.is_some()
    }

    /// For how long nothing is due.
    pub(crate) fn rest(&self, now: Time) -> Duration {
        self.node.as_ref().map_or(Duration::MAX, |node| node.rest(now))
    }

    /// The reply to a read, if a copy here has it.
    #[inline]
    pub(crate) fn hit(&mut self, now: Time, key: &Key, view: View) -> Option<(Status, Bytes)> {
        self.node.as_mut()?.hit(now, key, view)
    }

    /// A read that others answer.
    pub(crate) fn missed(&mut self, step: &mut RouterStep<'_>, read: &NearRead<'_>) {
        if let Some(node) = &mut self.node {
            node.missed(step.now, read, &mut self.effects);
            self.carry_out(step);
        }
    }

    /// False if it is nothing that a holder of copies is told.
    pub(crate) fn told(&mut self, step: &mut RouterStep<'_>, shim: ShimId, message: Message) -> bool {
        let is_told = matches!(
            message,
            Message::Welcome(_)
                | Message::Reject(_)
                | Message::Grant(_)
                | Message::Refuse(_)
                | Message::Invalidate(_)
                | Message::Commit(_)
                | Message::Revoke(_)
                | Message::Fill(_)
        );
        is_told && self.step(step, Input::Message { from: Peer::Shim(shim), message })
    }

    pub(crate) fn linked(&mut self, step: &mut RouterStep<'_>, peer: Peer) {
        self.step(step, Input::Linked(peer));
    }

    pub(crate) fn unlinked(&mut self, step: &mut RouterStep<'_>, peer: Peer) {
        self.step(step, Input::Unlinked(peer));
    }

    pub(crate) fn tick(&mut self, step: &mut RouterStep<'_>) {
        self.step(step, Input::Tick);
    }

    /// Gives up every copy, so that no write waits for this router's leases.
    pub(crate) fn drain(&mut self, step: &mut RouterStep<'_>) {
        self.step(step, Input::Drain);
    }

    pub(crate) fn take_map(
        &mut self,
        step: &mut RouterStep<'_>,
        placement: &Arc<Placement>,
        linked: impl Iterator<Item = ShimId>,
    ) {
        if self.node.is_some() {
            self.step(step, Input::Map(Arc::clone(placement)));
        } else if self.settings.objects_max > 0 {
            self.begin(step, placement, linked);
        }
    }

    /// Other settings from now on. One that holds nothing any more goes on, so that it can answer for what it held.
    pub(crate) fn set(
        &mut self,
        step: &mut RouterStep<'_>,
        settings: NearSettings,
        placement: Option<&Arc<Placement>>,
        linked: impl Iterator<Item = ShimId>,
    ) {
        if std::mem::replace(&mut self.settings, settings.clone()) == settings {
            return;
        }
        if self.node.is_some() {
            self.step(step, Input::Settings(Box::new(node_settings(&settings))));
        } else if let Some(placement) = placement.filter(|_| settings.objects_max > 0) {
            self.begin(step, placement, linked);
        }
    }

    fn begin(
        &mut self,
        step: &mut RouterStep<'_>,
        placement: &Arc<Placement>,
        linked: impl Iterator<Item = ShimId>,
    ) {
        let config = NodeConfig {
            // Of no node in any map.
            id: NodeId(u16::MAX),
            lease: self.lease,
            seed: self.seed,
            settings: node_settings(&self.settings),
            ..NodeConfig::default()
        };
        self.node = Some(Box::new(Node::new(config, Arc::clone(placement))));
        for shim in linked {
            self.linked(step, Peer::Shim(shim));
        }
    }

    fn step(&mut self, step: &mut RouterStep<'_>, input: Input) -> bool {
        let Some(node) = &mut self.node else { return false };
        node.step(step.now, input, &mut self.effects);
        self.carry_out(step);
        true
    }

    fn carry_out(&mut self, step: &mut RouterStep<'_>) {
        for Effect::Send { to, message } in self.effects.drain(..) {
            step.send(to, message);
        }
    }
}

fn node_settings(settings: &NearSettings) -> NodeSettings {
    NodeSettings {
        objects_max: settings.objects_max,
        bytes_max: OBJECT_BYTES * settings.objects_max as u64,
        value_bytes_max: VALUE_BYTES_MAX,
        heat: HEAT,
        admission: Admission {
            heat_min: settings.heat_min,
            hysteresis: 250,
            hold_off: settings.hold_off,
            hits_min: settings.hits_min,
        },
        policies: settings.policies.clone(),
        observes: settings.observes,
        ..NodeSettings::default()
    }
}
