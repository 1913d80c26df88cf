//! The users that a router knows, by name. Not their connections.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::describe::{CATEGORIES, category};
use super::rule_error::{RuleError, UserError};
use super::selector::has_spaces;
use super::user::{User, UserRules};

/// What the names of the users begin with by which shims fence their storage connections: nobody else's business.
pub const FENCE_PREFIX: &[u8] = b"distcache:";
const DEFAULT: &[u8] = b"default";

/// Never without the default user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    by_name: BTreeMap<Bytes, Arc<User>>,
}

/// As Redis starts: the default user may do everything and needs no password.
impl Default for Users {
    fn default() -> Users {
        let mut users = Users { by_name: BTreeMap::new() };
        users.insert(Bytes::from_static(DEFAULT), UserRules::unrestricted(), Vec::new());
        users
    }
}

impl Users {
    /// The users of a configuration, each with its rules. Where there are any, the default user is off unless it is
    /// among them.
    ///
    /// # Errors
    /// The name of the user that is wrong, and why.
    pub fn configured<A: AsRef<[u8]>>(users: &[(String, Vec<A>)]) -> Result<Users, (String, UserError)> {
        let mut table = Users::default();
        if !users.is_empty() {
            table.insert(Bytes::from_static(DEFAULT), UserRules::default(), Vec::new());
        }
        for (name, rules) in users {
            let of = |error| (name.clone(), error);
            if name.is_empty() || has_spaces(name.as_bytes()) {
                return Err(of(UserError::Name));
            }
            let rules = UserRules::default().with(rules).map_err(of)?;
            table.insert(Bytes::copy_from_slice(name.as_bytes()), rules, Vec::new());
        }
        Ok(table)
    }

    /// The users of storage from what its servers answer to ACL LIST. Only a user that every server has is one; where
    /// servers define it in different ways, all of these ways hold. Also returns the names of those users, and of
    /// those whose rules this version cannot read, which nobody can use.
    pub fn of_storage(lists: &[Vec<Bytes>]) -> (Users, Vec<String>) {
        let servers: Vec<BTreeMap<Bytes, Result<UserRules, UserError>>> =
            lists.iter().map(|list| list.iter().filter_map(parse_line).collect()).collect();
        let (mut users, mut odd) = (Users { by_name: BTreeMap::new() }, Vec::new());
        let names: BTreeSet<&Bytes> = servers.iter().flat_map(|server| server.keys()).collect();
        for name in names {
            let mut known: Vec<UserRules> = Vec::new();
            let mut complete = true;
            for server in &servers {
                match server.get(name) {
                    Some(Ok(rules)) if !known.contains(rules) => known.push(rules.clone()),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => complete = false,
                }
            }
            if !complete || known.len() > 1 {
                odd.push(String::from_utf8_lossy(name).into_owned());
            }
            if complete && !known.is_empty() {
                let first = known.remove(0);
                users.insert(name.clone(), first, known);
            }
        }
        if users.get(DEFAULT).is_none() {
            users.insert(Bytes::from_static(DEFAULT), UserRules::default(), Vec::new());
        }
        (users, odd)
    }

    fn insert(&mut self, name: Bytes, rules: UserRules, stricter: Vec<UserRules>) {
        self.by_name.insert(name.clone(), Arc::new(User::new(name, rules, stricter)));
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Whom a new connection belongs to.
    pub fn default_user(&self) -> &Arc<User> {
        &self.by_name[DEFAULT]
    }

    /// In the order of their names.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// The names of all categories of commands.
    pub fn categories() -> impl ExactSizeIterator<Item = &'static str> {
        CATEGORIES.iter().map(|(_, name)| *name)
    }

    /// The full names of the commands in a category; `None` if there is no such category.
    pub fn commands_of(name: &[u8]) -> Option<impl Iterator<Item = &'static str>> {
        let category = category(name)?;
        Some(crate::specs().filter(move |spec| spec.belongs_to(category)).map(|spec| spec.name))
    }

    /// The user, if this is a password of it and it is on.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        self.get(name).filter(|user| user.accepts(password))
    }
}

/// `user NAME RULE...`; none for users that fence storage connections.
fn parse_line(line: &Bytes) -> Option<(Bytes, Result<UserRules, UserError>)> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    if words.next() != Some(b"user") {
        return None;
    }
    let name = words.next().filter(|name| !name.starts_with(FENCE_PREFIX))?;
    let rules: Vec<Cow<'_, [u8]>> = words.map(without_other_versions).collect();
    let read = UserRules::default().with(&rules).or_else(|error| match error {
        UserError::Rule { error: RuleError::KeysAfterAll, .. } => {
            let rules: Vec<Cow<'_, [u8]>> = rules.into_iter().map(all_keys_as_pattern).collect();
            UserRules::default().with(&rules)
        }
        error => Err(error),
    });
    Some((line.slice_ref(name), read))
}

/// Redis prints the pattern `%RW~*` as if it were the rule for all keys, behind which it takes no further pattern.
fn all_keys_as_pattern(rule: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match &*rule {
        b"~*" => Cow::Borrowed(b"%RW~*"),
        b"(~*" => Cow::Borrowed(b"(%RW~*"),
        _ => rule,
    }
}

/// The rule, or what is left of it if it is about a command that this version does not know, and so does not carry: it
/// needs no permission. A category that is taken away and not known may hold commands that are known, so it stays.
fn without_other_versions(rule: &[u8]) -> Cow<'_, [u8]> {
    let bare = rule.strip_prefix(b"(").unwrap_or(rule);
    let bare = bare.strip_suffix(b")").unwrap_or(bare);
    let name = match bare {
        [b'+' | b'-', b'@', ..] => return Cow::Borrowed(rule),
        [b'+' | b'-', name @ ..] => name,
        _ => return Cow::Borrowed(rule),
    };
    let container = name.split(|&byte| byte == b'|').next().unwrap_or_default();
    let unknown = crate::find(container).is_none_or(|spec| {
        name.contains(&b'|') && !spec.subcommands.is_empty() && crate::lookup(name).is_none()
    });
    match unknown {
        true => Cow::Owned(rule.iter().copied().filter(|byte| matches!(byte, b'(' | b')')).collect()),
        false => Cow::Borrowed(rule),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{RuleError, UserError, Users};

    fn lists(servers: &[&[&'static str]]) -> (Users, Vec<String>) {
        let line = |line: &&'static str| Bytes::from_static(line.as_bytes());
        Users::of_storage(&servers.iter().map(|lines| lines.iter().map(line).collect()).collect::<Vec<_>>())
    }

    const DEFAULT: &str = "user default on nopass ~* &* +@all";

    #[test]
    fn a_configured_user_turns_the_open_door_off() {
        let users = Users::configured(&[("app".to_owned(), vec!["on", ">secret", "~app:*", "+@read"])])
            .expect("right");
        assert!(!users.default_user().is_open());
        assert!(users.authenticate(b"app", b"secret").is_some());
        assert!(users.authenticate(b"app", b"Secret").is_none());
        assert!(users.authenticate(b"default", b"").is_none());
        let wrong = Users::configured(&[("app".to_owned(), vec!["+nothing"])]);
        let error = UserError::Rule { rule: "+nothing".to_owned(), error: RuleError::Unknown };
        assert_eq!(wrong, Err(("app".to_owned(), error)));
        assert!(Users::configured::<&str>(&[]).is_ok_and(|users| users.default_user().is_open()));
    }

    #[test]
    fn users_of_several_servers_are_the_strictest_of_them() {
        let (users, odd) = lists(&[
            &[DEFAULT, "user app on nopass ~a* &* +@all", "user gone on nopass ~* &* +@all"],
            &[DEFAULT, "user app on nopass ~*b &* +@all"],
        ]);
        assert_eq!(odd, ["app", "gone"]);
        assert!(users.get(b"gone").is_none());
        let app = users.get(b"app").expect("both have it");
        let may = |key: &str| {
            let command = wire::resp::Command::from_args(&["GET", key]);
            app.check(crate::find(b"get").expect("known"), &command).is_ok()
        };
        assert!(may("ab") && !may("a") && !may("b"));
    }

    #[test]
    fn fences_are_no_users_and_newer_commands_no_obstacle() {
        let (users, odd) = lists(&[&[
            "user default off sanitize-payload resetchannels -@all",
            "user distcache:demo:shim-0:1 on nopass ~* &* +@all",
            "user app on nopass sanitize-payload ~* resetchannels -@all +get +hexpire +client|newer (~x +newer)",
            "user odd on nopass ~* resetchannels +@all -@nothing",
        ]]);
        assert_eq!(users.all().map(|user| user.name.clone()).collect::<Vec<_>>(), ["app", "default"]);
        assert_eq!(odd, ["odd"]);
        assert!(!users.default_user().is_open());
    }
}
