//! MULTI to EXEC at the shim: one operation on all its keys, one batch for storage, one reply. Not what clients queue.

use std::collections::btree_map::{BTreeMap, Entry};

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::Execute;
use wire::resp::transaction::{EXEC, MULTI};
use wire::{Key, Peer};

use super::operation::{Operation, OperationKind, Origin, blank};
use super::operations::status_of;
use super::step::ShimStep;
use super::{Purpose, Shim};
use crate::storage::Lane;
use commands::{CommandKind, TransactionParts};
use wire::Status;

impl Shim {
    pub(super) fn transaction(&mut self, step: &mut ShimStep<'_>, from: Peer, execute: Execute) {
        let origin = Origin::new(from, execute.request);
        let parts = match TransactionParts::parse(&execute.command) {
            Ok(parts) => parts,
            Err(text) => {
                self.statistics.unexpected += 1;
                return step.reply_error(origin, &format!("-{text}\r\n"));
            }
        };
        if let Some(busy) = parts.commands.iter().find_map(|(_, one)| self.busy_with_script(one.spec)) {
            let mut text = b"-EXECABORT Transaction discarded because of: ".to_vec();
            text.extend_from_slice(&busy[1..]);
            return step.reply(origin, text.into());
        }
        let (keys, written) = self.transaction_keys(execute.key.database, &parts);
        let watching = match execute.watch.map(|watch| self.take_watcher(from, watch)) {
            // What it watched may have changed since, and nobody would know.
            Some(None) => {
                self.unwatch(step, from, execute.watch.unwrap_or_default());
                return step.reply(origin, null(execute.resp3));
            }
            Some(Some(watcher)) => Some(watcher),
            None => None,
        };
        if self.turned_away(step, origin, &keys, parts.kind) {
            if let Some(number) = watching {
                self.release_watching(step, number, false);
            }
            return;
        }
        for key in &keys {
            self.send_waiting(step, key);
        }
        let resp3 = execute.resp3;
        let scripts = parts.commands.iter().any(|(_, one)| one.spec.runs_script());
        let shared = if scripts { Lane::Scripts { resp3 } } else { Lane::Shared { resp3 } };
        let lane = watching.map_or(shared, |number| Lane::Watching { number, resp3 });
        let commands = frames(&parts);
        let one = |kind| {
            let commands = commands.clone();
            Operation { origin: Some(origin), lane, commands, written, ..blank(kind, SmallVec::new()) }
        };
        match parts.kind {
            CommandKind::Barrier => {
                self.admit_barrier(Operation {
                    anchor: keys.first().cloned(),
                    ..one(OperationKind::Barrier)
                });
            }
            CommandKind::Write => self.admit_operation(Operation { keys, ..one(OperationKind::Write) }),
            _ if keys.iter().any(|key| self.must_queue(key, lane, execute.ordered)) => {
                self.statistics.storage_reads += 1;
                self.admit_operation(Operation { keys, ..one(OperationKind::Read(None)) });
            }
            _ => {
                self.statistics.storage_reads += 1;
                let reach = self.reach_of(&keys);
                let purpose = match watching {
                    Some(number) => Purpose::WatchedRead { origin, number },
                    None => Purpose::Plain { origin, keys },
                };
                self.store(step, purpose, lane, reach, commands);
            }
        }
    }

    /// Each key once, those that are written first, and how many these are.
    fn transaction_keys(&self, database: u16, parts: &TransactionParts) -> (SmallVec<[Key; 1]>, usize) {
        let mut named: BTreeMap<&[u8], (Bytes, bool)> = BTreeMap::new();
        for (command, classified) in &parts.commands {
            let writes = commands::writes(classified.kind);
            for &index in &classified.keys {
                match named.entry(command.arg(index)) {
                    Entry::Vacant(place) => {
                        place.insert((command.arg_bytes(index), writes));
                    }
                    Entry::Occupied(mut place) => place.get_mut().1 |= writes,
                }
            }
        }
        let key = |wanted: bool| {
            let chosen = named.values().filter(move |(_, written)| *written == wanted);
            chosen.map(|(bytes, _)| self.placement.key(database, bytes.clone()))
        };
        let mut keys: SmallVec<[Key; 1]> = key(true).collect();
        let written = keys.len();
        keys.extend(key(false));
        (keys, written)
    }
}

/// EXEC's reply if a watched key has changed.
fn null(resp3: bool) -> Bytes {
    Bytes::from_static(if resp3 { b"_\r\n" } else { b"*-1\r\n" })
}

fn frames(parts: &TransactionParts) -> SmallVec<[Bytes; 2]> {
    let mut frames = SmallVec::with_capacity(parts.commands.len() + 2);
    frames.push(Bytes::from_static(MULTI));
    frames.extend(parts.commands.iter().map(|(command, _)| command.frame().clone()));
    frames.push(Bytes::from_static(EXEC));
    frames
}

/// What a client gets to hear of the replies from MULTI's to EXEC's: the last of them, and why, if it is that nothing
/// was done.
pub(super) fn outcome(replies: &[Bytes]) -> Bytes {
    let [multi, queued @ .., exec] = replies else { return Bytes::new() };
    let text = |reply: &Bytes| String::from_utf8_lossy(&reply[1..]).trim_end().to_owned();
    if status_of(multi) == Status::Error {
        return Bytes::from(format!(
            "-ERR DistCache: storage refused MULTI ({}) and may have carried the commands out one by one; \
             the storage user needs +multi and +exec\r\n",
            text(multi)
        ));
    }
    match queued.iter().find(|reply| status_of(reply) == Status::Error) {
        Some(reason) if exec.starts_with(b"-EXECABORT") => {
            Bytes::from(format!("-EXECABORT Transaction discarded because of: {}\r\n", text(reason)))
        }
        _ => exec.clone(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::outcome;

    fn check(replies: &[&'static str], expected: &str) {
        let replies: Vec<Bytes> = replies.iter().map(|reply| Bytes::from_static(reply.as_bytes())).collect();
        assert_eq!(outcome(&replies), expected);
    }

    #[test]
    fn the_outcome_is_exec_s_with_the_reason_of_an_abort() {
        check(&["+OK\r\n", "+QUEUED\r\n", "*1\r\n:1\r\n"], "*1\r\n:1\r\n");
        check(&["+OK\r\n", "*0\r\n"], "*0\r\n");
        check(&["+OK\r\n", "+QUEUED\r\n", "*-1\r\n"], "*-1\r\n");
        check(
            &["+OK\r\n", "+QUEUED\r\n", "-NOPERM no\r\n", "-EXECABORT Transaction discarded.\r\n"],
            "-EXECABORT Transaction discarded because of: NOPERM no\r\n",
        );
    }

    #[test]
    fn a_refused_multi_is_told_with_its_remedy() {
        check(
            &["-NOPERM no\r\n", ":1\r\n", "-ERR EXEC without MULTI\r\n"],
            "-ERR DistCache: storage refused MULTI (NOPERM no) and may have carried the commands out one by one; \
             the storage user needs +multi and +exec\r\n",
        );
    }
}
