//! One user: state, passwords and selectors, changed rule by rule. Not the table of users.

use std::borrow::Cow;

use bytes::Bytes;
use wire::resp::Command;

use super::password::Hash;
use super::rule_error::{RuleError, UserError};
use super::selector::{Denied, Selector};
use crate::CommandSpec;

/// What a user may do and how it proves to be that user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRules {
    pub(super) on: bool,
    pub(super) nopass: bool,
    /// `None`: neither of the flags about payloads was given.
    pub(super) sanitize: Option<bool>,
    pub(super) passwords: Vec<Hash>,
    /// The first is the user's own; the others stand in parentheses.
    pub(super) selectors: Vec<Selector>,
}

/// As a user that `ACL SETUSER` has just made: it may do nothing.
impl Default for UserRules {
    fn default() -> UserRules {
        UserRules {
            on: false,
            nopass: false,
            sanitize: None,
            passwords: Vec::new(),
            selectors: vec![Selector::default()],
        }
    }
}

impl UserRules {
    /// What the default user may do where nobody has said anything: everything, without a password.
    pub fn unrestricted() -> UserRules {
        let mut rules = UserRules::default();
        for rule in ["+@all", "~*", "&*", "on", "nopass"] {
            rules.apply(rule.as_bytes()).expect("rules of the language");
        }
        rules
    }

    /// Applies rules from left to right, all of them or none.
    ///
    /// # Errors
    /// The first rule that cannot be applied.
    pub fn with<A: AsRef<[u8]>>(&self, rules: &[A]) -> Result<UserRules, UserError> {
        let mut changed = self.clone();
        for rule in merged(rules)? {
            let shown = || String::from_utf8_lossy(&rule).into_owned();
            changed.apply(&rule).map_err(|error| UserError::Rule { rule: shown(), error })?;
        }
        Ok(changed)
    }

    fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            [] => {}
            _ if is("on") => self.on = true,
            _ if is("off") => self.on = false,
            _ if is("skip-sanitize-payload") => self.sanitize = Some(false),
            _ if is("sanitize-payload") => self.sanitize = Some(true),
            _ if is("nopass") || is("resetpass") => {
                self.nopass = is("nopass");
                self.passwords.clear();
            }
            [b'>', password @ ..] => self.add_password(Hash::of(password)),
            [b'#', hash @ ..] => self.add_password(Hash::parse(hash).ok_or(RuleError::BadHash)?),
            [b'<', password @ ..] => self.remove_password(&Hash::of(password))?,
            [b'!', hash @ ..] => self.remove_password(&Hash::parse(hash).ok_or(RuleError::BadHash)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::default();
                for rule in words(rules) {
                    selector.apply(rule)?;
                }
                self.selectors.push(selector);
            }
            _ if is("clearselectors") => self.selectors.truncate(1),
            _ if is("reset") => *self = UserRules { sanitize: Some(true), ..UserRules::default() },
            rule => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.nopass = false;
    }

    fn remove_password(&mut self, hash: &Hash) -> Result<(), RuleError> {
        let place = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(place.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }

    fn accepts(&self, password: &Hash) -> bool {
        // Every hash is looked at, so that the time taken does not tell which one it was.
        let known = self.passwords.iter().fold(false, |found, hash| found | hash.matches(password));
        self.on && (self.nopass || known)
    }

    fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_unrestricted)
    }

    fn check(&self, spec: &'static CommandSpec, command: &Command) -> Result<(), Denied> {
        let (mut denied, mut found) = (Denied::Command, None);
        for selector in &self.selectors {
            match selector.check(spec, command, &mut found) {
                Ok(()) => return Ok(()),
                Err(reason) => denied = denied.max(reason),
            }
        }
        Err(denied)
    }
}

/// A user of this router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: Bytes,
    pub(super) rules: UserRules,
    /// Where several servers define the user in different ways: those ways. All of them hold.
    pub(super) stricter: Vec<UserRules>,
    unrestricted: bool,
}

impl User {
    pub(super) fn new(name: Bytes, rules: UserRules, stricter: Vec<UserRules>) -> User {
        let unrestricted = rules.is_unrestricted() && stricter.iter().all(UserRules::is_unrestricted);
        User { name, rules, stricter, unrestricted }
    }

    pub fn rules(&self) -> &UserRules {
        &self.rules
    }

    fn all(&self) -> impl Iterator<Item = &UserRules> {
        std::iter::once(&self.rules).chain(&self.stricter)
    }

    /// Whether it may do everything, so that nothing needs to be checked.
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted
    }

    /// Whether whoever connects is this user without a word.
    pub fn is_open(&self) -> bool {
        self.all().all(|rules| rules.on && rules.nopass)
    }

    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        let hash = Hash::of(password);
        self.all().fold(true, |accepted, rules| accepted & rules.accepts(&hash))
    }

    /// Whether it may run a command whose table entry is `spec`.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, spec: &'static CommandSpec, command: &Command) -> Result<(), Denied> {
        self.all().try_for_each(|rules| rules.check(spec, command))
    }

    /// SORT with BY or GET reads keys that no argument names: whether it may read all.
    pub fn reads_all_keys(&self, spec: &'static CommandSpec, command: &Command) -> bool {
        let reads = |selector: &Selector| {
            selector.reads_all_keys() && selector.check(spec, command, &mut None).is_ok()
        };
        self.all().all(|rules| rules.selectors.iter().any(reads))
    }

    /// Whether it may go on listening there.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let listens = |selector: &Selector| selector.allows_channel(channel, is_pattern);
        self.all().all(|rules| rules.selectors.iter().any(listens))
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The rules with each selector that was given as several arguments in one.
fn merged<A: AsRef<[u8]>>(rules: &[A]) -> Result<Vec<Cow<'_, [u8]>>, UserError> {
    let mut whole: Vec<Cow<'_, [u8]>> = Vec::with_capacity(rules.len());
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (index, rule) in rules.iter().map(AsRef::as_ref).enumerate() {
        if rule.first() == Some(&b'(') && rule.last() != Some(&b')') || rule == b"(" {
            open = Some((index, rule.to_vec()));
            continue;
        }
        match open.take() {
            Some((start, mut selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                if rule.last() == Some(&b')') {
                    whole.push(Cow::Owned(selector));
                } else {
                    open = Some((start, selector));
                }
            }
            None => whole.push(Cow::Borrowed(rule)),
        }
    }
    match open {
        Some((start, _)) => {
            Err(UserError::Parenthesis(String::from_utf8_lossy(rules[start].as_ref()).into_owned()))
        }
        None => Ok(whole),
    }
}
