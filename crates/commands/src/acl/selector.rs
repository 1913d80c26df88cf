//! One set of permissions: commands, keys and channels that go together. Not which user has it.

use std::collections::BTreeMap;

use wire::resp::Command;

use super::describe::category;
use super::rule_error::RuleError;
use crate::glob;
use crate::{
    AccessMode, COMMANDS_COUNT, Category, CommandSpec, Flag, KeyAccesses, accesses, lookup, natives, specs,
};

const WORDS: usize = COMMANDS_COUNT.div_ceil(64);

/// A set of commands and subcommands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Commands([u64; WORDS]);

impl Commands {
    pub(super) const ALL: Commands = Commands([u64::MAX; WORDS]);

    pub(super) fn has(&self, spec: &CommandSpec) -> bool {
        self.0[usize::from(spec.number) / 64] >> (spec.number % 64) & 1 == 1
    }

    fn set(&mut self, spec: &CommandSpec, value: bool) {
        let bit = 1 << (spec.number % 64);
        let word = &mut self.0[usize::from(spec.number) / 64];
        *word = if value { *word | bit } else { *word & !bit };
    }

    /// A container takes its subcommands along.
    pub(super) fn change(&mut self, spec: &'static CommandSpec, value: bool) {
        self.set(spec, value);
        spec.subcommands.iter().for_each(|sub| self.set(sub, value));
    }

    pub(super) fn change_category(&mut self, category: Category, value: bool) {
        let all = specs().chain(natives());
        all.filter(|spec| spec.belongs_to(category)).for_each(|spec| self.change(spec, value));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub(super) access: AccessMode,
    pub(super) pattern: Box<[u8]>,
}

/// Patterns, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Patterns<P> {
    All,
    Some(Vec<P>),
}

/// Why a command is denied; where several selectors deny it, the greatest reason is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    Command,
    /// Which argument is the key.
    Key(usize),
    Channel(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) commands: Commands,
    /// Commands that are yet to come are allowed too: what tells `+@all` from a list of all there are.
    pub(super) future: bool,
    /// Nothing was taken away since `+@all`.
    all_commands: bool,
    /// Commands that are allowed with one of these as their first argument, by number.
    pub(super) first_args: BTreeMap<u16, Vec<Box<[u8]>>>,
    pub(super) keys: Patterns<KeyPattern>,
    pub(super) channels: Patterns<Box<[u8]>>,
}

impl Default for Selector {
    fn default() -> Selector {
        Selector {
            commands: Commands::default(),
            future: false,
            all_commands: false,
            first_args: BTreeMap::new(),
            keys: Patterns::Some(Vec::new()),
            channels: Patterns::Some(Vec::new()),
        }
    }
}

impl Selector {
    pub(super) fn is_unrestricted(&self) -> bool {
        self.all_commands && self.keys == Patterns::All && self.channels == Patterns::All
    }

    /// Applies one rule.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || is("~*") => self.keys = Patterns::All,
            _ if is("resetkeys") => self.keys = Patterns::Some(Vec::new()),
            _ if is("allchannels") || is("&*") => self.channels = Patterns::All,
            _ if is("resetchannels") => self.channels = Patterns::Some(Vec::new()),
            _ if is("allcommands") || is("+@all") => self.all(true),
            _ if is("nocommands") || is("-@all") => self.all(false),
            [b'~', pattern @ ..] => self.add_key(AccessMode::READ_WRITE, pattern)?,
            [b'%', rest @ ..] => {
                if self.keys == Patterns::All {
                    return Err(RuleError::KeysAfterAll);
                }
                let (access, pattern) = key_access(rest)?;
                self.add_key(access, pattern)?;
            }
            [b'&', pattern @ ..] => self.add_channel(pattern)?,
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = category(name).ok_or(RuleError::Unknown)?;
                let value = *sign == b'+';
                self.commands.change_category(category, value);
                self.all_commands &= value;
                specs().filter(|spec| spec.belongs_to(category)).for_each(|spec| {
                    self.first_args.remove(&spec.number);
                });
            }
            [b'+', name @ ..] => self.allow(name)?,
            [b'-', name @ ..] => self.change(lookup(name).ok_or(RuleError::Unknown)?, false),
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn all(&mut self, value: bool) {
        self.commands = if value { Commands::ALL } else { Commands::default() };
        (self.future, self.all_commands) = (value, value);
        self.first_args.clear();
    }

    fn change(&mut self, spec: &'static CommandSpec, value: bool) {
        self.commands.change(spec, value);
        self.all_commands &= value;
        self.first_args.remove(&spec.number);
    }

    /// `+command`, `+command|subcommand` or `+command|first-argument`.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|&byte| byte == b'|') else {
            self.change(lookup(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        };
        let spec = lookup(&name[..bar]).ok_or(RuleError::Unknown)?;
        let first_arg = &name[bar + 1..];
        if spec.name_args() > 1 {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if first_arg.is_empty() {
            return Err(RuleError::Syntax);
        }
        if !spec.subcommands.is_empty() {
            self.change(lookup(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        }
        let allowed = self.first_args.entry(spec.number).or_default();
        if !allowed.iter().any(|known| known.eq_ignore_ascii_case(first_arg)) {
            allowed.push(first_arg.into());
        }
        Ok(())
    }

    fn add_key(&mut self, access: AccessMode, pattern: &[u8]) -> Result<(), RuleError> {
        let Patterns::Some(patterns) = &mut self.keys else { return Err(RuleError::KeysAfterAll) };
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        match patterns.iter_mut().find(|known| *known.pattern == *pattern) {
            Some(known) => known.access = known.access.and(access),
            None => patterns.push(KeyPattern { access, pattern: pattern.into() }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let Patterns::Some(patterns) = &mut self.channels else { return Err(RuleError::ChannelsAfterAll) };
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        if !patterns.iter().any(|known| **known == *pattern) {
            patterns.push(pattern.into());
        }
        Ok(())
    }

    pub(super) fn check(
        &self,
        spec: &'static CommandSpec,
        command: &Command,
        found: &mut Option<KeyAccesses>,
    ) -> Result<(), Denied> {
        let allowed = self.all_commands || spec.has(Flag::NoAuth) || self.commands.has(spec);
        if !allowed && !self.allows_first_arg(spec, command) {
            return Err(Denied::Command);
        }
        if self.keys != Patterns::All {
            let accesses = found.get_or_insert_with(|| accesses(command, spec));
            let denied = accesses.iter().find(|key| !self.allows_key(command.arg(key.index), key.access));
            if let Some(key) = denied {
                return Err(Denied::Key(key.index));
            }
        }
        if let Some((channels, pattern)) = channels(spec, command) {
            for index in channels {
                if !self.allows_channel(command.arg(index), pattern) {
                    return Err(Denied::Channel(index));
                }
            }
        }
        Ok(())
    }

    fn allows_first_arg(&self, spec: &CommandSpec, command: &Command) -> bool {
        let Some(allowed) = self.first_args.get(&spec.number) else { return false };
        command.get(1).is_some_and(|first| allowed.iter().any(|known| known.eq_ignore_ascii_case(first)))
    }

    fn allows_key(&self, key: &[u8], access: AccessMode) -> bool {
        match &self.keys {
            Patterns::All => true,
            Patterns::Some(patterns) => {
                patterns.iter().any(|known| known.access.covers(access) && glob::matches(&known.pattern, key))
            }
        }
    }

    /// Whether every key there is may be read.
    pub(super) fn reads_all_keys(&self) -> bool {
        match &self.keys {
            Patterns::All => true,
            Patterns::Some(patterns) => {
                patterns.iter().any(|known| known.access.covers(AccessMode::READ) && *known.pattern == *b"*")
            }
        }
    }

    /// A pattern is compared with patterns letter by letter.
    pub(super) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        match &self.channels {
            Patterns::All => true,
            Patterns::Some(patterns) if is_pattern => patterns.iter().any(|known| **known == *channel),
            Patterns::Some(patterns) => patterns.iter().any(|known| glob::matches(known, channel)),
        }
    }
}

/// Which arguments are channels that the command listens or publishes to, and whether they are patterns. Who gives
/// channels up needs no permission.
fn channels(spec: &CommandSpec, command: &Command) -> Option<(std::ops::Range<usize>, bool)> {
    match spec.name {
        "subscribe" | "ssubscribe" => Some((1..command.len(), false)),
        "psubscribe" => Some((1..command.len(), true)),
        "publish" | "spublish" => Some((1..command.len().min(2), false)),
        _ => None,
    }
}

/// `RW~pattern` without its `%`, each letter at most once.
fn key_access(rest: &[u8]) -> Result<(AccessMode, &[u8]), RuleError> {
    let end = rest.iter().position(|&byte| byte == b'~').unwrap_or(rest.len());
    let mut access = AccessMode::NONE;
    for letter in &rest[..end] {
        let more = match letter.to_ascii_uppercase() {
            b'R' => AccessMode::READ,
            b'W' => AccessMode::WRITE,
            _ => return Err(RuleError::Syntax),
        };
        if access.covers(more) {
            return Err(RuleError::Syntax);
        }
        access = access.and(more);
    }
    // Redis takes a pattern for nothing at all, and then cannot print it.
    if access == AccessMode::NONE {
        return Err(RuleError::Syntax);
    }
    Ok((access, rest.get(end + 1..).unwrap_or_default()))
}

pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0))
}
