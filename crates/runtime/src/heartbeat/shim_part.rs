//! How the keys of a shim are divided anew, as JSON. Not what follows from it.

use protocol::controller::resharding::ShimPart;
use serde::{Deserialize, Serialize};
use wire::{Relocation, ShimState};

/// What a map says of a shim besides that it is one. What another release says more is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimPartText {
    #[serde(with = "StateText")]
    pub state: ShimState,
    /// How far what leaves it is.
    #[serde(with = "RelocationText")]
    pub leaving: Relocation,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ShimState", rename_all = "kebab-case")]
enum StateText {
    Normal,
    Joining,
    Leaving,
    Absent,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Relocation", rename_all = "kebab-case")]
enum RelocationText {
    Moving,
    Announced,
    Closing,
    Gone,
}

impl From<ShimPart> for ShimPartText {
    fn from(part: ShimPart) -> ShimPartText {
        ShimPartText { state: part.state, leaving: part.relocation }
    }
}

impl From<ShimPartText> for ShimPart {
    fn from(text: ShimPartText) -> ShimPart {
        ShimPart { state: text.state, relocation: text.leaving }
    }
}
