//! How long leases of incarnations may run after their users have gone, and whether who comes later is told so. Not whether
//! anything is granted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits, LeaseTerms, Unrecorded};
use wire::resp::Command;

/// One incarnation, as the name of its user has it.
#[derive(Clone, Copy, Debug)]
struct Made {
    wait: u64,
    /// When it was made.
    begun: u64,
    /// It was up. Before that nothing is granted in its name; others' leases that its name tells of are their own.
    governed: bool,
    /// When its user went.
    ended: Option<u64>,
}

/// The incarnations of one server, by number. Times are microseconds.
#[derive(Debug)]
pub(super) struct LeaseBook {
    limits: LeaseLimits,
    made: BTreeMap<u64, Made>,
    /// How often leases of one incarnation ran on into a later one, which knew.
    pub(super) inherited: u64,
    /// How often leases ran on into an incarnation that knew them from the mark.
    pub(super) marked: u64,
    /// How often one handed over whose leases would have run on.
    pub(super) handed_over: u64,
    /// Incarnations that were told that none of their copies can be served any more.
    handing_over: BTreeSet<u64>,
}

impl LeaseBook {
    pub(super) fn new(limits: LeaseLimits) -> LeaseBook {
        let (made, handing_over) = Default::default();
        LeaseBook { limits, made, inherited: 0, marked: 0, handed_over: 0, handing_over }
    }

    /// A command that the server has carried out.
    pub(super) fn executed(&mut self, now: u64, command: &Command) {
        let users = (2..command.len()).filter_map(|index| user(command.arg(index)));
        match (command.name(), command.get(1).unwrap_or_default()) {
            (b"ACL", b"SETUSER") => {
                let made = |wait| Made { wait, begun: now, governed: false, ended: None };
                self.made.extend(users.map(|(number, wait)| (number, made(wait))));
                let less = shrunk(command.get(2).unwrap_or_default());
                less.map(|(number, wait)| self.made.get_mut(&number).map(|made| made.wait = wait));
                self.ends(command.get(2).unwrap_or_default());
            }
            (b"ACL", b"DELUSER") => {
                for (number, _) in users {
                    self.made.get_mut(&number).map(|made| made.ended.get_or_insert(now));
                }
            }
            _ => {}
        }
    }

    pub(super) fn hands_over(&mut self, number: Option<u64>) {
        self.handing_over.extend(number);
    }

    /// A record of one that has ended: only who hands over may take anything off.
    fn ends(&mut self, name: &[u8]) {
        let Some((number, wait)) = name.strip_suffix(b":ended").and_then(user) else { return };
        if let Some(made) = self.made.get_mut(&number).filter(|_| self.handing_over.contains(&number)) {
            self.handed_over += u64::from(wait < made.wait);
            made.wait = made.wait.min(wait);
        }
    }

    /// The server has no users any more.
    pub(super) fn lost(&mut self, now: u64) {
        self.made.values_mut().for_each(|made| _ = made.ended.get_or_insert(now));
    }

    /// An incarnation comes up and is told of earlier leases.
    pub(super) fn up(&mut self, now: u64, number: u64, earlier: EarlierIncarnations) -> Result<(), String> {
        if let Some(made) = self.made.get_mut(&number) {
            made.governed = true;
        }
        let told = now + self.limits.wait(earlier, None).as_micros() as u64;
        let ended = self.made.iter().filter(|(other, _)| **other != number);
        let ends = ended.filter_map(|(other, made)| Some((self.end(*made)?, *other)));
        let Some((last, other)) = ends.max().filter(|(last, _)| *last > now) else { return Ok(()) };
        if told < last {
            return Err(format!(
                "{number:x} is told that earlier leases end {} us before those of {other:x} do: {earlier:?}, {:?}",
                last - told,
                self.made[&other]
            ));
        }
        self.inherited += u64::from(earlier.unrecorded == Unrecorded::Nobody);
        self.marked += u64::from(matches!(earlier.unrecorded, Unrecorded::Within(_)));
        Ok(())
    }

    /// When the leases of an incarnation have ended, however long it would have waited for: they have grown until then.
    fn end(&self, made: Made) -> Option<u64> {
        let ended = made.ended.filter(|_| made.governed)?;
        let grown = self.limits.lease_max(Duration::from_micros(ended - made.begun));
        let grown = LeaseTerms { duration: grown, guard: Duration::ZERO }.restart_wait();
        Some(ended + made.wait.min(grown.as_micros() as u64))
    }
}

/// Number and wait of an incarnation, from a name that says that successors wait for no longer.
fn shrunk(name: &[u8]) -> Option<(u64, u64)> {
    user(name.strip_suffix(b":shrunk")?)
}

/// Number and wait of the incarnation of which this is the user, and not what is left of it.
fn user(name: &[u8]) -> Option<(u64, u64)> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix("distcache:c:s:")?;
    let parts: Vec<&str> = name.split(':').collect();
    let &[number, wait, _data] = &parts[..] else { return None };
    Some((u64::from_str_radix(number, 16).ok()?, wait.parse::<u64>().ok()? * 1000))
}
