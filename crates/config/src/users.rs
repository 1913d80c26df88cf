//! `[[user]]` and `[security] users`: whom routers let in. What rules mean is known where they are applied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::load::ConfigError;
use super::tls::ClientCertificates;
use super::{Config, Password};

/// Each is looked at when users change.
const USERS_MAX: usize = 10_000;

/// `[[user]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserConfig {
    pub name: String,
    /// In Redis' language, from left to right, separated by blanks.
    pub rules: String,
    /// Holds one more password of the user. Relative to the directory of the configuration file.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    #[serde(skip)]
    password: Option<Password>,
}

/// Where users come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UsersFrom {
    /// The `[[user]]` sections; without any, everybody may do everything.
    #[default]
    Config,
    /// The storage servers.
    Storage,
}

impl UserConfig {
    pub fn new(name: &str, rules: &str) -> UserConfig {
        UserConfig { name: name.to_owned(), rules: rules.to_owned(), password_file: None, password: None }
    }

    /// The rules one by one, the password of the file as the last.
    pub fn rules(&self) -> Vec<String> {
        let password = self.password.iter().map(|password| format!(">{}", password.0));
        self.rules.split_ascii_whitespace().map(str::to_owned).chain(password).collect()
    }

    pub(super) fn take_password(&mut self, file: &str, directory: &Path) -> Result<(), ConfigError> {
        let Some(path) = &self.password_file else { return Ok(()) };
        let at = format!("{file}: [[user]] {:?}: password_file", self.name);
        self.password = Some(Password::read(&at, &directory.join(path))?);
        Ok(())
    }
}

pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let wrong = |what: String| Err(ConfigError::new(what));
    if config.users.len() > USERS_MAX {
        return wrong(format!("[[user]]: {} of them; at most {USERS_MAX}", config.users.len()));
    }
    let mut seen = BTreeSet::new();
    for user in &config.users {
        if user.name.is_empty() || user.name.contains(|letter: char| letter.is_whitespace() || letter == '\0')
        {
            return wrong(format!("[[user]] name = {:?}: write a name without blanks", user.name));
        }
        if !seen.insert(user.name.as_str()) {
            return wrong(format!("[[user]] name = {:?}: two users have this name", user.name));
        }
    }
    if config.security.users == UsersFrom::Storage {
        if !config.users.is_empty() {
            return wrong(
                "[security] users = \"storage\": the [[user]] sections would never count; remove them, or write users = \
                 \"config\""
                    .to_owned(),
            );
        }
        if let Some(shim) = config.shims.iter().find(|shim| shim.storage.redis().is_none()) {
            return wrong(format!(
                "[security] users = \"storage\": the storage of [[shim]] {:?} has no users; write [[user]] sections",
                shim.id
            ));
        }
    }
    check_listens(config)
}

/// Whether every client that can connect is asked who it is.
fn authenticates(config: &Config) -> bool {
    let open = |user: &UserConfig| {
        user.name == "default" && user.rules.split_ascii_whitespace().any(|rule| rule == "nopass")
    };
    match config.security.users {
        UsersFrom::Storage => true,
        UsersFrom::Config => !config.users.is_empty() && !config.users.iter().any(open),
    }
}

fn check_listens(config: &Config) -> Result<(), ConfigError> {
    let clients = config.tls.clients.as_ref();
    let certified =
        clients.is_some_and(|clients| clients.client_certificates == ClientCertificates::Required);
    if config.security.insecure_listen || authenticates(config) {
        return Ok(());
    }
    for router in &config.routers {
        let public = |listen: &super::FrontListen| !(listen.address.is_local() || listen.tls && certified);
        if let Some(listen) = router.listens().find(public) {
            return Err(ConfigError::new(format!(
                "[[router]] {:?}: {} = \"{}\": reachable from other machines, and nobody is asked who he is; write \
                 [[user]] sections (a default user with nopass lets everybody in), users = \"storage\" under [security], \
                 client_certificates = \"required\" under [tls.clients], or insecure_listen = true under [security] in a \
                 network that you trust",
                router.id, listen.key, listen.address
            )));
        }
    }
    Ok(())
}
