//! That clients who keep what they read are told when it is replaced. Not how.

use crate::cluster::Cluster;
use crate::storage::RECONNECT;

impl Cluster {
    /// Nothing goes on any more: what clients keep is what storage holds.
    pub(crate) fn check_kept(&mut self) {
        self.check_kept_since(crate::records::INSPECT_US + self.slack());
    }

    /// Nothing has held reports up for a while: what had changed before has been told.
    pub(crate) fn check_kept_in_calm(&mut self) {
        let calm = self.slack() + self.shape.lease / 2 + RECONNECT;
        let disturbances = self.watch.disturbances.iter().map(|other| other.until);
        let trouble = disturbances.max().unwrap_or(0).max(self.watch.feed_trouble);
        if self.shape.trackers > 0 && trouble + calm < self.world.now() {
            self.check_kept_since(crate::records::INSPECT_US + calm);
        }
    }

    fn check_kept_since(&mut self, age: u64) {
        let since = self.world.now().saturating_sub(age);
        let mut stale = None;
        for (index, client) in self.clients.iter().enumerate() {
            let Some(tracker) = &client.tracker else { continue };
            for ((key, form), reply) in &tracker.kept {
                if self.versions.explain(*key, *form, reply, since, self.world.now()) {
                    continue;
                }
                let replaced = self.versions.replaced_at(*key, *form, reply).unwrap_or(0);
                stale = Some(format!(
                    "client {index} ({:?}, noloop: {}) still keeps {} for {:?}, which was replaced at {replaced} us, \
                     and was not told",
                    tracker.choice,
                    tracker.noloop,
                    String::from_utf8_lossy(reply).replace("\r\n", " "),
                    self.keys[*key].reads[*form].command
                ));
            }
        }
        if let Some(stale) = stale {
            self.world.fail(stale);
        }
    }
}
