//! Names and rules of the ACL users that fence incarnations from each other. Not when they are made.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use wire::resp::Value;

use crate::storage::mark::escaped;

/// What users of incarnations of all shims of every cluster begin with.
const PREFIX: &str = "distcache:";

/// Whose incarnations' users are: in their names, and in nobody's else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceName {
    /// Tells clusters apart, whatever people call them.
    pub cluster: String,
    pub shim: String,
    pub share: FenceShare,
}

/// Which of a server's keys a shim's incarnations write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceShare {
    /// Every key but those on their way to the server.
    Whole,
    /// Keys between the first and the last of these hash slots of a Redis Cluster, whose servers other shims use for other slots.
    Slots(u16, u16),
    /// Keys on their way to the server, which is another shim's.
    Arriving,
}

impl FenceShare {
    const ARRIVING: &'static str = "arriving";

    fn parse(text: &str) -> Option<FenceShare> {
        if text == FenceShare::ARRIVING {
            return Some(FenceShare::Arriving);
        }
        let (first, last) = text.split_once('-')?;
        Some(FenceShare::Slots(first.parse().ok()?, last.parse().ok()?))
    }
}

impl FenceName {
    /// What the names of users of this shim's incarnations begin with.
    pub(super) fn prefix(&self) -> String {
        let share = match self.share {
            FenceShare::Whole => String::new(),
            FenceShare::Slots(first, last) => format!("/{first}-{last}"),
            FenceShare::Arriving => format!("/{}", FenceShare::ARRIVING),
        };
        format!("{PREFIX}{}:{}{share}:", escaped(&self.cluster), escaped(&self.shim))
    }

    /// Whether incarnations of `shim`, as it stands in the name of a user of `cluster`, write other keys.
    fn leaves_alone(&self, cluster: &str, shim: &str) -> bool {
        let (shim, share) = shim
            .split_once('/')
            .map_or((shim, Some(FenceShare::Whole)), |(shim, share)| (shim, FenceShare::parse(share)));
        let is_another = cluster == escaped(&self.cluster) && shim != escaped(&self.shim);
        match (self.share, share) {
            (FenceShare::Slots(first, last), Some(FenceShare::Slots(begin, end))) => {
                last < begin || end < first
            }
            (FenceShare::Arriving, Some(FenceShare::Whole | FenceShare::Arriving)) => is_another,
            (FenceShare::Whole, Some(FenceShare::Arriving)) => is_another,
            _ => false,
        }
    }
}

/// Whether a user is one of an incarnation, of whatever shim.
pub(super) fn is_incarnation(user: &str) -> bool {
    user.starts_with(PREFIX)
}

/// What a user is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserKind {
    /// The incarnation writes as it.
    Living,
    /// Nobody can be it: the incarnation has left in order, and its leases may run on.
    Ended,
    /// Nobody can be it: what a living one waited for is over, and this is what its successors have to know.
    Shrunk,
}

/// What successors have to know of an incarnation and of those before it, with the user of which it comes and goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Legacy {
    /// How long leases may run once nobody grants any more.
    pub(super) wait: Duration,
    /// The data that they are of, if it is one.
    pub(super) data: Option<String>,
}

const SEVERAL: &str = "several";
const ENDED: &str = "ended";
const SHRUNK: &str = "shrunk";

/// The name of an incarnation's user.
pub(super) fn user_name(prefix: &str, number: u64, legacy: &Legacy, kind: UserKind) -> String {
    let ms = legacy.wait.as_micros().div_ceil(1000);
    let data = legacy.data.as_deref().unwrap_or(SEVERAL);
    let name = format!("{prefix}{number:016x}:{ms}:{data}");
    match kind {
        UserKind::Living => name,
        UserKind::Ended => format!("{name}:{ENDED}"),
        UserKind::Shrunk => format!("{name}:{SHRUNK}"),
    }
}

/// Users of other incarnations that write to the same keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OtherUsers {
    /// Users of the same shim's incarnations that may write.
    pub(super) living: Vec<String>,
    /// Users of incarnations that may write and are of another cluster, or of another shim where each has its own server.
    pub(super) strangers: Vec<String>,
    /// Users of any kind, and whoever's.
    pub(super) all: Vec<String>,
    /// What successors have to know of all together, if there are any.
    pub(super) legacy: Option<Legacy>,
}

impl OtherUsers {
    /// Users of incarnations, except `own` and those that write other keys, from the reply to ACL USERS. `wait_max`: where
    /// a name does not say how long to wait, as in releases before this one.
    pub(super) fn read(
        users: &Value,
        fence: &FenceName,
        own: &str,
        wait_max: Duration,
    ) -> Option<OtherUsers> {
        let mut found = OtherUsers::default();
        let prefix = fence.prefix();
        let (mut legacies, mut shrunk, mut ended) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let names = users.elements()?.iter().filter_map(Value::bytes);
        let names = names.filter_map(|name| std::str::from_utf8(name).ok());
        for name in names.filter(|name| is_incarnation(name) && *name != own) {
            // A later release may say more behind what is known here.
            let mut parts = name[PREFIX.len()..].split(':');
            let (cluster, shim) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if fence.leaves_alone(cluster, shim) {
                continue;
            }
            let number = parts.next().unwrap_or_default();
            let wait =
                parts.next().and_then(|wait| wait.parse().ok()).map_or(wait_max, Duration::from_millis);
            let data = parts.next().filter(|data| *data != SEVERAL).map(str::to_owned);
            let kind = parts.next();
            match kind {
                Some(SHRUNK) => _ = shrunk.insert(number, Legacy { wait, data }),
                Some(ENDED) => _ = ended.insert(number, Legacy { wait, data }),
                _ => _ = legacies.insert(number, Legacy { wait, data }),
            }
            match (kind, name.starts_with(&prefix)) {
                (Some(SHRUNK | ENDED), _) => {}
                (_, true) => found.living.push(name.to_owned()),
                (_, false) => found.strangers.push(name.to_owned()),
            }
            found.all.push(name.to_owned());
        }
        // What it has said last; that it has ended, only once it has.
        ended.retain(|number, _| !legacies.contains_key(number));
        let last = legacies.into_iter().map(|(number, legacy)| shrunk.remove(number).unwrap_or(legacy));
        found.legacy = last.chain(ended.into_values()).reduce(Legacy::and);
        Some(found)
    }
}

impl Legacy {
    pub(super) fn and(self, other: Legacy) -> Legacy {
        let data = self.data.filter(|data| other.data.as_ref() == Some(data));
        Legacy { wait: self.wait.max(other.wait), data }
    }
}

/// What `user` may do, as arguments of ACL SETUSER, from the reply to ACL LIST. State and passwords are not
/// among them: the new user has its own.
pub(super) fn rules(list: &Value, user: &[u8]) -> Option<Vec<Bytes>> {
    let lines = list.elements()?.iter().filter_map(Value::bytes);
    for line in lines {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        if words.next() == Some(b"user") && words.next() == Some(user) {
            let is_rule =
                |word: &&[u8]| !matches!(*word, b"on" | b"off" | b"nopass") && !word.starts_with(b"#");
            return Some(words.filter(is_rule).map(|word| line.slice_ref(word)).collect());
        }
    }
    None
}

/// The first of `users` that somebody is connected as, from the text of CLIENT LIST.
pub(super) fn connected<'a>(clients: &'a str, users: &'a [String]) -> Option<&'a str> {
    connections(clients, users).map(|(user, _)| user).next()
}

/// For how long nobody who is connected as one of `users` has sent anything, in whole seconds; none if nobody is.
pub(super) fn silence(clients: &str, users: &[String]) -> Option<Duration> {
    let idle = |line: &str| field(line, "idle=").and_then(|idle| idle.parse().ok()).unwrap_or(0);
    connections(clients, users).map(|(_, line)| Duration::from_secs(idle(line))).min()
}

/// The connections of `users`, each with its line.
fn connections<'a>(clients: &'a str, users: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
    clients.lines().filter_map(|line| {
        let name = field(line, "user=")?;
        Some((users.iter().find(|user| *user == name)?.as_str(), line))
    })
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FenceName, FenceShare, Legacy, OtherUsers, UserKind, connected, rules, silence, user_name};
    use bytes::Bytes;
    use wire::resp::Value;

    fn list(lines: &[&'static str]) -> Value {
        Value::Array(lines.iter().map(|line| Value::Bulk(Bytes::from_static(line.as_bytes()))).collect())
    }

    #[test]
    fn rules_are_copied_without_state_and_passwords() {
        let list = list(&[
            "user cache on #ab12 sanitize-payload ~* resetchannels &news +@all -debug (~x resetchannels +get)",
            "user default on nopass ~* &* +@all",
        ]);
        let text = |user: &str| {
            let rules = rules(&list, user.as_bytes())?;
            Some(
                rules
                    .iter()
                    .map(|rule| String::from_utf8_lossy(rule).into_owned())
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(text("default").as_deref(), Some("~* &* +@all"));
        let cache = "sanitize-payload ~* resetchannels &news +@all -debug (~x resetchannels +get)";
        assert_eq!(text("cache").as_deref(), Some(cache));
        assert_eq!(text("nobody"), None);
    }

    #[test]
    fn a_user_with_a_connection_is_found() {
        let clients =
            "id=3 addr=? name=user=b user=default cmd=client|list\r\nid=4 name= user=a redir=-1\r\n";
        let user = |name: &str| [name.to_owned()];
        assert_eq!(connected(clients, &user("a")), Some("a"));
        assert!(connected(clients, &user("b")).is_none() && connected("", &user("a")).is_none());
    }

    #[test]
    fn who_is_connected_is_as_silent_as_the_connection_that_spoke_last() {
        let clients =
            "id=3 name=idle=1 idle=7 user=a\nid=4 name= idle=3 flags=N user=a\nid=5 idle=0 user=b\n";
        let silent = |name: &str| silence(clients, &[name.to_owned()]).map(|silence| silence.as_secs());
        assert_eq!((silent("a"), silent("b"), silent("c")), (Some(3), Some(0), None));
    }

    fn fence(cluster: &str, shim: &str, share: FenceShare) -> FenceName {
        FenceName { cluster: cluster.to_owned(), shim: shim.to_owned(), share }
    }

    #[test]
    fn users_of_others_are_strangers_unless_they_have_other_slots() {
        let own = fence("demo", "shim-1", FenceShare::Whole);
        assert_eq!(own.prefix(), "distcache:demo:shim-1:");
        assert_eq!(fence("a b:c", "s", FenceShare::Whole).prefix(), "distcache:a%20b%3ac:s:");
        let names = [
            "default",
            "distcache:demo:shim-1:a:500:x",
            "distcache:demo:shim-1:b:60610:x",
            "distcache:demo:shim-10:c:9:x",
            "distcache:other:shim-1:d:70000:y",
            "distcache:other:shim-1:e:10:y:ended",
            "distcache:demo:shim-1:f:500:x:later:more",
        ];
        let user = "distcache:demo:shim-1:b:60610:x";
        let found = OtherUsers::read(&list(&names), &own, user, Duration::ZERO).expect("a list");
        assert_eq!(found.living, [names[1], names[6]], "one that only a later release knows all of lives");
        assert_eq!(found.strangers, [names[3], names[4]]);
        assert_eq!(found.all, [names[1], names[3], names[4], names[5], names[6]]);
        assert_eq!(found.legacy.expect("of all").wait, Duration::from_secs(70));

        let own = fence("demo", "shim-1", FenceShare::Slots(5461, 10_922));
        assert_eq!(own.prefix(), "distcache:demo:shim-1/5461-10922:");
        let names = [
            "distcache:demo:shim-1/5461-10922:a:500:x",
            "distcache:demo:shim-0/0-5460:b:500:x",
            "distcache:other:s/10923-16383:c:500:x",
            "distcache:other:s/0-5461:d:500:x",
            "distcache:demo:shim-2:e:500:x",
        ];
        let found = OtherUsers::read(&list(&names), &own, "", Duration::ZERO).expect("a list");
        assert_eq!(
            (found.living, found.strangers),
            (vec![names[0].to_owned()], vec![names[3].to_owned(), names[4].to_owned()])
        );
    }

    #[test]
    fn who_brings_keys_is_no_stranger_where_the_cluster_is_one() {
        let names = [
            "distcache:demo:shim-3:a:500:x",
            "distcache:demo:shim-1/arriving:b:500:x",
            "distcache:demo:shim-2/arriving:c:500:x",
            "distcache:other:shim-1/arriving:d:500:x",
            "distcache:demo:shim-2/later:e:500:x",
        ];
        let read = |own: &FenceName| {
            let found = OtherUsers::read(&list(&names), own, "", Duration::ZERO).expect("a list");
            let letter = |name: &String| name.split(':').nth(3).map(str::to_owned).expect("a number");
            [found.living, found.strangers].map(|users| users.iter().map(letter).collect::<String>())
        };
        assert_eq!(read(&fence("demo", "shim-3", FenceShare::Whole)), ["a", "de"]);
        let own = fence("demo", "shim-1", FenceShare::Arriving);
        assert_eq!(own.prefix(), "distcache:demo:shim-1/arriving:");
        assert_eq!(read(&own), ["b", "de"]);
        assert_eq!(
            read(&fence("demo", "shim-2", FenceShare::Whole)),
            ["", "acde"],
            "its own keys are not on their way to it"
        );
    }

    #[test]
    fn names_tell_successors_what_they_have_to_know() {
        let own = fence("s", "1", FenceShare::Whole);
        let prefix = own.prefix();
        let micros = Duration::from_micros;
        let legacy = Legacy { wait: micros(1_020_001), data: Some("x".to_owned()) };
        let name = |kind| user_name(&prefix, 0xab, &legacy, kind);
        assert_eq!(name(UserKind::Living), "distcache:s:1:00000000000000ab:1021:x");
        assert_eq!(name(UserKind::Ended), "distcache:s:1:00000000000000ab:1021:x:ended");
        assert_eq!(name(UserKind::Shrunk), "distcache:s:1:00000000000000ab:1021:x:shrunk");
        let several = Legacy { data: None, ..legacy.clone() };
        let name = user_name(&prefix, 0xab, &several, UserKind::Living);
        assert_eq!(name, "distcache:s:1:00000000000000ab:1021:several");
        let check = |names: &[&'static str], expected: Option<(u64, Option<&str>)>| {
            let found = OtherUsers::read(&list(names), &own, "", micros(60_600_000)).expect("a list");
            let expected = expected.map(|(wait, data)| Legacy {
                wait: Duration::from_millis(wait),
                data: data.map(str::to_owned),
            });
            assert_eq!(found.legacy, expected, "{names:?}");
        };
        check(&["default"], None);
        check(&["distcache:s:1:ab:500:x", "distcache:s:1:cd:5051:x:ended"], Some((5051, Some("x"))));
        check(&["distcache:s:1:ab:500:x", "distcache:s:1:cd:20:y"], Some((500, None)));
        check(&["distcache:s:1:ab:0:several:ended"], Some((0, None)));
        check(&["distcache:s:1:ab:5051:several", "distcache:s:1:ab:203:x:shrunk"], Some((203, Some("x"))));
        // Of another one; of one that is gone, and somebody else's name covers what it was waited for.
        check(&["distcache:s:1:ab:5051:x", "distcache:s:1:cd:203:x:shrunk"], Some((5051, Some("x"))));
        check(&["distcache:s:1:cd:203:x:shrunk"], None);
        // It has handed over, or is just about to.
        check(&["distcache:s:1:ab:203:x:shrunk", "distcache:s:1:ab:0:x:ended"], Some((0, Some("x"))));
        check(&["distcache:s:1:ab:0:x:ended", "distcache:s:1:ab:500:x"], Some((500, Some("x"))));
        // As it was before names told it, and what nobody has written here.
        check(&["distcache:s:1:ab", "distcache:s:1:cd:500:x"], Some((60_600, None)));
        check(&["distcache:s:1:ab:-1:x"], Some((60_600, Some("x"))));
        check(&["distcache:s:1:ab::"], Some((60_600, Some(""))));
    }
}
