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
    /// New clients are this process' from now on, or another one's.
    NewClients {
        taken: bool,
    },
}

/// The orders that a member has not taken yet; clones share them. Each of its threads takes them on its own.
#[derive(Clone)]
pub struct Orders {
    waiting: Arc<[Mutex<WaitingOrders>]>,
    /// The thread that takes from this clone.
    own: usize,
}

impl Default for Orders {
    fn default() -> Orders {
        Orders::of_threads(1)
    }
}

#[derive(Default)]
struct WaitingOrders {
    settings: Option<Arc<Config>>,
    hot: Option<Arc<[HotKeyView]>>,
    new_clients: Option<bool>,
    purges: VecDeque<(PurgeScope, Purged)>,
    wakes: Vec<Box<dyn Fn() + Send>>,
}

impl Orders {
    /// # Panics
    /// If there are no threads.
    pub fn of_threads(count: usize) -> Orders {
        assert!(count > 0, "a member has a thread");
        Orders { waiting: (0..count).map(|_| Mutex::default()).collect(), own: 0 }
    }

    /// The orders as this thread takes them.
    pub fn of_thread(&self, own: usize) -> Orders {
        Orders { own, ..self.clone() }
    }

    /// Calls `wake` whenever there is something to take for this thread. It must not block.
    pub fn register(&self, wake: impl Fn() + Send + 'static) {
        self.waiting(self.own).wakes.push(Box::new(wake));
    }

    /// Only the newest settings count.
    pub fn set(&self, config: &Arc<Config>) {
        for thread in 0..self.waiting.len() {
            let mut waiting = self.waiting(thread);
            waiting.settings = Some(Arc::clone(config));
            waiting.wakes.iter().for_each(|wake| wake());
        }
    }

    /// Whether new clients are `taken` here, told to all threads.
    pub fn take_new_clients(&self, taken: bool) {
        for thread in 0..self.waiting.len() {
            let mut waiting = self.waiting(thread);
            waiting.new_clients = Some(taken);
            waiting.wakes.iter().for_each(|wake| wake());
        }
    }

    /// Wakes nobody: it is news only until the next.
    pub fn tell_hot_keys(&self, hot: &Arc<[HotKeyView]>) {
        (0..self.waiting.len()).for_each(|thread| self.waiting(thread).hot = Some(Arc::clone(hot)));
    }

    /// Whether the purge is taken; it is not if too many wait. Members that purge have one thread.
    pub fn purge(&self, scope: PurgeScope, done: Purged) -> bool {
        let mut waiting = self.waiting(0);
        if waiting.purges.len() >= PURGES_MAX {
            return false;
        }
        waiting.purges.push_back((scope, done));
        waiting.wakes.iter().for_each(|wake| wake());
        true
    }

    pub fn take(&self) -> Vec<Order> {
        let mut waiting = self.waiting(self.own);
        let settings = waiting.settings.take().map(Order::Settings);
        let hot = waiting.hot.take().map(Order::HotKeys);
        let new_clients = waiting.new_clients.take().map(|taken| Order::NewClients { taken });
        let purges = waiting.purges.drain(..).map(|(scope, done)| Order::Purge { scope, done });
        settings.into_iter().chain(hot).chain(new_clients).chain(purges).collect()
    }

    fn waiting(&self, thread: usize) -> MutexGuard<'_, WaitingOrders> {
        self.waiting[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Orders").field(&self.waiting(0).purges.len()).finish()
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
    fn every_thread_takes_the_settings() {
        let orders = Orders::of_threads(2);
        orders.set(&Arc::new(Config::new("shop", Secret([1; 16]))));
        orders.tell_hot_keys(&Arc::from([]));
        for thread in 0..2 {
            let taken = orders.of_thread(thread).take();
            assert!(matches!(&taken[..], [Order::Settings(_), Order::HotKeys(_)]));
        }
    }

    #[test]
    fn too_many_purges_are_not_taken() {
        let orders = Orders::default();
        let give = || orders.purge(PurgeScope::All, Box::new(|_| ()));
        assert!((0..PURGES_MAX).all(|_| give()) && !give());
    }
}
