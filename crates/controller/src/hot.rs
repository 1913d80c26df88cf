//! The hottest keys of the cluster, out of the lists that members report. Not how heat is measured.

use std::collections::BTreeMap;

use runtime::status::MemberStatus;
use serde::{Deserialize, Serialize};

/// Most keys in the answer.
const KEYS_MAX: usize = 100;

/// A hot key and who sees how much of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeyView {
    pub key: String,
    /// Requests per second, over all members.
    pub heat: u64,
    pub members: BTreeMap<String, u64>,
}

pub(crate) fn hottest<'a>(statuses: impl Iterator<Item = &'a MemberStatus>) -> Vec<HotKeyView> {
    let mut keys: BTreeMap<&str, HotKeyView> = BTreeMap::new();
    for status in statuses {
        for hot in status.hottest() {
            let view = keys.entry(&hot.key).or_default();
            view.heat += hot.heat;
            view.members.insert(status.id().to_owned(), hot.heat);
        }
    }
    let named = keys.into_iter().map(|(key, view)| HotKeyView { key: key.to_owned(), ..view });
    let mut hottest: Vec<HotKeyView> = named.collect();
    hottest.sort_by_key(|view| std::cmp::Reverse(view.heat));
    hottest.truncate(KEYS_MAX);
    hottest
}
