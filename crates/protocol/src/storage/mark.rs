//! Whose keys a server holds, as every kind of storage has it in words. Not how a mark gets there.

/// What to do about a mark that does not fit.
pub const REMEDY: &str = "keys would be looked for where they are not. Bring the configuration back, or move the keys; --adopt \
                          takes the server over as it is";

/// Which part of which placement a server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedPart {
    /// Tells apart what has different secrets, and says nothing of them; where other software has laid out the keys, its rule in
    /// words without blanks.
    pub id: String,
    /// The cluster's name, for people.
    pub cluster: String,
    /// The names of all shims by their numbers; of a pool the names of its servers, sorted where their order makes no difference.
    pub shims: Vec<String>,
    /// The shim that has the server, or the server.
    pub shim: String,
    /// The names of all shims once keys have been divided anew, while that is under way; none otherwise. What stands at the server
    /// is the one list or the other.
    pub next: Vec<String>,
}

impl MarkedPart {
    /// Why keys that `storage` (a noun with its article) holds would be looked for elsewhere. One server alone has all keys,
    /// whatever the secret.
    pub(in crate::storage) fn difference(&self, found: &MarkedPart, storage: &str) -> Option<String> {
        let list = |names: &[String]| names.join(", ");
        match () {
            () if self.shims.len() == 1 && found.shims.len() == 1 && self.next.is_empty() => None,
            () if self.id != found.id && (self.is_of_pool() || found.is_of_pool()) => Some(format!(
                "{storage} holds keys of cluster {:?} with another [placement]: {}, and it is {} now",
                found.cluster,
                found.rule(),
                self.rule()
            )),
            () if self.id != found.id => {
                Some(format!("{storage} holds keys of cluster {:?} with another secret", found.cluster))
            }
            () if self.is_next(found) => None,
            () if self.shims != found.shims && self.is_of_pool() => Some(format!(
                "{storage} was filled as one of the servers {}, and they are {} now",
                list(&found.shims),
                list(&self.shims)
            )),
            () if self.shims != found.shims => Some(format!(
                "{storage} was filled with [[shim]] entries {}, and they are {} now",
                list(&found.shims),
                list(&self.shims)
            )),
            () if self.shim != found.shim => Some(format!(
                "{storage} holds the keys of {}, and is `storage` of {} now",
                found.shim, self.shim
            )),
            () => None,
        }
    }

    /// Whether `found` is of after keys have been divided anew.
    pub(in crate::storage) fn is_next(&self, found: &MarkedPart) -> bool {
        !self.next.is_empty() && self.next == found.shims && self.shim == found.shim && self.id == found.id
    }

    fn is_of_pool(&self) -> bool {
        self.id.contains(|sign: char| !sign.is_ascii_hexdigit())
    }

    fn rule(&self) -> &str {
        if self.is_of_pool() { &self.id } else { "ring" }
    }

    /// As lines of a key and its value.
    pub(in crate::storage) fn lines(&self) -> [(&'static str, String); 3] {
        let names: Vec<String> = self.shims.iter().map(|name| escaped(name)).collect();
        [
            ("cluster", format!("{} {}", self.id, escaped(&self.cluster))),
            ("shims", names.join(" ")),
            ("shim", escaped(&self.shim)),
        ]
    }

    /// From such lines; `line` gives the value of a key.
    pub(in crate::storage) fn parse<'a>(line: impl Fn(&str) -> Option<&'a str>) -> Option<MarkedPart> {
        let (id, cluster) = line("cluster")?.split_once(' ')?;
        Some(MarkedPart {
            id: id.to_owned(),
            cluster: unescaped(cluster),
            shims: line("shims")?.split(' ').map(unescaped).collect(),
            shim: unescaped(line("shim")?),
            next: Vec::new(),
        })
    }
}

/// Redis takes no blanks in user names, and a colon would let one cluster's prefix be another's.
pub(in crate::storage) fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02x}")),
        }
    }
    text
}

/// A name that `escaped` has written.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
