//! One view of one key, as reads ask for it. Not who asks.

use wire::{Key, View};

/// Reads of the same are answered by the same reply.
#[derive(Clone, Debug)]
pub(crate) struct KeyView {
    pub(crate) key: Key,
    pub(crate) view: View,
    /// The version of RESP that the reply is in.
    pub(crate) resp3: bool,
}
