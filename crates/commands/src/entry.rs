//! How an entry of the command table is written: what a command has is added to it, and its rule follows. Not which commands
//! there are.

use super::rule;
use super::spec::{
    Begin, Category, CommandGroup, CommandRule, CommandSpec, Find, Flag, KeyFlag, KeyRange, KeySpec, Set, Tip,
};

/// A command without flags, tips, categories, keys and subcommands; what it has of them is added behind.
pub(super) const fn command(number: u16, name: &'static str, arity: i16, group: CommandGroup) -> CommandSpec {
    let none = Set::of_flags(&[]);
    let rule = CommandRule::Keyless;
    let (flags, tips, categories) = (none, none, none);
    CommandSpec { name, arity, group, flags, tips, categories, keys: &[], subcommands: &[], rule, number }
        .ruled()
}

impl CommandSpec {
    pub(super) const fn flags(mut self, flags: &[Flag]) -> CommandSpec {
        self.flags = Set::of_flags(flags);
        self.ruled()
    }

    pub(super) const fn tips(mut self, tips: &[Tip]) -> CommandSpec {
        self.tips = Set::of_tips(tips);
        self.ruled()
    }

    pub(super) const fn categories(mut self, categories: &[Category]) -> CommandSpec {
        self.categories = Set::of_categories(categories);
        self
    }

    pub(super) const fn keys(mut self, keys: &'static [KeySpec]) -> CommandSpec {
        self.keys = keys;
        self.ruled()
    }

    pub(super) const fn subcommands(mut self, subcommands: &'static [CommandSpec]) -> CommandSpec {
        self.subcommands = subcommands;
        self
    }

    /// Derives the rule again, from what the command has by now.
    const fn ruled(mut self) -> CommandSpec {
        self.rule = rule::derive(&self);
        self
    }
}

pub(super) const fn keys(flags: &[KeyFlag], begin: Begin, find: Find) -> KeySpec {
    KeySpec { flags: Set::of_key_flags(flags), begin, find }
}

pub(super) const fn range(last: i16, step: usize, limit: usize) -> Find {
    Find::Range(KeyRange { last, step, limit })
}

pub(super) const fn count(count: usize, first: usize, step: usize) -> Find {
    Find::Count { count, first, step }
}
