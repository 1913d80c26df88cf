//! The shape of the command table: what Redis says about each of its commands. The facts are in `table`.

use super::reason::RefusalReason;

/// One command or subcommand as Redis describes it.
#[derive(Debug)]
pub struct CommandSpec {
    /// Lower case; a subcommand's holds its container's: `config|get`.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i16,
    pub group: CommandGroup,
    pub(super) flags: Set,
    pub(super) tips: Set,
    pub(super) categories: Set,
    pub(super) keys: &'static [KeySpec],
    pub subcommands: &'static [CommandSpec],
    pub(super) rule: CommandRule,
    /// Its place in the table with all subcommands counted: what a user's rules are kept by.
    pub(crate) number: u16,
}

/// What a table entry says before the arguments are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandRule {
    Refuse(RefusalReason),
    Connection,
    /// A write of its keys; without keys a barrier.
    Write,
    /// A write that may wait for another client's write.
    BlockingWrite,
    /// A deterministic read, cacheable when it has exactly one key.
    Read,
    /// A read that is never cached; without keys it is `Keyless`.
    Query,
    BlockingQuery,
    Watch,
    Keyless,
    /// Starts or ends subscriptions of the client's connection.
    Subscription,
    Publish,
    /// Drops copies and leaves the data.
    Purge,
}

/// The rule of a table entry; what is its rule so far does not count.
impl CommandSpec {
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.has(flag as u32)
    }

    pub fn advises(&self, tip: Tip) -> bool {
        self.tips.has(tip as u32)
    }

    pub(crate) fn belongs_to(&self, category: Category) -> bool {
        self.categories.has(category as u32)
    }

    /// EVAL, FCALL and their like, which may run for long.
    pub fn runs_script(&self) -> bool {
        matches!(self.group, CommandGroup::Scripting) && self.has(Flag::NoMandatoryKeys)
    }

    /// Whether its replies may change with the expiry of a hash's fields, without a write.
    pub fn is_hash(&self) -> bool {
        matches!(self.group, CommandGroup::Hash)
    }

    /// Whether clients may keep what it says of its keys: what only reads, and scripts, which may.
    pub fn is_tracked(&self) -> bool {
        let script = matches!(self.name, "eval" | "evalsha" | "fcall");
        script || self.has(Flag::Readonly)
    }

    /// How many leading arguments are its name: two for a subcommand.
    pub fn name_args(&self) -> usize {
        if self.name.contains('|') { 2 } else { 1 }
    }

    pub fn names_keys(&self) -> bool {
        self.keys.iter().any(|keys| !keys.has(KeyFlag::NotKey))
    }

    pub fn may_name_several_keys(&self) -> bool {
        let own = || self.keys.iter().filter(|keys| !keys.has(KeyFlag::NotKey));
        own().count() > 1 || own().any(|keys| !matches!(keys.find, Find::Range(KeyRange { last: 0, .. })))
    }

    /// Scripts and functions, whose keys are counted and may be none.
    pub fn may_name_no_key(&self) -> bool {
        matches!(self.group, CommandGroup::Scripting)
    }

    /// Whether a command of `args` arguments, the name included, has the right number of them.
    pub fn accepts(&self, args: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { args >= arity } else { args == arity }
    }
}

/// A small set of enum members, by their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set(u32);

impl Set {
    pub(super) const fn has(self, member: u32) -> bool {
        self.0 & (1 << member) != 0
    }

    pub(super) const fn of_flags(flags: &[Flag]) -> Set {
        let (mut set, mut index) = (0, 0);
        while index < flags.len() {
            set |= 1 << flags[index] as u32;
            index += 1;
        }
        Set(set)
    }

    pub(super) const fn of_tips(tips: &[Tip]) -> Set {
        let (mut set, mut index) = (0, 0);
        while index < tips.len() {
            set |= 1 << tips[index] as u32;
            index += 1;
        }
        Set(set)
    }

    pub(super) const fn of_categories(categories: &[Category]) -> Set {
        let (mut set, mut index) = (0, 0);
        while index < categories.len() {
            set |= 1 << categories[index] as u32;
            index += 1;
        }
        Set(set)
    }

    pub(super) const fn of_key_flags(flags: &[KeyFlag]) -> Set {
        let (mut set, mut index) = (0, 0);
        while index < flags.len() {
            set |= 1 << flags[index] as u32;
            index += 1;
        }
        Set(set)
    }
}

/// Redis' command flags (`COMMAND INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    Admin,
    AllowBusy,
    Asking,
    Blocking,
    Denyoom,
    Fast,
    Loading,
    Movablekeys,
    NoAsyncLoading,
    NoAuth,
    NoMandatoryKeys,
    NoMulti,
    Noscript,
    Pubsub,
    Readonly,
    SkipMonitor,
    SkipSlowlog,
    Stale,
    Write,
}

/// Redis' hints for clients and proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tip {
    NondeterministicOutput,
    NondeterministicOutputOrder,
    RequestAllNodes,
    RequestAllShards,
    RequestMultiShard,
    RequestSpecial,
    ResponseAggLogicalAnd,
    ResponseAggLogicalOr,
    ResponseAggMax,
    ResponseAggMin,
    ResponseAggSum,
    ResponseAllSucceeded,
    ResponseOneSucceeded,
    ResponseSpecial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandGroup {
    Bitmap,
    Cluster,
    Connection,
    Generic,
    Geo,
    Hash,
    Hyperloglog,
    List,
    Pubsub,
    Scripting,
    Sentinel,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

/// What a user's rules name groups of commands by, in the order of `ACL CAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Keyspace,
    Read,
    Write,
    Set,
    Sortedset,
    List,
    Hash,
    String,
    Bitmap,
    Hyperloglog,
    Geo,
    Stream,
    Pubsub,
    Admin,
    Fast,
    Slow,
    Blocking,
    Dangerous,
    Connection,
    Transaction,
    Scripting,
}

/// Where some of a command's keys are, and what it does to them.
#[derive(Debug)]
pub(super) struct KeySpec {
    pub(super) flags: Set,
    pub(super) begin: Begin,
    pub(super) find: Find,
}

impl KeySpec {
    pub(super) const fn has(&self, flag: KeyFlag) -> bool {
        self.flags.has(flag as u32)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFlag {
    /// Exactly one of the first four: read only, read and written, overwritten, removed.
    Ro,
    Rw,
    Ow,
    Rm,
    Access,
    Update,
    Insert,
    Delete,
    /// Looks like a key but is none: a shard channel.
    NotKey,
    Incomplete,
    VariableFlags,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    Index(usize),
    /// Behind this word, searched for from an argument on.
    Keyword(&'static str, usize),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Find {
    Range(KeyRange),
    /// The keys are counted by an argument; both positions count from where the search began.
    Count {
        count: usize,
        first: usize,
        step: usize,
    },
    Unknown,
}

/// Keys from one argument on: each of them `step` arguments behind the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRange {
    /// The last key, counted from the first one or, when negative, from the end of the command.
    pub(super) last: i16,
    pub(super) step: usize,
    /// Where `last` is negative: 2 and more stand for the first half, third and so on of the rest.
    pub(super) limit: usize,
}
