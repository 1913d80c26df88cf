//! The DISTCACHE command as far as the router answers it itself. What concerns copies goes to the shims.

use bytes::Bytes;
use wire::resp::Command;

use crate::router::front::{Front, hot_keys};
use crate::router::{replies, words};

const HELP: [&str; 16] = [
    "DISTCACHE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "HOTKEYS [COUNT <count>]",
    "    Show the hottest keys of the cluster (default 10): requests per second, share of all requests,",
    "    and the layers that cache them.",
    "PURGE <key>",
    "PURGE KEY <key>",
    "    Drop the cached copies of a key, not its data. Return how many there were.",
    "PURGE PREFIX <prefix>",
    "    The same for all keys that begin with the prefix.",
    "PURGE ALL",
    "    The same for all keys.",
    "SLOWLOG [<count>]",
    "    As SLOWLOG GET, with how long each command waited for earlier ones of its client, who was",
    "    asked, whether caches had the answer, and how long router, nodes and shims took.",
    "HELP",
    "    Print this help.",
];

pub(crate) fn answer(front: &Front, client: u32, command: &Command) -> Bytes {
    let resp3 = front.sessions.get(client).is_some_and(|session| session.resp3);
    if words::is(command, 1, "HELP") {
        return replies::lines(&HELP);
    }
    if words::is(command, 1, "HOTKEYS") {
        return hot_keys::answer(front.hot.as_deref(), resp3, command);
    }
    replies::error("ERR wrong number of arguments for 'distcache' command")
}

#[cfg(test)]
mod tests {
    use crate::router::{ClientId, ClusterHotKey, Effect, Input, Router, RouterConfig};
    use crate::time::Time;
    use wire::resp::Command;

    fn ask(router: &mut Router, args: &[&str]) -> String {
        let mut effects = Vec::new();
        let command = Command::from_args(args);
        router.step(Time(0), Input::Command { client: ClientId(0), command }, &mut effects);
        match effects.pop() {
            Some(Effect::Reply { bytes, .. }) => String::from_utf8_lossy(&bytes).replace("\r\n", " "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn hot_keys_are_told_in_both_protocols() {
        let mut router = Router::new(RouterConfig::default());
        router.step(Time(0), Input::Opened { client: ClientId(0) }, &mut Vec::new());
        let hotkeys = ["DISTCACHE", "HOTKEYS"];
        assert!(ask(&mut router, &hotkeys).starts_with("-ERR DistCache: this router has not heard"));
        let hot = |key: &'static [u8]| ClusterHotKey {
            key: key.into(),
            rate: 7,
            share: 0.5,
            layers: vec!["leaf".into()],
        };
        router.step(Time(0), Input::HotKeys(vec![hot(b"a\0"), hot(b"b")]), &mut Vec::new());
        let one = ["distcache", "hotkeys", "count", "1"];
        let resp2 = "*1 *8 $3 key $2 a\0 $4 rate :7 $5 share $3 0.5 $6 cached *1 $4 leaf ";
        assert_eq!(ask(&mut router, &one), resp2);
        assert!(ask(&mut router, &hotkeys).starts_with("*2 *8 "));
        ask(&mut router, &["HELLO", "3"]);
        let resp3 = "*1 %4 $3 key $2 a\0 $4 rate :7 $5 share ,0.5 $6 cached *1 $4 leaf ";
        assert_eq!(ask(&mut router, &one), resp3);
        let none = ask(&mut router, &["DISTCACHE", "HOTKEYS", "COUNT", "0"]);
        assert_eq!(none, "-ERR COUNT must be a positive integer ");
        assert_eq!(ask(&mut router, &["DISTCACHE", "HOTKEYS", "LIMIT", "1"]), "-ERR syntax error ");
    }
}
