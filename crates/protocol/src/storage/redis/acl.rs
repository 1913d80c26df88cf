//! Names and rules of the ACL users that fence incarnations from each other. Not when they are made.

use bytes::Bytes;
use wire::resp::Value;

/// What the users of every incarnation of one shim begin with.
pub(super) fn user_prefix(cluster: &str, shim: &str) -> String {
    format!("distcache:{}:{}:", escaped(cluster), escaped(shim))
}

/// Redis takes no blanks in user names, and a colon would let one cluster's prefix be another's.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
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

/// Users of any incarnation of the shim with this prefix, except `own`, from the reply to ACL USERS.
pub(super) fn others(users: &Value, prefix: &str, own: &str) -> Option<Vec<Bytes>> {
    let names = users.elements()?.iter().filter_map(Value::bytes);
    let is_other = |name: &&Bytes| name.starts_with(prefix.as_bytes()) && name.as_ref() != own.as_bytes();
    Some(names.filter(is_other).cloned().collect())
}

/// Whether anybody is connected as one of `users`, from the text of CLIENT LIST.
pub(super) fn connected(clients: &str, users: &[Bytes]) -> bool {
    let names =
        clients.lines().flat_map(|line| line.split(' ')).filter_map(|word| word.strip_prefix("user="));
    names.into_iter().any(|name| users.iter().any(|user| user.as_ref() == name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{connected, others, rules, user_prefix};
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
        let user = |name: &'static str| [Bytes::from_static(name.as_bytes())];
        assert!(
            connected(clients, &user("a")) && !connected(clients, &user("b")) && !connected("", &user("a"))
        );
    }

    #[test]
    fn users_of_other_shims_and_clusters_are_left_alone() {
        let prefix = user_prefix("demo", "shim-1");
        assert_eq!(prefix, "distcache:demo:shim-1:");
        assert_eq!(user_prefix("a b:c", "s"), "distcache:a%20b%3ac:s:");
        let users = list(&[
            "default",
            "distcache:demo:shim-1:a",
            "distcache:demo:shim-1:b",
            "distcache:demo:shim-10:c",
        ]);
        let found = others(&users, &prefix, "distcache:demo:shim-1:b").expect("a list");
        assert_eq!(found, [Bytes::from_static(b"distcache:demo:shim-1:a")]);
    }
}
