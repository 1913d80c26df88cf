//! The users of storage: asked of its servers every second and after every change. Not what each of them may do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wire::ShimId;

use crate::router::config::UserSource;
use crate::router::flow::gather::{self, Merge};
use crate::router::flow::reply::PartReply;
use crate::router::flow::request::RequestOrigin;
use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::front::storage_users::StorageUsers;
use crate::router::front::whole::ThreadShare;
use crate::router::siblings::SiblingMessage;

const ACL_LIST: Bytes = Bytes::from_static(b"*2\r\n$3\r\nACL\r\n$4\r\nLIST\r\n");
/// How long a change that was made at a server itself, or through another router, may go unnoticed.
const EVERY: Duration = Duration::from_secs(1);
/// As long as nobody is let in, servers are asked more often.
const EVERY_FIRST: Duration = Duration::from_millis(50);

impl Front {
    /// When it is time.
    pub(crate) fn ask_for_users(&mut self, desk: &mut Desk<'_>) {
        let now = desk.now();
        if !asks_storage(desk) || now < self.storage_users.next || desk.flow.placement().is_none() {
            return;
        }
        let every = if self.permissions.known() { EVERY } else { EVERY_FIRST };
        self.storage_users.next = now.after(every);
        self.ask_servers(desk, StorageUsers::begins_to_ask);
    }

    /// Asks the servers that can be asked, and that begin to be.
    fn ask_servers(&mut self, desk: &mut Desk<'_>, begins: impl Fn(&mut StorageUsers, usize) -> bool) {
        for shim in desk.flow.shims() {
            let linked = desk.flow.members().shim_linked(shim);
            if linked && begins(&mut self.storage_users, usize::from(shim.0)) {
                desk.flow.ask_one(&mut desk.step, shim, &ACL_LIST);
            }
        }
    }

    /// What a server answers to that, or that it is gone.
    pub(crate) fn told_users(&mut self, desk: &mut Desk<'_>, question: u32, reply: &PartReply) {
        if self.storage_users.answered(question as usize, reply) {
            self.adopt_users_of_storage(desk, None);
        }
        if !self.storage_users.waiters.is_empty() {
            self.go_on_asking(desk);
        }
    }

    /// Another thread waits until this one acts on users that storage has from now on.
    pub(crate) fn ask_for_users_anew(&mut self, desk: &mut Desk<'_>, waiter: (u16, u64)) {
        self.storage_users.waiters.push(waiter);
        // What is on its way may be older.
        self.storage_users.ask_again();
        self.go_on_asking(desk);
    }

    fn go_on_asking(&mut self, desk: &mut Desk<'_>) {
        self.ask_servers(desk, StorageUsers::begins_to_ask_again);
        if self.storage_users.is_fresh() {
            for (thread, asked) in std::mem::take(&mut self.storage_users.waiters) {
                desk.step.tell(thread, SiblingMessage::Told { asked, share: ThreadShare::Done });
            }
        }
    }

    fn adopt_users_of_storage(&mut self, desk: &mut Desk<'_>, asking: Option<u32>) {
        if let Some(users) = self.storage_users.together() {
            self.adopt_users(desk, Arc::new(users), asking);
        }
    }

    /// All servers have answered a change, or told their users after it: the client hears of it when its router acts on
    /// it.
    pub(crate) fn users_changed(
        &mut self,
        desk: &mut Desk<'_>,
        origin: RequestOrigin,
        replies: Vec<(ShimId, PartReply)>,
    ) {
        let Some(session) = self.sessions.get_mut(origin.client) else { return };
        let (shims, replies): (Vec<ShimId>, Vec<PartReply>) = replies.into_iter().unzip();
        if let Some(told) = session.users_changed.take() {
            for (shim, list) in shims.iter().zip(&replies) {
                self.storage_users.take(usize::from(shim.0), list);
            }
            self.adopt_users_of_storage(desk, Some(origin.client));
            return self.spread_users(desk, origin, told);
        }
        let merged = gather::merge(&Merge::Largest, &replies, origin.resp3);
        if merged.starts_with(b"-") {
            return desk.flow.finish(origin, merged);
        }
        session.users_changed = Some(merged);
        // On the connection of the regular question, so that no older answer to that can come after the one to this.
        desk.flow.ask_users(&mut desk.step, origin, &shims, &ACL_LIST);
    }
}

/// Whether storage has the users.
pub(crate) fn asks_storage(desk: &Desk<'_>) -> bool {
    matches!(desk.step.config.users, UserSource::Storage)
}
