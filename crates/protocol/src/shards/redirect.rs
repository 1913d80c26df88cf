//! Replies by which a server of a Redis Cluster turns a command away that it has not executed. Not where it goes then.

use core::net::SocketAddr;

use bytes::Bytes;

use super::view::endpoint;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another server has the slot.
    Moved,
    /// Another server has these keys of the slot already, or will.
    Ask(SocketAddr),
    /// Some of the keys are here and some there.
    TryAgain(Bytes),
    /// Nobody serves the slot now.
    Down(Bytes),
}

/// Whether commands that went out together were turned away, all of them. `transaction`: from MULTI to EXEC, of which
/// the last reply decides; any others are one command, or reads.
pub(super) fn redirect(replies: &[Bytes], transaction: bool, server: SocketAddr) -> Option<Redirect> {
    let one = |reply: &Bytes| of(reply, server);
    if !transaction {
        return replies.iter().find_map(one);
    }
    let (exec, queued) = replies.split_last()?;
    one(exec).or_else(|| queued.iter().find_map(one).filter(|_| exec.starts_with(b"-EXECABORT")))
}

fn of(reply: &Bytes, server: SocketAddr) -> Option<Redirect> {
    if reply.first() != Some(&b'-') {
        return None;
    }
    let text = std::str::from_utf8(reply).ok()?;
    let mut words = text[1..].trim_end().split(' ');
    match words.next()? {
        "MOVED" => Some(Redirect::Moved),
        "ASK" => Some(Redirect::Ask(endpoint(words.nth(1)?, server.ip())?)),
        "TRYAGAIN" => Some(Redirect::TryAgain(reply.clone())),
        "CLUSTERDOWN" => Some(Redirect::Down(reply.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Redirect, redirect};

    fn check(replies: &[&'static str], transaction: bool, expected: Option<Redirect>) {
        let replies: Vec<Bytes> = replies.iter().map(|reply| Bytes::from_static(reply.as_bytes())).collect();
        let server = "127.0.0.1:7000".parse().expect("an address");
        assert_eq!(redirect(&replies, transaction, server), expected, "{replies:?}");
    }

    #[test]
    fn replies_that_turn_away_are_told_from_others() {
        let ask = |address: &str| Some(Redirect::Ask(address.parse().expect("an address")));
        check(&["+OK\r\n"], false, None);
        check(&["$9\r\n-MOVED 1 \r\n"], false, None);
        check(&["-ERR MOVED\r\n"], false, None);
        check(&["-MOVED 1 127.0.0.1:7001\r\n"], false, Some(Redirect::Moved));
        check(&["-ASK 1 127.0.0.1:7001\r\n"], false, ask("127.0.0.1:7001"));
        check(&["-ASK 1 :7001\r\n"], false, ask("127.0.0.1:7001"));
        check(&[":-2\r\n", "-ASK 1 [::1]:7001\r\n"], false, ask("[::1]:7001"));
        let down = Bytes::from_static(b"-CLUSTERDOWN Hash slot not served\r\n");
        check(&["-CLUSTERDOWN Hash slot not served\r\n"], false, Some(Redirect::Down(down)));
    }

    #[test]
    fn a_transaction_was_turned_away_only_if_nothing_of_it_was_done() {
        check(&["+OK\r\n", "+QUEUED\r\n", "*1\r\n-MOVED 1 a:1\r\n"], true, None);
        check(&["+OK\r\n", "-MOVED 1 127.0.0.1:7001\r\n", "-EXECABORT no\r\n"], true, Some(Redirect::Moved));
        check(&["+OK\r\n", "+QUEUED\r\n", "-MOVED 1 127.0.0.1:7001\r\n"], true, Some(Redirect::Moved));
        check(&["+OK\r\n", "-ERR wrong\r\n", "-EXECABORT no\r\n"], true, None);
    }
}
