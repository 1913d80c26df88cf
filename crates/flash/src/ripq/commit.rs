//! What the journal is told, and when: changes that must not be undone by a crash, and the order of the blocks. Not its
//! bytes.

use super::evicted::Evicted;
use super::state::RipqState;
use super::write::RipqWriter;
use super::{Ripq, recovery};
use crate::FlashError;
use crate::journal::{Journal, JournalChange};

/// Changes that may wait for the next durable one: a sector of the journal.
const PENDING_MAX: usize = 256;

/// Taken from the state for the journal; put back if that fails. While it is told, readers may cause more of it.
#[derive(Default)]
struct Untold {
    changes: Vec<JournalChange>,
    /// Objects of which nothing is left once these changes are durable.
    evicted: Evicted,
}

impl RipqState {
    fn take_untold(&mut self) -> Untold {
        Untold { changes: std::mem::take(&mut self.pending), evicted: std::mem::take(&mut self.evicted) }
    }

    fn put_back(&mut self, untold: Untold) {
        self.pending.splice(0..0, untold.changes);
        self.evicted.note_all(untold.evicted);
    }
}

impl Ripq {
    /// Tells the journal what must not come back: at once, on the device, if `durable`; otherwise when there is much of it.
    pub(super) fn commit_changes(&self, writer: &mut RipqWriter, durable: bool) -> Result<(), FlashError> {
        let checkpoint_due = writer.blocks_since_checkpoint >= (self.layout.blocks / 8).max(64);
        let (untold, durable) = {
            let mut state = self.state();
            if checkpoint_due || !writer.journal.has_room(state.pending.len()) {
                drop(state);
                return self.checkpoint(writer);
            }
            let durable = (durable || state.evicted.are_many()) && self.settings.durable_changes;
            match durable {
                true => (state.take_untold(), true),
                false if state.pending.len() < PENDING_MAX => return Ok(()),
                false => (Untold { changes: std::mem::take(&mut state.pending), ..Untold::default() }, false),
            }
        };
        self.tell(writer, untold, |journal, untold| {
            let device = &*self.device;
            journal
                .commit(device, &untold.changes)
                .map_err(|error| FlashError::device("writing the journal", error))?;
            if durable {
                journal.sync(device).map_err(|error| FlashError::device("syncing the journal", error))?;
            }
            Ok(())
        })
    }

    /// Saves the order of the blocks and what is dead in them.
    pub(super) fn checkpoint(&self, writer: &mut RipqWriter) -> Result<(), FlashError> {
        let (payload, untold) = {
            let mut state = self.state();
            (recovery::payload(&state), state.take_untold())
        };
        self.tell(writer, untold, |journal, _| {
            if payload.len() > journal.payload_bytes_max() {
                return Err(FlashError::Failed("the journal has no room for what was removed".into()));
            }
            journal
                .checkpoint(&*self.device, &payload)
                .map_err(|error| FlashError::device("writing a checkpoint", error))
        })?;
        self.state().statistics.checkpoints += 1;
        writer.blocks_since_checkpoint = 0;
        Ok(())
    }

    /// Counts what is written to the journal, and keeps what it could not be told.
    fn tell(
        &self,
        writer: &mut RipqWriter,
        untold: Untold,
        write: impl FnOnce(&mut Journal, &Untold) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        let before = writer.journal.written_bytes();
        let told = write(&mut writer.journal, &untold);
        let mut state = self.state();
        state.statistics.written_bytes += writer.journal.written_bytes() - before;
        if told.is_err() {
            state.put_back(untold);
        }
        drop(state);
        writer.note_journal(&told);
        told
    }
}
