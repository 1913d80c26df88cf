//! Who else writes to storage that only DistCache is to write to: what changed copies' keys, who is connected and writes, and what
//! storage drops by itself. Not how changes are heard of, nor what becomes of copies.

use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::{Command, Value};

use super::step::ShimStep;
use super::{Purpose, Shim, StorageState};
use crate::storage::redis::clients::{self, ForeignConnection, foreign_connections};
use crate::storage::redis::server::{eviction, field};
use crate::storage::{Lane, Reach};
use crate::time::Time;

/// Storage is asked this often at most, this often if something was found, and this often if nothing was.
const EXAMINATION_INTERVAL_MIN: Duration = Duration::from_millis(100);
const FOUND_INTERVAL: Duration = Duration::from_secs(5);
const EXAMINATION_INTERVAL: Duration = Duration::from_secs(60);
/// Connections are listed this often at most, and only if there are not more: the list of a thousand takes Redis some
/// milliseconds.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
const LISTED_MAX: u64 = 1_000;
/// How long nothing is cached after a foreign write, where that is refused.
const REFUSAL: Duration = Duration::from_secs(60);
/// Keys whose reads Redis remembers unless it is configured otherwise; one more, and it reports some as changed.
const TRACKING_TABLE_MAX: u64 = 1_000_000;

/// Keys that are looked into at one time; more than so many tell nothing more.
const SUSPECTS_MAX: usize = 1_000;
/// Stands for the keys of a server, all of which were changed, or nobody knows which.
pub const ALL_KEYS: &[u8] = b"*";

/// In the order of the replies, of which the list may be missing.
const QUESTIONS: [&[&str]; 4] = [
    &["INFO", "stats"],
    &["INFO", "memory"],
    &["INFO", "clients"],
    &["CONFIG", "GET", "tracking-table-max-keys"],
];

/// What becomes of caching where somebody else than DistCache writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignWritePolicy {
    /// Foreign writes and writers are told and counted, and caching goes on.
    #[default]
    Warn,
    /// Every copy is dropped, and nothing is cached as long as they are there, nor for a minute after a foreign write.
    Refuse,
}

/// Who else writes, as far as it shows, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignWritersSeen {
    /// Keys with copies that others have changed, and the last of them.
    pub changes: u64,
    pub key: Bytes,
    /// Connections that are not DistCache's and have written within the last minute.
    pub connections: Vec<ForeignConnection>,
    /// The policy by which storage evicts, if it does.
    pub eviction: Option<String>,
    /// Nothing is cached because of them.
    pub refused: bool,
}

impl ForeignWritersSeen {
    /// Whether there is anybody or anything now.
    fn finds(&self) -> bool {
        !self.connections.is_empty() || self.eviction.is_some()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Examination {
    seen: ForeignWritersSeen,
    /// Keys that somebody else has changed, unless storage has only forgotten that they were read, or they go to another server.
    suspects: Vec<Bytes>,
    /// Suspects that storage is being asked about: what it says may be older than what it reports later.
    in_question: Vec<Bytes>,
    asking: bool,
    /// The server that was asked last, of several.
    reach: Option<Reach>,
    /// Connections are to be listed whatever the time, as soon as that may be.
    wants_list: bool,
    asked: Time,
    listed: Option<Time>,
    /// How many connections storage had.
    connections: Option<u64>,
    changed: Option<Time>,
}

/// Whether storage remembers so many reads that it forgets some of them, from its `INFO stats` and CONFIG GET.
fn has_forgotten(stats: &str, config: &Bytes) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let tracked = field(stats, "tracking_total_keys").and_then(number).unwrap_or(0);
    let configured = Value::parse(config).ok().and_then(|pair| text(pair.elements()?.get(1)?));
    let most = configured.as_deref().and_then(number).unwrap_or(TRACKING_TABLE_MAX);
    // Zero is for as many as there are.
    most > 0 && tracked >= most - most / 100
}

fn text(value: &Value) -> Option<String> {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// A reply's text; none of an error.
fn text_of(reply: &Bytes) -> String {
    Value::parse(reply).ok().as_ref().and_then(text).unwrap_or_default()
}

impl Shim {
    /// Who else writes to storage, as far as it shows.
    pub fn foreign_writers(&self) -> &ForeignWritersSeen {
        &self.examination.seen
    }

    /// A key with copies was changed, not by a write of ours, unless storage has forgotten that it was read.
    pub(super) fn suspect(&mut self, key: Bytes) {
        if self.examination.suspects.len() < SUSPECTS_MAX {
            self.examination.suspects.push(key);
        }
    }

    /// Storage is asked anew, because it may be another one.
    pub(super) fn examine_again(&mut self) {
        self.examination.wants_list = true;
    }

    /// Asks storage what it says of itself and of its connections, if it is time to.
    pub(super) fn examine(&mut self, step: &mut ShimStep<'_>) {
        self.weigh_refusal(step.now);
        let Some(reach) = self.examined_server() else { return };
        let examination = &mut self.examination;
        let since = step.now.since(examination.asked);
        let interval = if examination.seen.finds() { FOUND_INTERVAL } else { EXAMINATION_INTERVAL };
        let few = examination.connections.is_some_and(|count| count <= LISTED_MAX);
        let long_ago = examination.listed.is_none_or(|listed| step.now.since(listed) >= LIST_INTERVAL);
        let lists = few && long_ago;
        let listing = examination.wants_list && (lists || examination.connections.is_none());
        let due = !examination.suspects.is_empty() || listing || since >= interval;
        if !due || examination.asking || since < EXAMINATION_INTERVAL_MIN {
            return;
        }
        (examination.asking, examination.asked, examination.reach) = (true, step.now, Some(reach));
        examination.in_question.append(&mut examination.suspects);
        if lists {
            (examination.listed, examination.wants_list) = (Some(step.now), false);
        }
        let questions = QUESTIONS.into_iter().chain(lists.then_some(clients::QUESTION));
        let commands: SmallVec<[Bytes; 2]> =
            questions.map(|words| Command::from_args(words).frame().clone()).collect();
        let lane = Lane::Shared { resp3: false };
        self.store(step, Purpose::Examination, lane, reach, commands);
    }

    /// The server to ask: of several the one that has what was changed last, or that was asked before.
    fn examined_server(&self) -> Option<Reach> {
        if !matches!(&self.storage, StorageState::Up { traits } if traits.many_servers) {
            return Some(Reach::Whole);
        }
        // Where all keys of a server were changed, it is not said of which.
        let changed = self.examination.suspects.iter().rfind(|key| key[..] != *ALL_KEYS);
        let changed = changed.map(|key| self.reach(&self.placement.key(0, key.clone())));
        changed.or(self.examination.reach).or_else(|| Some(self.reach(self.keys.keys().next()?)))
    }

    pub(super) fn examined(&mut self, step: &mut ShimStep<'_>, stats: &Bytes, rest: SmallVec<[Bytes; 4]>) {
        let [memory, clients, config, list @ ..] = &rest[..] else { return self.examination_lost() };
        let suspects = std::mem::take(&mut self.examination.in_question);
        let forgotten = !suspects.is_empty() && has_forgotten(&text_of(stats), config);
        let stay = |key: &&Bytes| !self.is_moving(&self.placement.key(0, Bytes::clone(key)));
        let changed: Vec<&Bytes> = suspects.iter().filter(stay).filter(|_| !forgotten).collect();
        let changes = changed.len() as u64;
        let examination = &mut self.examination;
        examination.asking = false;
        if let Some(key) = changed.last() {
            (examination.seen.changes, examination.changed) =
                (examination.seen.changes + changes, Some(step.now));
            examination.seen.key = Bytes::clone(key);
        }
        examination.seen.eviction = eviction(&text_of(memory)).map(str::to_owned);
        let count = field(&text_of(clients), "connected_clients").and_then(|count| count.parse().ok());
        let few = count.is_some_and(|count: u64| count <= LISTED_MAX);
        let seeks = examination.changed.is_some_and(|changed| step.now.since(changed) < FOUND_INTERVAL);
        match list.first() {
            Some(list) => examination.seen.connections = foreign_connections(&text_of(list), seeks),
            None if !few => examination.seen.connections.clear(),
            None => examination.wants_list |= changes > 0,
        }
        examination.connections = count;
        self.statistics.foreign_writes += changes;
        self.statistics.forgotten_reads += if forgotten { suspects.len() as u64 } else { 0 };
        self.weigh_refusal(step.now);
    }

    /// Storage that tells of no key has seen changes by others, after which any copy may be old; or, if none, who was there.
    pub(super) fn foreign_writes(&mut self, now: Time, count: u64, connections: Vec<String>) {
        let seen = &mut self.examination.seen;
        if count == 0 {
            let unnamed = |address| ForeignConnection { address, ..ForeignConnection::default() };
            seen.connections = connections.into_iter().map(unnamed).collect();
            return;
        }
        seen.changes += count;
        seen.key = Bytes::from_static(ALL_KEYS);
        self.examination.changed = Some(now);
        self.statistics.foreign_writes += count;
        self.flush();
        self.weigh_refusal(now);
    }

    /// Who is known from changes alone, because storage is not asked about them, is forgotten a while after the last.
    pub(super) fn forget_foreign_writers(&mut self, now: Time) {
        let Examination { seen, changed, .. } = &mut self.examination;
        if changed.is_none_or(|changed| now.since(changed) >= REFUSAL) {
            seen.connections.clear();
            seen.eviction = None;
        }
        self.weigh_refusal(now);
    }

    /// The question came to nothing: what was suspected is asked about again.
    pub(super) fn examination_lost(&mut self) {
        let Examination { asking, suspects, in_question, .. } = &mut self.examination;
        *asking = false;
        in_question.append(suspects);
        std::mem::swap(in_question, suspects);
    }

    /// Whether there may be copies beside those who write. Where there may not, those that are there go.
    fn weigh_refusal(&mut self, now: Time) {
        let Examination { seen, changed, .. } = &mut self.examination;
        let recent = changed.is_some_and(|changed| now.since(changed) < REFUSAL);
        let found = recent || seen.finds();
        let refused = found && self.config.settings.foreign_writes == ForeignWritePolicy::Refuse;
        let was_refused = std::mem::replace(&mut seen.refused, refused);
        if refused && !was_refused {
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_that_remembers_too_much_has_forgotten_some() {
        let stats = |tracked: u64| format!("# Stats\r\ntracking_total_keys:{tracked}\r\nx:1\r\n");
        let most = |most: u64| {
            let length = most.to_string().len();
            Bytes::from(format!("*2\r\n$23\r\ntracking-table-max-keys\r\n${length}\r\n{most}\r\n"))
        };
        let refused = Bytes::from_static(b"-NOPERM no\r\n");
        for (stats, config, expected) in [
            (stats(10), most(100), false),
            (stats(99), most(100), true),
            (stats(u64::MAX), most(0), false),
            (stats(989_999), refused.clone(), false),
            (stats(990_000), refused.clone(), true),
            (text_of(&refused), refused, false),
            (String::new(), Bytes::new(), false),
        ] {
            assert_eq!(has_forgotten(&stats, &config), expected, "{stats:?} {config:?}");
        }
    }
}
