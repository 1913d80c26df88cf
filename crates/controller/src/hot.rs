//! The hottest keys of the cluster, out of the lists that members report. Not how heat is measured.

use std::collections::BTreeMap;

use runtime::status::{HotKeyView, MemberStatus};

/// Where routers hold it themselves.
const NEAR: &str = "near";
/// Most keys in the answer.
const KEYS_MAX: usize = 100;

pub(crate) fn hottest<'a>(statuses: impl Iterator<Item = &'a MemberStatus>) -> Vec<HotKeyView> {
    let mut keys: BTreeMap<&str, HotKeyView> = BTreeMap::new();
    let mut requests = 0;
    for status in statuses {
        if let MemberStatus::Router(router) = status {
            requests += router.statistics.load;
        }
        for hot in status.hottest() {
            let view = keys.entry(&hot.key).or_default();
            view.heat += hot.heat;
            view.members.insert(status.id().to_owned(), hot.heat);
            let cached = match status {
                MemberStatus::Node(node) => &node.layer[..],
                MemberStatus::Router(_) => NEAR,
                _ => continue,
            };
            if !view.cached.iter().any(|known| known == cached) {
                view.cached.push(cached.to_owned());
            }
        }
    }
    let named = keys.into_iter().map(|(key, view)| HotKeyView { key: key.to_owned(), ..view });
    let mut hottest: Vec<HotKeyView> = named.collect();
    for view in &mut hottest {
        // Heats are averages over longer than the second of the load.
        view.share = if requests == 0 { 0.0 } else { (view.heat as f64 / requests as f64).min(1.0) };
    }
    hottest.sort_by_key(|view| std::cmp::Reverse(view.heat));
    hottest.truncate(KEYS_MAX);
    hottest
}

#[cfg(test)]
mod tests {
    use super::hottest;
    use protocol::router::RouterStatistics;
    use runtime::status::{HotKey, MemberStatus, NodeStatus, RouterStatus, ShimStatus};

    #[test]
    fn a_key_has_the_sum_of_what_members_see_and_the_layers_that_cache_it() {
        let hot = |key: &str, heat| HotKey { key: key.to_owned(), heat };
        let node = |id: &str, layer: &str, hottest| {
            let (id, layer) = (id.to_owned(), layer.to_owned());
            MemberStatus::Node(NodeStatus { id, layer, hottest, ..NodeStatus::default() })
        };
        let shim = ShimStatus { hottest: vec![hot("a", 5), hot("b", 50)], ..ShimStatus::default() };
        let statistics = RouterStatistics { load: 100, ..RouterStatistics::default() };
        let members = [
            MemberStatus::Router(RouterStatus {
                statistics,
                hottest: vec![hot("a", 7)],
                ..RouterStatus::default()
            }),
            node("l0", "leaf", vec![hot("a", 20)]),
            node("s0", "spine", vec![hot("a", 15)]),
            MemberStatus::Shim(shim),
        ];
        let found = hottest(members.iter());
        assert_eq!((found[0].key.as_str(), found[0].heat, found[0].cached.len()), ("b", 50, 0));
        assert_eq!((found[1].key.as_str(), found[1].heat, found[1].share), ("a", 47, 0.47));
        assert_eq!(found[1].cached, ["near", "leaf", "spine"]);
    }
}
