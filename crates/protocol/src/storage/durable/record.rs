//! What a durable store says of the processes that have had it. Not its keys.

use std::time::Duration;

use crate::coherence::lease::{EarlierIncarnations, Unrecorded};
use crate::storage::redis::LeaseRecord;
use crate::storage::{MarkedPart, REMEDY};

/// How records are written, and the folder around them.
const FORMAT: &str = "1";

/// What the process that has the store leaves to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRecord {
    /// Grows with every process that opens the store.
    pub incarnation: u64,
    /// The run of the operating system in which that was: what it has been told to write is there as long as that runs.
    pub boot: String,
    /// It has left in order, with everything on disk.
    pub is_clean: bool,
    /// How long leases may run of those that have had the store.
    pub wait: Duration,
    /// Whose keys the store holds; none where keys move.
    pub part: Option<MarkedPart>,
}

/// The process that opens a store.
#[derive(Clone, Debug)]
pub struct StoreLife {
    pub boot: String,
    pub part: Option<MarkedPart>,
    pub lease_record: LeaseRecord,
    /// A person says that it takes over whatever it finds.
    pub adopts: bool,
}

/// What was found where a store is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreOpening {
    /// The last process's, if there was a store.
    pub record: Option<StoreRecord>,
    /// It is a copy of what was written, as of a backup.
    pub is_copy: bool,
    /// Commits that were durable once and are not there any more.
    pub lost_commits: u64,
}

impl StoreOpening {
    /// What to write before anything else, and what the shim's machine has to know of those before.
    ///
    /// # Errors
    /// Why only a person can let this process have the store.
    pub fn succeed(self, life: &StoreLife) -> Result<(StoreRecord, EarlierIncarnations), String> {
        let LeaseRecord { wait, is_first, .. } = life.lease_record;
        let next = |incarnation, wait| StoreRecord {
            incarnation,
            boot: life.boot.clone(),
            is_clean: false,
            wait,
            part: life.part.clone(),
        };
        let Some(found) = self.record else {
            let earlier = match is_first || life.adopts {
                true => EarlierIncarnations::NONE,
                false => EarlierIncarnations::unrecorded(Unrecorded::Unknown),
            };
            // Leases that are not on record run for no longer.
            let outstanding = life.lease_record.limits.wait(earlier, None);
            return Ok((next(1, wait.max(outstanding)), earlier));
        };
        if let Some(difference) =
            life.part.as_ref().and_then(|part| found.misfit(part)).filter(|_| !life.adopts)
        {
            return Err(format!("{difference}: {REMEDY}"));
        }
        if self.lost_commits > 0 && !life.adopts {
            return Err(format!(
                "{} commits that were on disk are not there any more: the disk has lost them, or an older copy of a part of the \
                 folder was put there. Restore a whole backup; --adopt goes on with what is left",
                self.lost_commits
            ));
        }
        // What was acknowledged may be missing where the operating system ended before it had written everything, and in a copy.
        let is_whole = found.is_clean || found.boot == life.boot;
        let same_data = self.lost_commits == 0 && is_whole && !self.is_copy;
        let earlier = EarlierIncarnations { same_data, ..EarlierIncarnations::recorded(found.wait) };
        Ok((next(found.incarnation + 1, wait.max(found.wait)), earlier))
    }
}

impl StoreRecord {
    /// Why the store is not for this part of a placement.
    pub fn misfit(&self, part: &MarkedPart) -> Option<String> {
        part.difference(self.part.as_ref()?, "the store")
    }

    /// The record as a text of lines, a key and its value each. `file` is the number of the file that it is written to, which tells
    /// it from copies of it.
    pub fn write(&self, file: u64) -> String {
        let mut lines = vec![
            ("format", FORMAT.to_owned()),
            ("incarnation", self.incarnation.to_string()),
            ("boot", self.boot.clone()),
            ("file", file.to_string()),
            ("clean", self.is_clean.to_string()),
            ("wait", self.wait.as_micros().div_ceil(1000).to_string()),
        ];
        lines.extend(self.part.iter().flat_map(MarkedPart::lines));
        lines.into_iter().map(|(key, value)| format!("{key} {value}\n")).collect()
    }

    /// The record of a text that `write` has made, and the file that it was made for.
    ///
    /// # Errors
    /// Why this program cannot use the store.
    pub fn read(text: &str) -> Result<(StoreRecord, u64), String> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        match line("format") {
            Some(FORMAT) => {}
            Some(other) => {
                return Err(format!(
                    "the store has format {other}, and this program knows format {FORMAT}: take a newer one"
                ));
            }
            None => return Err("the store does not say what it is: its record cannot be read".to_owned()),
        }
        let parsed = || {
            let milliseconds = line("wait")?.parse().ok()?;
            let record = StoreRecord {
                incarnation: line("incarnation")?.parse().ok()?,
                boot: line("boot")?.to_owned(),
                is_clean: line("clean")?.parse().ok()?,
                wait: Duration::from_millis(milliseconds),
                part: match line("cluster") {
                    Some(_) => Some(MarkedPart::parse(line)?),
                    None => None,
                },
            };
            Some((record, line("file")?.parse().ok()?))
        };
        parsed().ok_or_else(|| "the record of the store is damaged".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::lease::LeaseLimits;

    const SECOND: Duration = Duration::from_secs(1);

    fn part(shim: &str) -> MarkedPart {
        let shims = vec!["a b".to_owned(), "c".to_owned()];
        MarkedPart {
            id: "1f".to_owned(),
            cluster: "main: one".to_owned(),
            shims,
            shim: shim.to_owned(),
            next: Vec::new(),
        }
    }

    fn life(boot: &str, wait: Duration) -> StoreLife {
        let lease_record = LeaseRecord { wait, limits: LeaseLimits::default(), is_first: false };
        StoreLife { boot: boot.to_owned(), part: Some(part("a b")), lease_record, adopts: false }
    }

    fn opening(record: &StoreRecord) -> StoreOpening {
        StoreOpening { record: Some(record.clone()), is_copy: false, lost_commits: 0 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let (record, _) = StoreOpening { record: None, is_copy: false, lost_commits: 0 }
            .succeed(&life("boot-1", SECOND))
            .unwrap();
        assert_eq!(StoreRecord::read(&record.write(7)), Ok((record.clone(), 7)));
        let unmarked = StoreRecord { part: None, is_clean: true, ..record };
        assert_eq!(StoreRecord::read(&unmarked.write(8)), Ok((unmarked.clone(), 8)));
        let newer = unmarked.write(8).replace("format 1", "format 2");
        assert!(StoreRecord::read(&newer).unwrap_err().contains("take a newer one"));
        assert!(StoreRecord::read("").unwrap_err().contains("does not say what it is"));
        assert!(StoreRecord::read("format 1\nincarnation x\n").unwrap_err().contains("damaged"));
    }

    #[test]
    fn a_new_store_knows_nothing_of_leases_unless_it_is_the_first() {
        let fresh = || StoreOpening { record: None, is_copy: false, lost_commits: 0 };
        let limits = LeaseLimits::default();
        let (record, earlier) = fresh().succeed(&life("boot", SECOND)).unwrap();
        assert_eq!(limits.wait(earlier, None), limits.wait_max);
        assert_eq!(record.wait, limits.wait_max, "they run on if this process dies at once");
        let mut first = life("boot", SECOND);
        first.lease_record.is_first = true;
        let (record, earlier) = fresh().succeed(&first).unwrap();
        assert_eq!((record.wait, earlier), (SECOND, EarlierIncarnations::NONE));
    }

    #[test]
    fn the_longest_lease_of_any_life_is_waited_for() {
        let (first, _) = StoreOpening { record: None, is_copy: false, lost_commits: 0 }
            .succeed(&life("boot", SECOND))
            .unwrap();
        let first = StoreRecord { wait: 30 * SECOND, ..first };
        let (second, earlier) = opening(&first).succeed(&life("boot", SECOND)).unwrap();
        assert_eq!(
            (second.incarnation, second.wait),
            (2, 30 * SECOND),
            "a life that ends at once waits for none"
        );
        assert_eq!(earlier, EarlierIncarnations::recorded(30 * SECOND));
    }

    #[test]
    fn data_may_be_another_after_the_machine_has_ended_in_disorder() {
        let (first, _) = StoreOpening { record: None, is_copy: false, lost_commits: 0 }
            .succeed(&life("boot-1", SECOND))
            .unwrap();
        let is_same =
            |opening: StoreOpening, boot: &str| opening.succeed(&life(boot, SECOND)).unwrap().1.same_data;
        assert!(
            is_same(opening(&first), "boot-1"),
            "a process that is killed loses nothing that it has written"
        );
        assert!(!is_same(opening(&first), "boot-2"));
        let clean = StoreRecord { is_clean: true, ..first };
        assert!(is_same(opening(&clean), "boot-2"));
        let backup = StoreOpening { is_copy: true, ..opening(&clean) };
        assert!(!is_same(backup, "boot-1"), "it is older than what readers have seen");
    }

    #[test]
    fn what_does_not_fit_is_refused_in_words_until_somebody_adopts_it() {
        let (mut record, _) = StoreOpening { record: None, is_copy: false, lost_commits: 0 }
            .succeed(&life("boot", SECOND))
            .unwrap();
        let check = |opening: &StoreOpening, words: &str| {
            let refusal = opening.clone().succeed(&life("boot", SECOND)).unwrap_err();
            assert!(refusal.contains(words), "{refusal}");
            let adopting = StoreLife { adopts: true, ..life("boot", SECOND) };
            opening.clone().succeed(&adopting).unwrap().1.same_data
        };
        let lost = StoreOpening { lost_commits: 3, ..opening(&record) };
        assert!(!check(&lost, "3 commits that were on disk"));
        record.part = Some(part("c"));
        assert!(check(&opening(&record), "the store holds the keys of c, and is `storage` of a b now"));
    }
}
