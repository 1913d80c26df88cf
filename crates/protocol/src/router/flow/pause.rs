//! CLIENT PAUSE: until when commands for storage wait in their clients' pipelines. Not the command that says so.

use crate::router::flow::send::writes;
use crate::time::Time;
use commands::CommandKind;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPause {
    pub(crate) until: Time,
    /// Reads as well.
    pub(crate) all: bool,
}

impl ClientPause {
    /// The later end and the wider kind, as in Redis.
    pub(crate) fn joined(self, other: ClientPause) -> ClientPause {
        ClientPause { until: self.until.max(other.until), all: self.all || other.all }
    }

    pub(crate) fn holds(self, now: Time, kind: CommandKind) -> bool {
        now < self.until && (self.all || writes(kind))
    }
}
