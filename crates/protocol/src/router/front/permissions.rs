//! The users that a router knows, and who its clients are among them. The rules themselves are in `commands::acl`.

use std::sync::Arc;

use commands::acl::{User, Users};

use crate::router::config::UserSource;
use crate::router::front::acl_log::AclLog;

/// Whose commands a client's are.
#[derive(Clone, Debug)]
pub(crate) struct ClientIdentity {
    pub(crate) user: Arc<User>,
    /// By a password, or because none was needed when it came.
    pub(crate) authenticated: bool,
    /// Each command has to be checked: the user is not free to do everything, or has not shown who it is.
    pub(crate) checked: bool,
}

/// The users, and what they were denied lately.
#[derive(Debug)]
pub(crate) struct Permissions {
    users: Arc<Users>,
    /// Storage has told its users.
    known: bool,
    pub(crate) log: AclLog,
}

impl Permissions {
    pub(crate) fn new(source: &UserSource) -> Permissions {
        let (users, known) = match source {
            UserSource::Given(users) => (Arc::clone(users), true),
            UserSource::Storage => (Arc::default(), false),
        };
        Permissions { users, known, log: AclLog::default() }
    }

    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    pub(crate) fn known(&self) -> bool {
        self.known
    }

    pub(crate) fn newcomer(&self) -> ClientIdentity {
        let user = Arc::clone(self.users.default_user());
        let authenticated = self.known && user.is_open();
        self.identity(user, authenticated)
    }

    pub(crate) fn identity(&self, user: Arc<User>, authenticated: bool) -> ClientIdentity {
        let mut identity = ClientIdentity { user, authenticated, checked: true };
        identity.checked = !identity.user.is_unrestricted() || self.locks(&identity);
        identity
    }

    /// Whether nothing is carried out for this identity but AUTH and its like.
    pub(crate) fn locks(&self, identity: &ClientIdentity) -> bool {
        !self.known || !identity.authenticated && !self.users.default_user().is_open()
    }

    /// Acts on other users from now on. False if they are none.
    pub(crate) fn set(&mut self, users: Arc<Users>) -> bool {
        let news = !self.known || self.users != users;
        (self.users, self.known) = (users, true);
        news
    }
}
