//! Rules as text, the way Redis prints them in `ACL LIST` and `ACL GETUSER`. Not how they are read.

use super::selector::{Commands, KeyPattern, Patterns, Selector};
use super::user::{User, UserRules};
use crate::{AccessMode, Category, CommandSpec, all, containers};

/// In the order of `ACL CAT`.
pub(crate) const CATEGORIES: [(Category, &str); 21] = [
    (Category::Keyspace, "keyspace"),
    (Category::Read, "read"),
    (Category::Write, "write"),
    (Category::Set, "set"),
    (Category::Sortedset, "sortedset"),
    (Category::List, "list"),
    (Category::Hash, "hash"),
    (Category::String, "string"),
    (Category::Bitmap, "bitmap"),
    (Category::Hyperloglog, "hyperloglog"),
    (Category::Geo, "geo"),
    (Category::Stream, "stream"),
    (Category::Pubsub, "pubsub"),
    (Category::Admin, "admin"),
    (Category::Fast, "fast"),
    (Category::Slow, "slow"),
    (Category::Blocking, "blocking"),
    (Category::Dangerous, "dangerous"),
    (Category::Connection, "connection"),
    (Category::Transaction, "transaction"),
    (Category::Scripting, "scripting"),
];

pub(super) fn category(name: &[u8]) -> Option<Category> {
    CATEGORIES
        .iter()
        .find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name))
        .map(|(category, _)| *category)
}

impl User {
    /// As a line of `ACL LIST`.
    pub fn line(&self) -> Vec<u8> {
        let mut out = b"user ".to_vec();
        out.extend_from_slice(&self.name);
        out.push(b' ');
        self.rules.describe(&mut out);
        out
    }
}

impl UserRules {
    /// The words that `ACL GETUSER` lists as flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.on { "on" } else { "off" }];
        if self.nopass {
            flags.push("nopass");
        }
        match self.sanitize {
            Some(false) => flags.push("skip-sanitize-payload"),
            Some(true) => flags.push("sanitize-payload"),
            None => {}
        }
        flags
    }

    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(|hash| hash.text())
    }

    /// Commands, keys and channels of each selector.
    pub fn descriptions(&self) -> impl ExactSizeIterator<Item = [Vec<u8>; 3]> {
        self.selectors.iter().map(|selector| {
            let mut commands = Vec::new();
            selector.describe_commands(&mut commands);
            [commands, selector.described_keys(), selector.described_channels()]
        })
    }

    fn describe(&self, out: &mut Vec<u8>) {
        for flag in self.flags() {
            out.extend_from_slice(flag.as_bytes());
            out.push(b' ');
        }
        for hash in &self.passwords {
            out.extend_from_slice(format!("#{} ", hash.text()).as_bytes());
        }
        for (index, selector) in self.selectors.iter().enumerate() {
            if index > 0 {
                out.extend_from_slice(b" (");
            }
            selector.describe(out);
            if index > 0 {
                out.push(b')');
            }
        }
    }
}

impl Selector {
    fn describe(&self, out: &mut Vec<u8>) {
        let keys = self.described_keys();
        if !keys.is_empty() {
            out.extend_from_slice(&keys);
            out.push(b' ');
        }
        if matches!(self.channels, Patterns::Some(_)) {
            out.extend_from_slice(b"resetchannels ");
        }
        let channels = self.described_channels();
        if !channels.is_empty() {
            out.extend_from_slice(&channels);
            out.push(b' ');
        }
        self.describe_commands(out);
    }

    fn described_keys(&self) -> Vec<u8> {
        let Patterns::Some(patterns) = &self.keys else { return b"~*".to_vec() };
        let text = |known: &KeyPattern| {
            let prefix: &[u8] = match known.access {
                AccessMode::READ => b"%R~",
                AccessMode::WRITE => b"%W~",
                _ => b"~",
            };
            [prefix, &known.pattern].concat()
        };
        patterns.iter().map(text).collect::<Vec<_>>().join(&b' ')
    }

    fn described_channels(&self) -> Vec<u8> {
        let Patterns::Some(patterns) = &self.channels else { return b"&*".to_vec() };
        patterns.iter().map(|pattern| [b"&", &**pattern].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Rules that lead to the same commands: from all or nothing over the categories that fit best to single commands.
    fn describe_commands(&self, out: &mut Vec<u8>) {
        let additive = !self.future;
        let sign: &[u8] = if additive { b"+" } else { b"-" };
        out.extend_from_slice(if additive { b"-@all" } else { b"+@all" });
        let mut told = if additive { Commands::default() } else { Commands::ALL };
        let (mut left, mut applied) = (self.commands, [false; CATEGORIES.len()]);
        while let Some(best) = best_category(&left, additive, &applied) {
            let (category, name) = CATEGORIES[best];
            told.change_category(category, additive);
            left.change_category(category, !additive);
            out.extend_from_slice(&[b" ", sign, b"@", name.as_bytes()].concat());
            applied[best] = true;
        }
        for spec in containers() {
            self.describe_single(spec, &mut told, out);
            spec.subcommands.iter().for_each(|sub| self.describe_single(sub, &mut told, out));
            self.describe_first_args(spec, out);
        }
    }

    fn describe_single(&self, spec: &'static CommandSpec, told: &mut Commands, out: &mut Vec<u8>) {
        let allowed = self.commands.has(spec);
        if allowed == told.has(spec) {
            return;
        }
        out.extend_from_slice(if allowed { b" +" } else { b" -" });
        out.extend_from_slice(spec.name.as_bytes());
        told.change(spec, allowed);
    }

    fn describe_first_args(&self, spec: &CommandSpec, out: &mut Vec<u8>) {
        let allowed = self.first_args.get(&spec.number).filter(|_| !self.commands.has(spec));
        for first_arg in allowed.into_iter().flatten() {
            out.extend_from_slice(&[b" +", spec.name.as_bytes(), b"|", first_arg].concat());
        }
    }
}

/// The category that has more in common with `left` than not and the fewest differences, then the most in common.
fn best_category(left: &Commands, additive: bool, applied: &[bool]) -> Option<usize> {
    let mut best = None;
    for (index, (category, _)) in CATEGORIES.iter().enumerate().filter(|(index, _)| !applied[*index]) {
        // Only Redis' own commands, so that the choice is that of Redis.
        let members = all().iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
        let members = members.filter(|spec| spec.belongs_to(*category));
        let (mut same, mut different) = (0, 0);
        for spec in members {
            *(if left.has(spec) == additive { &mut same } else { &mut different }) += 1;
        }
        let better = best.is_none_or(|(_, known_different, known_same)| {
            different < known_different || different == known_different && same > known_same
        });
        if same > different && better {
            best = Some((index, different, same));
        }
    }
    best.map(|(index, ..)| index)
}
