//! What storage holds after each change is remembered. Not what is concluded.

use crate::cluster::Cluster;
use crate::records::Version;
use crate::storage::Changes;

impl Cluster {
    /// The keys of a server that `changes` names.
    pub(crate) fn keys_changed(&self, server: usize, changes: &Changes) -> Vec<usize> {
        let here = |key: &usize| usize::from(self.placement.shim(&self.keys[*key].key).0) == server;
        let named = |key: &usize| changes.keys.iter().any(|name| self.keys[*key].key.bytes == name[..]);
        (0..self.keys.len()).filter(|key| here(key) && (changes.all || named(key))).collect()
    }

    /// Keys have just changed at a server.
    pub(crate) fn remember(&mut self, server: usize, changes: &Changes) {
        let now_ms = self.servers[server].now_ms(self.world.now());
        for index in self.keys_changed(server, changes) {
            let key = &self.keys[index];
            let own = &mut self.servers[server];
            let mut version = Version::of(own.data(), now_ms, key);
            (version.from, version.expires) = (self.world.now(), own.expires_at(&key.key.bytes));
            self.versions.push(index, version);
        }
    }
}
