//! Which commands share a commit of a durable store, and when their replies may leave. Not what is written.

use std::collections::VecDeque;

/// Commits of one store, one after the other: while one is on its way to the disk, the next one forms.
///
/// A reply may show only what is durable. So it waits for the newest commit that its command has written to or has read
/// from: who has seen a value must never see it gone after a crash.
#[derive(Clone, Debug)]
pub struct GroupCommit<R> {
    /// The number of the commit that forms.
    forming: u64,
    /// Something was written to it.
    is_written: bool,
    under_way: Option<u64>,
    /// With the commit that each waits for, in the order in which the commands were carried out.
    waiting: VecDeque<(u64, R)>,
}

impl<R> GroupCommit<R> {
    /// `last` is the number of the newest commit that the store holds.
    pub fn new(last: u64) -> GroupCommit<R> {
        GroupCommit { forming: last + 1, is_written: false, under_way: None, waiting: VecDeque::new() }
    }

    /// The commit that gets what is written now.
    pub fn forming(&self) -> u64 {
        self.forming
    }

    /// The commit whose outcome is not known yet.
    pub fn under_way(&self) -> Option<u64> {
        self.under_way
    }

    pub fn write(&mut self) {
        self.is_written = true;
    }

    /// Takes the reply of a command that was carried out on what the commit `seen` holds, or on nothing newer than what is
    /// durable; gives it back if it may leave at once.
    pub fn reply(&mut self, seen: Option<u64>, reply: R) -> Option<R> {
        match seen {
            Some(commit) if self.under_way.unwrap_or(self.forming) <= commit => {
                self.waiting.push_back((commit, reply));
                None
            }
            _ => Some(reply),
        }
    }

    /// The commit to begin, if one is to.
    pub fn begin(&mut self) -> Option<u64> {
        if self.under_way.is_some() || !self.is_written {
            return None;
        }
        self.is_written = false;
        self.under_way = Some(self.forming);
        self.forming += 1;
        self.under_way
    }

    /// The commit under way is as durable as the store promises; gives the replies that may leave, in order.
    pub fn committed(&mut self) -> impl Iterator<Item = R> {
        let done = self.under_way.take();
        let (leaving, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(commit, _)| Some(*commit) <= done);
        self.waiting = waiting;
        leaving.into_iter().map(|(_, reply)| reply)
    }

    /// Nobody knows whether the commit under way is there, and nothing more is written: gives all replies that wait.
    pub fn failed(self) -> impl Iterator<Item = R> {
        self.waiting.into_iter().map(|(_, reply)| reply)
    }
}

#[cfg(test)]
mod tests {
    use super::GroupCommit;

    fn leaving(commits: &mut GroupCommit<&'static str>) -> Vec<&'static str> {
        commits.committed().collect()
    }

    #[test]
    fn commands_share_the_commit_that_forms_while_another_is_under_way() {
        let mut commits = GroupCommit::new(7);
        assert_eq!(commits.begin(), None, "nothing is written");
        commits.write();
        assert_eq!(commits.reply(Some(8), "a"), None);
        assert_eq!(commits.begin(), Some(8));
        for name in ["b", "c"] {
            commits.write();
            assert_eq!(commits.reply(Some(9), name), None);
        }
        assert_eq!(commits.begin(), None, "one at a time");
        assert_eq!(leaving(&mut commits), ["a"]);
        assert_eq!(commits.begin(), Some(9));
        assert_eq!(leaving(&mut commits), ["b", "c"]);
        assert_eq!(commits.begin(), None);
    }

    #[test]
    fn a_read_waits_for_what_it_has_seen_and_for_nothing_else() {
        let mut commits = GroupCommit::new(0);
        commits.write();
        assert_eq!(commits.reply(Some(1), "write"), None);
        assert_eq!(commits.begin(), Some(1));
        assert_eq!(commits.reply(None, "of another key"), Some("of another key"));
        assert_eq!(commits.reply(Some(1), "of the same key"), None);
        commits.write();
        assert_eq!(commits.reply(Some(2), "of a newer write"), None);
        assert_eq!(leaving(&mut commits), ["write", "of the same key"]);
        assert_eq!(commits.reply(Some(1), "later"), Some("later"), "it is durable");
        assert_eq!(commits.failed().collect::<Vec<_>>(), ["of a newer write"]);
    }
}
