//! Who else may still write to a memcached: told by its own list of connections. No sockets.
//!
//! memcached has no users and no names for connections, and closing a socket is no fence: a stopped server executes what
//! is in its buffers when it goes on. But it lists every connection with the address of its other end, and one that is
//! not listed any more has had all that came of it executed. So an incarnation begins once every connection that was
//! there when it came is gone, and a connection that was lost is fenced once its address is gone. It comes with all its
//! connections, and makes another one later only if nobody else is there: who waits does not know of that one.

use std::collections::BTreeSet;

use wire::memcached::ReplyHead;

/// The addresses of the other ends of a server's connections.
pub(super) type Addresses = BTreeSet<String>;

/// `stats conns` as it comes, line by line.
#[derive(Default)]
pub(super) struct Listing {
    /// Number of the connection whose lines come now.
    number: Vec<u8>,
    address: String,
    found: Addresses,
}

impl Listing {
    /// Takes one line; the whole list with the last one.
    pub(super) fn line(&mut self, head: ReplyHead, text: &[u8]) -> Result<Option<Addresses>, String> {
        match head {
            ReplyHead::End => return Ok(Some(std::mem::take(self).found)),
            ReplyHead::Stat => {}
            _ => return Err(format!("`stats conns` is answered {}", text.escape_ascii())),
        }
        let mut words = text.splitn(3, |&byte| byte == b' ').skip(1);
        let (name, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some(colon) = name.iter().position(|&byte| byte == b':') else { return Ok(None) };
        let (number, field) = (&name[..colon], &name[colon + 1..]);
        if number != &self.number[..] {
            number.clone_into(&mut self.number);
            self.address.clear();
        }
        match field {
            // "tcp:127.0.0.1:40000", "tcp6:[::1]:40000", "unix:/path"
            b"addr" => self.address = String::from_utf8_lossy(value).into_owned(),
            // What only listens can write nothing; datagrams are no connection.
            b"state" if value != b"conn_listening" && !self.address.starts_with("udp") => {
                let other_end = self.address.strip_prefix("tcp6:").or(self.address.strip_prefix("tcp:"));
                self.found.insert(other_end.unwrap_or(&self.address).to_owned());
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Whom this process still has to wait for.
#[derive(Default)]
pub(super) struct Fence {
    /// Connections that were there when it came; `None` until it has looked, and again for the next incarnation.
    earlier: Option<Addresses>,
    /// Its own lost ones, as far as they may hold commands.
    lost: Addresses,
    begun: bool,
}

impl Fence {
    /// Nothing is known any more: the next incarnation waits for whoever is there when it comes.
    pub(super) fn restart(&mut self) {
        *self = Fence::default();
    }

    /// Whether the incarnation has begun.
    pub(super) fn begun(&self) -> bool {
        self.begun
    }

    pub(super) fn lose(&mut self, address: String) {
        self.lost.insert(address);
    }

    /// Whether no connection but the present ones can write any more.
    pub(super) fn is_clear(&self) -> bool {
        self.begun && self.lost.is_empty()
    }

    /// The connections it waits for.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = &str> {
        self.earlier.iter().flatten().chain(&self.lost).map(String::as_str)
    }

    /// The server's connections now, of which `own` are this process's. `Err`: the server sees one of them under another
    /// address, so nothing can be told.
    pub(super) fn listed(&mut self, own: &Addresses, present: &Addresses) -> Result<(), String> {
        if let Some(missing) = own.difference(present).next() {
            return Err(format!(
                "the server does not list the connection from {missing}: something between translates addresses, so that \
                 earlier connections cannot be told from this one; let the shim reach memcached directly"
            ));
        }
        let earlier = self.earlier.get_or_insert_with(|| present.difference(own).cloned().collect());
        earlier.retain(|address| present.contains(address));
        self.lost.retain(|address| present.contains(address));
        self.begun |= earlier.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(text: &str) -> Addresses {
        let mut listing = Listing::default();
        for line in text.lines() {
            let head = if line == "END" { ReplyHead::End } else { ReplyHead::Stat };
            if let Some(found) = listing.line(head, line.as_bytes()).expect("a listing") {
                return found;
            }
        }
        panic!("no end")
    }

    fn addresses(all: &[&str]) -> Addresses {
        all.iter().map(|address| (*address).to_owned()).collect()
    }

    #[test]
    fn connections_are_told_from_listeners() {
        let found = listing(
            "STAT 23:addr tcp:127.0.0.1:11211\nSTAT 23:state conn_listening\nSTAT 23:secs_since_last_cmd 5\n\
             STAT 26:addr tcp:127.0.0.1:40000\nSTAT 26:listen_addr tcp:127.0.0.1:11211\nSTAT 26:state conn_read\n\
             STAT 27:addr tcp6:[::1]:40001\nSTAT 27:listen_addr tcp6:[::]:11211\nSTAT 27:state conn_parse_cmd\nEND",
        );
        assert_eq!(found, addresses(&["127.0.0.1:40000", "[::1]:40001"]));
    }

    #[test]
    fn an_incarnation_begins_when_all_that_were_there_are_gone() {
        let mut fence = Fence::default();
        fence.listed(&addresses(&["own"]), &addresses(&["own", "a", "b"])).expect("it is listed");
        assert!(!fence.begun());
        fence.listed(&addresses(&["own"]), &addresses(&["own", "b", "newer"])).expect("it is listed");
        assert_eq!(fence.waits_for().collect::<Vec<_>>(), ["b"]);
        fence.listed(&addresses(&["own"]), &addresses(&["own", "newer"])).expect("it is listed");
        assert!(fence.is_clear(), "who came later waits for this one");
    }

    #[test]
    fn a_lost_connection_is_fenced_when_it_is_not_listed_any_more() {
        let mut fence = Fence::default();
        fence.listed(&addresses(&["own"]), &addresses(&["own"])).expect("it is listed");
        fence.lose("line".to_owned());
        fence.listed(&addresses(&["own"]), &addresses(&["own", "line"])).expect("it is listed");
        assert!(fence.begun() && !fence.is_clear());
        fence.listed(&addresses(&["own"]), &addresses(&["own"])).expect("it is listed");
        assert!(fence.is_clear());
    }

    #[test]
    fn of_two_that_come_at_once_not_both_begin() {
        let (mut one, mut two) = (Fence::default(), Fence::default());
        let both = addresses(&["one", "two"]);
        one.listed(&addresses(&["one"]), &both).expect("it is listed");
        two.listed(&addresses(&["two"]), &both).expect("it is listed");
        assert!(!one.begun() && !two.begun());
        // The first comes again; the second has seen it go.
        one.restart();
        one.listed(&addresses(&["one again"]), &addresses(&["one again", "two"])).expect("it is listed");
        two.listed(&addresses(&["two"]), &addresses(&["one again", "two"])).expect("it is listed");
        assert!(two.begun() && !one.begun());
    }

    #[test]
    fn an_address_that_is_translated_on_the_way_is_noticed() {
        let error = Fence::default()
            .listed(&addresses(&["own"]), &addresses(&["other"]))
            .expect_err("it is not listed");
        assert!(error.contains("translates addresses"), "{error}");
    }
}
