//! `stats` as a router answers it: its own counters in memcached's format. Not those of a memcached behind it.

use bytes::Bytes;

use super::MEMCACHED_VERSION;

/// What a router counts for `stats` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    pub get_hits: u64,
    pub get_misses: u64,
    pub sets: u64,
    pub touches: u64,
    pub flushes: u64,
}

impl Tallies {
    /// With those of another thread.
    pub fn joined(self, other: Tallies) -> Tallies {
        Tallies {
            get_hits: self.get_hits + other.get_hits,
            get_misses: self.get_misses + other.get_misses,
            sets: self.sets + other.sets,
            touches: self.touches + other.touches,
            flushes: self.flushes + other.flushes,
        }
    }
}

/// What else is in `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStats {
    pub uptime_s: u64,
    pub clients: usize,
    pub clients_opened: u64,
    pub value_bytes_max: usize,
    pub nodes_linked: usize,
    pub shims_linked: usize,
    /// Served by a node's copy.
    pub hits: u64,
    pub threads: u16,
}

impl ServerStats {
    /// With that of another thread.
    pub fn joined(self, other: ServerStats) -> ServerStats {
        ServerStats {
            uptime_s: self.uptime_s.max(other.uptime_s),
            clients: self.clients + other.clients,
            clients_opened: self.clients_opened + other.clients_opened,
            value_bytes_max: self.value_bytes_max,
            nodes_linked: self.nodes_linked.min(other.nodes_linked),
            shims_linked: self.shims_linked.min(other.shims_linked),
            hits: self.hits + other.hits,
            threads: self.threads,
        }
    }
}

/// The answer to `stats`, or to `stats` with an argument.
pub fn text(arguments: &[Bytes], tallies: &mut Tallies, state: &ServerStats) -> Bytes {
    let lines = match arguments.first().map(|argument| &argument[..]) {
        None => general(tallies, state),
        Some(b"reset") => {
            *tallies = Tallies::default();
            return Bytes::from_static(b"RESET\r\n");
        }
        Some(b"settings") => vec![
            ("maxconns", "0".to_owned()),
            ("verbosity", "0".to_owned()),
            ("evictions", "on".to_owned()),
            ("cas_enabled", "yes".to_owned()),
            ("auth_enabled_sasl", "no".to_owned()),
            ("item_size_max", state.value_bytes_max.to_string()),
            ("flush_enabled", "yes".to_owned()),
        ],
        Some(b"detail") => return detail(arguments),
        // A router has no items, slabs or connections that would mean anything there.
        Some(b"items" | b"slabs" | b"sizes" | b"conns" | b"cachedump") => Vec::new(),
        Some(_) => return Bytes::from_static(b"ERROR\r\n"),
    };
    let mut out = String::new();
    for (name, value) in lines {
        out.push_str(&format!("STAT {name} {value}\r\n"));
    }
    out.push_str("END\r\n");
    out.into()
}

fn general(tallies: &Tallies, state: &ServerStats) -> Vec<(&'static str, String)> {
    let Tallies { get_hits, get_misses, sets, touches, flushes } = *tallies;
    vec![
        ("uptime", state.uptime_s.to_string()),
        ("version", MEMCACHED_VERSION.to_owned()),
        ("pointer_size", "64".to_owned()),
        ("curr_connections", state.clients.to_string()),
        ("total_connections", state.clients_opened.to_string()),
        ("cmd_get", (get_hits + get_misses).to_string()),
        ("cmd_set", sets.to_string()),
        ("cmd_flush", flushes.to_string()),
        ("cmd_touch", touches.to_string()),
        ("get_hits", get_hits.to_string()),
        ("get_misses", get_misses.to_string()),
        ("threads", state.threads.to_string()),
        ("distcache_cached_hits", state.hits.to_string()),
        ("distcache_nodes_linked", state.nodes_linked.to_string()),
        ("distcache_shims_linked", state.shims_linked.to_string()),
    ]
}

/// Prefixes are not counted, as in a memcached that was not told to.
fn detail(arguments: &[Bytes]) -> Bytes {
    match arguments.get(1).map(|argument| &argument[..]) {
        Some(b"on" | b"off") => Bytes::from_static(b"OK\r\n"),
        Some(b"dump") => Bytes::from_static(b"END\r\n"),
        _ => Bytes::from_static(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
    }
}
