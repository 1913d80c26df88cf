//! The users of a configuration as the machine takes them. Not what they may do.

use std::sync::Arc;

use commands::acl::Users;
use config::{Config, UsersFrom};
use protocol::router::UserSource;

/// Where the users of the routers of this configuration come from.
///
/// # Errors
/// The rule that is wrong, and whose it is.
pub fn users(config: &Config) -> Result<UserSource, String> {
    if config.security.users == UsersFrom::Storage {
        return Ok(UserSource::Storage);
    }
    let users: Vec<(String, Vec<String>)> =
        config.users.iter().map(|user| (user.name.clone(), user.rules())).collect();
    match Users::configured(&users) {
        Ok(users) => Ok(UserSource::Given(Arc::new(users))),
        Err((name, error)) => Err(format!("[[user]] {name:?}: rules: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use config::{Config, Secret, UserConfig};
    use protocol::router::UserSource;

    use super::users;

    #[test]
    fn a_wrong_rule_is_told_with_its_user() {
        let mut config = Config::new("test", Secret([1; 16]));
        config.users = vec![UserConfig::new("app", "on >secret ~app:* +@reads")];
        let error = users(&config).expect_err("no such category");
        assert!(error.contains("\"app\"") && error.contains("'+@reads'"), "{error}");
        config.users = vec![UserConfig::new("app", "on >secret ~app:* +@read (~x +get)")];
        let Ok(UserSource::Given(users)) = users(&config) else { panic!("these rules are right") };
        assert!(users.authenticate(b"app", b"secret").is_some() && !users.default_user().is_open());
    }
}
