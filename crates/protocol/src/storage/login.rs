//! Who a connection says it is, before it asks anything. Not whether that is believed.

use wire::resp::Command;

#[derive(Clone, Debug)]
pub(super) struct Login {
    /// `None` is the `default` user.
    user: Option<String>,
    password: String,
}

impl Login {
    /// A login; `None` without a password: a server that wants none is asked right away.
    pub(super) fn new(user: Option<String>, password: Option<String>) -> Option<Login> {
        password.map(|password| Login { user, password })
    }

    pub(super) fn command(&self) -> Command {
        match &self.user {
            Some(user) => Command::from_args(&["AUTH", user, &self.password]),
            None => Command::from_args(&["AUTH", &self.password]),
        }
    }
}
