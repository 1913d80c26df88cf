//! What storage held of each key at which times, as reads would have shown it. Not who wrote it.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::commands::TestKey;
use crate::storage::Data;

/// Virtual time and a server's clock are converted with a small error.
const ROUNDING_US: u64 = 10;

/// One reply per form of reading, as RESP2 has it.
pub(crate) type VersionReplies = SmallVec<[Bytes; 3]>;

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) from: u64,
    /// It is there no longer, although storage may not have noticed.
    pub(crate) expires: Option<u64>,
    replies: VersionReplies,
}

#[derive(Debug)]
pub(crate) struct Versions {
    keys: Vec<Vec<Version>>,
    /// By key: what is read where nothing is.
    absent: Vec<VersionReplies>,
}

fn read(data: &mut Data, now_ms: u64, key: &TestKey) -> VersionReplies {
    let reply =
        |form: &crate::commands::ReadForm| data.execute(now_ms, &form.command, false).map(|done| done.0);
    key.reads.iter().filter_map(reply).collect()
}

impl Version {
    /// What storage holds of a key from now on.
    pub(crate) fn of(data: &mut Data, now_ms: u64, key: &TestKey) -> Version {
        Version { from: 0, expires: None, replies: read(data, now_ms, key) }
    }
}

impl Versions {
    pub(crate) fn push(&mut self, key: usize, version: Version) {
        self.keys[key].push(version);
    }

    pub(crate) fn new(keys: &[TestKey]) -> Versions {
        let absent: Vec<VersionReplies> = keys.iter().map(|key| read(&mut Data::default(), 0, key)).collect();
        let first =
            |replies: &VersionReplies| vec![Version { from: 0, expires: None, replies: replies.clone() }];
        Versions { keys: absent.iter().map(first).collect(), absent }
    }

    /// Whether a read of this form would have shown `reply` at some time between these two.
    pub(crate) fn explain(&self, key: usize, form: usize, reply: &[u8], from: u64, until: u64) -> bool {
        let versions = &self.keys[key];
        let first = versions.partition_point(|version| version.from < from).saturating_sub(1);
        let absent = self.absent[key][form] == reply;
        versions.iter().enumerate().skip(first).take_while(|(_, version)| version.from <= until).any(
            |(place, version)| {
                let end = versions.get(place + 1).map_or(u64::MAX, |next| next.from);
                let expires = version.expires.unwrap_or(u64::MAX);
                let present =
                    version.replies[form] == reply && end.min(expires.saturating_add(ROUNDING_US)) >= from;
                let gone = expires.saturating_sub(ROUNDING_US).max(version.from);
                present || (absent && version.expires.is_some() && gone <= until && end >= from)
            },
        )
    }

    /// When storage last ceased to hold what a read of this form shows so.
    pub(crate) fn replaced_at(&self, key: usize, form: usize, reply: &[u8]) -> Option<u64> {
        let versions = &self.keys[key];
        let place = versions.iter().rposition(|version| version.replies[form] == reply)?;
        let next = versions.get(place + 1).map_or(u64::MAX, |next| next.from);
        Some(next.min(versions[place].expires.unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_explained_by_what_was_there_in_its_time() {
        let version = |from, expires, text: &str| Version {
            from,
            expires,
            replies: std::iter::once(Bytes::copy_from_slice(text.as_bytes())).collect(),
        };
        let absent = std::iter::once(Bytes::from_static(b"-")).collect();
        let keys = vec![vec![version(0, None, "-"), version(100, Some(500), "a"), version(900, None, "b")]];
        let versions = Versions { keys, absent: vec![absent] };
        for (reply, from, until, expected) in [
            ("-", 0, 50, true),
            ("a", 0, 99, false),
            ("a", 0, 100, true),
            ("a", 300, 400, true),
            ("a", 520, 900, false),
            ("-", 120, 480, false),
            ("-", 480, 520, true),
            ("-", 600, 700, true),
            ("-", 901, 1000, false),
            ("b", 600, 899, false),
            ("b", 950, 2000, true),
        ] {
            assert_eq!(versions.explain(0, 0, reply.as_bytes(), from, until), expected, "{reply} {from}");
        }
    }
}
