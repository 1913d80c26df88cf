//! What a memcached keeps of whose keys it holds: an item that nobody's commands reach, written by the connection on which later
//! incarnations wait. It goes when the items go, and is written again before long where it alone was evicted. No sockets.

use bytes::Bytes;
use wire::memcached::ReplyHead;

use crate::storage::{MarkedPart, REMEDY};

/// The item's key, which commands must not name.
pub(super) const KEY: &[u8] = b"distcache:mark";
/// What asks a server for its mark.
pub const MARK_QUESTION: &str = "mg distcache:mark v\r\n";
/// Its first line, for people.
const TITLE: &str = "DistCache keeps here whose keys this server holds, and writes it again every second.";

impl MarkedPart {
    /// What a memcached holds instead of this part, whose answer to [`MARK_QUESTION`] is, or ends with, `reply`.
    pub fn misfit(&self, reply: &str) -> Option<String> {
        let (_, text) = reply.split_once("VA ")?;
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        match MarkedPart::parse(line) {
            Some(found) => self.difference(&found, "the server"),
            None => Some("the item distcache:mark says nothing that is known here".to_owned()),
        }
    }
}

/// The mark of one server, as it ought to be.
pub(super) struct ItemMark {
    part: MarkedPart,
    /// Whatever the server holds is taken over.
    adopts: bool,
    /// The server takes none, which people were told.
    is_refused: bool,
}

impl ItemMark {
    pub(super) fn new(part: MarkedPart, adopts: bool) -> ItemMark {
        ItemMark { part, adopts, is_refused: false }
    }

    /// The request that writes it.
    pub(super) fn request(&self) -> Bytes {
        let lines = self.part.lines().map(|(key, value)| format!("{key} {value}\n"));
        let text = format!("{TITLE}\n{}", lines.concat());
        Bytes::from(format!("ms distcache:mark {}\r\n{text}\r\n", text.len()))
    }

    /// Takes the answer to the question for it. The error says why the server must not be used, unless somebody adopts it.
    pub(super) fn found(&self, head: ReplyHead, reply: &[u8]) -> Result<(), String> {
        if head != ReplyHead::Value || self.adopts {
            return Ok(());
        }
        let difference = self.part.misfit(&String::from_utf8_lossy(reply));
        difference.map_or(Ok(()), |difference| Err(format!("{difference}: {REMEDY}. flush_all empties it")))
    }

    /// The server has answered the request; what to tell people, who are not told again.
    pub(super) fn written(&mut self, head: ReplyHead, reply: &[u8]) -> Option<String> {
        let is_new = head == ReplyHead::Error && !std::mem::replace(&mut self.is_refused, true);
        is_new.then(|| {
            format!(
                "the server keeps no mark of whose keys it holds ({}): members that are started with other shims or another \
                 secret would not be refused",
                reply.trim_ascii_end().escape_ascii()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::memcached::{ReplyHead, next_reply};

    use super::ItemMark;
    use crate::storage::MarkedPart;

    fn part(id: &str, shims: &[&str], shim: &str) -> MarkedPart {
        let shims = shims.iter().map(|name| (*name).to_owned()).collect();
        MarkedPart {
            id: id.to_owned(),
            cluster: "prod d".to_owned(),
            shims,
            shim: shim.to_owned(),
            next: Vec::new(),
        }
    }

    /// What a server answers that has the mark of this part.
    fn kept(part: MarkedPart) -> (ReplyHead, Bytes) {
        let request = ItemMark::new(part, false).request();
        let text = request.strip_prefix(b"ms distcache:mark ").expect("a request");
        let mut reply = Bytes::from([b"VA ", text].concat());
        let whole = next_reply(&mut reply, 1000).expect("a reply").expect("all of it");
        assert!(reply.is_empty(), "its length is right");
        whole
    }

    #[test]
    fn what_another_part_holds_is_refused_in_words() {
        let check = |(head, reply): (ReplyHead, Bytes), expected: Option<&str>| {
            let own = part("1f", &["a", "shim 2"], "shim 2");
            let found = ItemMark::new(own.clone(), false).found(head, &reply);
            match expected {
                None => assert_eq!(found, Ok(())),
                Some(words) => assert!(
                    found.as_ref().is_err_and(|text| text.contains(words) && text.contains("--adopt")),
                    "{found:?}"
                ),
            }
            assert_eq!(ItemMark::new(own, true).found(head, &reply), Ok(()), "a person has said so");
        };
        check((ReplyHead::Status, Bytes::from_static(b"EN")), None);
        check(kept(part("1f", &["a", "shim 2"], "shim 2")), None);
        check(kept(part("2f", &["a", "shim 2"], "shim 2")), Some("\"prod d\" with another secret"));
        check(kept(part("1f", &["a", "shim 2"], "a")), Some("the keys of a, and is `storage` of shim 2 now"));
        check(
            kept(part("1f", &["shim 2", "a"], "shim 2")),
            Some("entries shim 2, a, and they are a, shim 2"),
        );
        check((ReplyHead::Value, Bytes::from_static(b"VA 2\r\nno")), Some("nothing that is known"));
    }

    #[test]
    fn people_are_told_once_that_it_cannot_be_written() {
        let mut mark = ItemMark::new(part("1f", &["a"], "a"), false);
        assert_eq!(mark.written(ReplyHead::Status, b"HD"), None);
        let told = mark.written(ReplyHead::Error, b"SERVER_ERROR object too large for cache\r\n");
        let told = told.expect("people are told");
        assert!(told.contains("holds (SERVER_ERROR object too large for cache): members"), "{told}");
        assert_eq!(mark.written(ReplyHead::Error, b"SERVER_ERROR object too large for cache\r\n"), None);
    }
}
