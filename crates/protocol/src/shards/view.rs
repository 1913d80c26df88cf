//! What one server of a Redis Cluster knows of all of them, read from CLUSTER NODES. Not whether to believe it.

use core::net::{IpAddr, SocketAddr};

/// One server as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) address: SocketAddr,
    pub(super) primary: bool,
    /// Nobody takes it for lost.
    pub(super) alive: bool,
    /// Its epoch: of two that claim a slot, the one with the larger has it.
    pub(super) epoch: u64,
    /// First and last.
    pub(super) slots: Vec<(u16, u16)>,
    /// Slots on their way to or from this server, which only it tells.
    pub(super) moving: Vec<u16>,
}

/// The text of CLUSTER NODES, as `asked` has given it. Servers without an address are left out.
pub(super) fn parse(text: &str, asked: SocketAddr) -> Result<Vec<Seen>, String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let servers = lines.map(|line| server(line, asked).ok_or_else(|| format!("CLUSTER NODES: {line:?}")));
    Ok(servers.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// `None`: no such line is known. `Some(None)`: a server that has no address yet, or no more.
fn server(line: &str, asked: SocketAddr) -> Option<Option<Seen>> {
    let mut words = line.split(' ');
    let (_id, place, flags) = (words.next()?, words.next()?, words.next()?);
    let (_primary, _ping, _pong, epoch, _link) =
        (words.next()?, words.next()?, words.next()?, words.next()?.parse().ok()?, words.next()?);
    let has = |flag: &str| flags.split(',').any(|word| word == flag);
    let mut seen = Seen {
        address: asked,
        primary: has("master"),
        alive: !["fail", "fail?", "noaddr", "handshake"].iter().any(|flag| has(flag)),
        epoch,
        slots: Vec::new(),
        moving: Vec::new(),
    };
    for word in words.filter(|word| !word.is_empty()) {
        match word.strip_prefix('[') {
            Some(moving) => seen.moving.push(moving.split('-').next()?.parse().ok()?),
            None => {
                let (first, last) = word.split_once('-').unwrap_or((word, word));
                let range = (first.parse().ok()?, last.parse().ok()?);
                if range.0 > range.1 || range.1 >= crate::placement::slot::SLOTS {
                    return None;
                }
                seen.slots.push(range);
            }
        }
    }
    let Some(address) = address(place, asked.ip()) else { return Some(None) };
    Some(Some(Seen { address, ..seen }))
}

/// `IP:PORT@BUS,HOSTNAME`, where all but the port may be missing.
fn address(place: &str, asked: IpAddr) -> Option<SocketAddr> {
    endpoint(place.split(['@', ',']).next()?, asked)
}

/// `IP:PORT`; an empty IP is that of the server that says so.
pub(super) fn endpoint(text: &str, asked: IpAddr) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = host.trim_matches(['[', ']']);
    let ip = if host.is_empty() { asked } else { host.parse().ok()? };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::{Seen, parse};

    const ASKED: &str = "127.0.0.1:7000";

    #[test]
    fn servers_slots_and_moves_are_read() {
        let text = "\
            a 127.0.0.1:7001@17001,host myself,master - 0 0 3 connected 0-5460 7000 [7000->-b] [93-<-b]\n\
            b :7002@17002 master,fail? - 0 0 2 connected 5461-6999\n\
            c ::1:7003@17003 slave a 0 0 3 connected\n\
            d :0@0 master,fail,noaddr - 0 0 1 disconnected\n";
        let seen = |address: &str, primary, alive, epoch| Seen {
            address: address.parse().expect("an address"),
            primary,
            alive,
            epoch,
            slots: Vec::new(),
            moving: Vec::new(),
        };
        let expected = [
            Seen {
                slots: vec![(0, 5460), (7000, 7000)],
                moving: vec![7000, 93],
                ..seen("127.0.0.1:7001", true, true, 3)
            },
            Seen { slots: vec![(5461, 6999)], ..seen("127.0.0.1:7002", true, false, 2) },
            seen("[::1]:7003", false, true, 3),
        ];
        assert_eq!(parse(text, ASKED.parse().expect("an address")), Ok(expected.to_vec()));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["-ERR no", "a b c", "a 1:1@1 master - 0 0 1 connected 5-99999", "a 1:1 master - 0 0 x y"]
        {
            assert!(parse(text, ASKED.parse().expect("an address")).is_err(), "{text}");
        }
    }
}
