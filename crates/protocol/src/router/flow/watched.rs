//! What watches for a client, and what ends that. Not whether a key has changed.

use wire::message::Cancel;
use wire::{Message, Peer};

use crate::placement::Home;
use crate::router::step::RouterStep;

/// The shim that watches for a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientWatch {
    /// The client's first WATCH: the shim knows it by that.
    pub(crate) request: u64,
    pub(crate) home: Home,
    /// The shim was lost meanwhile: nothing may be executed.
    pub(crate) lost: bool,
}

impl ClientWatch {
    /// Tells the shim that it watches for nobody any more.
    pub(crate) fn end(self, step: &mut RouterStep<'_>) {
        step.send(Peer::Shim(self.home.shim), Message::Cancel(Cancel { request: self.request }));
    }
}
