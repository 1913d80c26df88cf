//! Storage that is gone, and comes back. What hangs, or breaks for a moment only, needs no more than holds.

use std::fmt::Write;

use protocol::coherence::lease::EarlierIncarnations;
use protocol::storage::StorageEvent;

use super::{LEASE, Parcel, World};

impl World {
    /// Whether it was a command of these:
    ///
    /// - `gone`, `unfit`: nothing answers any more, or what answers is no storage of this shim's.
    /// - `back`, `back_other`: as it was, or as another incarnation.
    /// - `stale`: for how long copies may have been stale, and how many hits were.
    pub(super) fn gone_command(&mut self, words: &[&str]) -> bool {
        match words[0] {
            "gone" | "unfit" => self.go(words[0] == "gone"),
            "back" => self.come_back(),
            "back_other" => {
                self.incarnation += 1;
                self.come_back();
            }
            "stale" => {
                let shim = self.shim.as_ref().and_then(|shim| shim.stale_for(self.now));
                let now = shim.map_or("no".into(), |stale| format!("for {} ms", stale.as_millis()));
                let nodes = self.nodes.iter().flatten();
                let hits: u64 = nodes.map(|node| node.statistics().stale_hits).sum();
                let _ = writeln!(self.log, "  stale: {now}, {hits} hits");
            }
            _ => return false,
        }
        true
    }

    fn go(&mut self, gone: bool) {
        (self.gone, self.feed) = (true, false);
        for (_, parcel) in std::mem::take(&mut self.held) {
            if let Parcel::Command(store) = parcel {
                let ticket = store.ticket;
                self.stranded.push(store);
                self.send(Parcel::Answer(StorageEvent::Lost { ticket, sent: true }));
            }
        }
        self.send(Parcel::Feed(StorageEvent::FeedDown));
        let reason = if gone { "nothing answers" } else { "it is another one's" };
        self.send(Parcel::Answer(StorageEvent::Down { reason: reason.into(), gone }));
    }

    fn come_back(&mut self) {
        self.gone = false;
        let (incarnation, traits) = (self.incarnation, self.traits());
        let earlier = EarlierIncarnations::recorded(LEASE.restart_wait());
        self.send(Parcel::Answer(StorageEvent::Up { incarnation, traits, earlier }));
    }
}
