//! What a process tells one of its members while it serves: new settings, copies to drop. Not who asks for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::status::HotKeyView;
use config::Config;

/// Purges that wait for their member; it takes all of them at its next turn.
const PURGES_MAX: usize = 64;

/// Whose copies a purge drops; keys as `key_text` writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeScope {
    Key(String),
    Prefix(String),
    All,
}

/// Called once, with how many copies there were. It must not block.
pub type Purged = Box<dyn FnOnce(u64) + Send>;

pub enum Order {
    /// The configuration to act on from now on.
    Settings(Arc<Config>),
    Purge {
        scope: PurgeScope,
        done: Purged,
    },
    /// What is hot in the cluster now, for members that tell clients.
    HotKeys(Arc<[HotKeyView]>),
}

/// The orders that a member has not taken yet; clones share them.
#[derive(Clone, Default)]
pub struct Orders(Arc<Mutex<WaitingOrders>>);

#[derive(Default)]
struct WaitingOrders {
    settings: Option<Arc<Config>>,
    hot: Option<Arc<[HotKeyView]>>,
    purges: VecDeque<(PurgeScope, Purged)>,
    wakes: Vec<Box<dyn Fn() + Send>>,
}

impl Orders {
    /// Calls `wake` whenever there is something to take. It must not block.
    pub fn register(&self, wake: impl Fn() + Send + 'static) {
        self.waiting().wakes.push(Box::new(wake));
    }

    /// Only the newest settings count.
    pub fn set(&self, config: &Arc<Config>) {
        let mut waiting = self.waiting();
        waiting.settings = Some(Arc::clone(config));
        waiting.wakes.iter().for_each(|wake| wake());
    }

    /// Wakes nobody: it is news only until the next.
    pub fn tell_hot_keys(&self, hot: &Arc<[HotKeyView]>) {
        self.waiting().hot = Some(Arc::clone(hot));
    }

    /// Whether the purge is taken; it is not if too many wait.
    pub fn purge(&self, scope: PurgeScope, done: Purged) -> bool {
        let mut waiting = self.waiting();
        if waiting.purges.len() >= PURGES_MAX {
            return false;
        }
        waiting.purges.push_back((scope, done));
        waiting.wakes.iter().for_each(|wake| wake());
        true
    }

    pub fn take(&self) -> Vec<Order> {
        let mut waiting = self.waiting();
        let settings = waiting.settings.take().map(Order::Settings);
        let hot = waiting.hot.take().map(Order::HotKeys);
        let purges = waiting.purges.drain(..).map(|(scope, done)| Order::Purge { scope, done });
        settings.into_iter().chain(hot).chain(purges).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingOrders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Orders").field(&self.waiting().purges.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Orders, PURGES_MAX, PurgeScope};
    use config::{Config, Secret};
    use std::sync::Arc;
    use std::sync::mpsc;

    #[test]
    fn the_newest_settings_and_every_purge_are_taken_once() {
        let orders = Orders::default();
        let (sender, woken) = mpsc::channel();
        orders.register(move || sender.send(()).unwrap());
        for name in ["old", "new"] {
            orders.set(&Arc::new(Config::new(name, Secret([1; 16]))));
        }
        assert!(orders.purge(PurgeScope::All, Box::new(|_| ())));
        let taken = orders.take();
        assert!(matches!(&taken[0], Order::Settings(config) if config.cluster.name == "new"));
        assert!(matches!(&taken[1], Order::Purge { scope: PurgeScope::All, .. }) && taken.len() == 2);
        assert!(orders.take().is_empty());
        assert_eq!(woken.try_iter().count(), 3);
    }

    #[test]
    fn too_many_purges_are_not_taken() {
        let orders = Orders::default();
        let give = || orders.purge(PurgeScope::All, Box::new(|_| ()));
        assert!((0..PURGES_MAX).all(|_| give()) && !give());
    }
}
