//! What a shim counts, row by row, and what it tracks now. Not how it is shown.

use wire::Key;

use super::Shim;
use crate::statistics::statistics;
use crate::time::Time;

statistics! {
    /// Totals since the start, and what there is now.
    pub struct ShimStatistics {
        requests: counter("requests", "Requests received", "what reaches this storage server's shim"),
        load: gauge("requests/s", "Requests in the sliding last second",
            "should be far flatter over the shims than the requests; one that stands out has [a hot key that is \
             not cached](runbooks.md#a-hot-key-is-not-cached), or hot writes"),
        storage_reads: counter("commands", "Reads sent to storage", "reads that caches did not take"),
        storage_writes: counter("commands", "Writes sent to storage", "all writes: caches take none of them"),
        /// Before reads are refused.
        storage_limit: gauge("commands", "Commands that storage may have at a time",
            "falls: the storage server is asked for more than it can do, or is slow"),
        /// One of the same view.
        reads_joined: counter("reads", "Reads answered together with another one",
            "reads saved because another one of the same key was under way"),
        large_replies: counter("replies", "Replies passed on in parts", "replies of more than a MiB"),
        /// On a connection of their own.
        large_replies_skipped: counter("replies", "Large replies skipped, to be asked for again in parts",
            "a steady rate: nobody expected them to be large, and storage sent them twice"),
        large_replies_cut: counter("replies", "Large replies cut off because nobody took them",
            "any: clients took nothing for ten seconds, and others needed their place"),
        storage_errors: counter("commands", "Commands lost with a storage connection",
            "any: their outcome may be unknown to their clients"),
        incarnations: counter("states", "States of storage taken over",
            "more than one: it restarted or failed over, and all copies went"),
        /// As one that is stopped does, but it stands by.
        retreats: counter("times", "Times that this process has handed over because routers reach another one of its shim and not it",
            "any: the network between this machine and the routers is broken"),
        refused: counter("commands", "Commands refused because storage is down or the key is another shim's",
            "any: clients see errors"),
        /// INVs sent, repeats included.
        invalidations: counter("writes", "Writes that invalidated copies", "writes of keys that had copies"),
        /// One for each key and node.
        invalidated_copies: counter("copies", "Copies invalidated by writes",
            "`invalidated_copies` / `invalidations` is how many copies such a write waits for"),
        near_invalidated_copies: counter("copies", "Near copies of routers invalidated by writes",
            "part of `invalidated_copies`; a large part: routers hold what is written often"),
        coherence_messages: counter("messages", "INV sent and ACK received",
            "two per invalidated copy; clearly more: messages are lost or nodes do not answer"),
        repeats: counter("messages", "INV and REVOKE sent again",
            "a rise: nodes do not acknowledge, and writes wait for them"),
        commits: counter("messages", "COMMIT sent", "new values sent with a write"),
        copies: gauge("copies", "Copies in the directory", "what nodes hold of this server's keys"),
        elastic_keys: gauge("keys", "Keys with more places than one per layer",
            "keys that take more than half of a node; each write of one waits for all of its copies"),
        copies_most: gauge("copies", "Places of the key that has most, if it has more than one per layer",
            "as many as there are nodes: one key takes nearly everything that the cluster can serve"),
        raises: counter("times", "Times that a key got more places", "heat that comes; a steady rate: it comes and goes"),
        lowerings: counter("times", "Times that a key got fewer places", "heat that is over, or keys that are written more"),
        sessions: gauge("sessions", "Sessions with nodes and with routers that hold near copies", "one for each that has copies"),
        near_sessions: gauge("sessions", "Sessions with routers that hold near copies",
            "one per router with `[near] objects_max` above 0 that has copies"),
        near_shunned: counter("times", "Times that a router left an INV unanswered for 50 ms and is granted nothing for 10 s",
            "a rise: a router is overloaded or stops now and then, and writes have waited for it"),
        grants: counter("leases", "Leases granted or renewed",
            "none while there are sessions: nodes cannot keep their copies"),
        fills: counter("fetches", "Fetches answered", "fills that a node may keep as a copy"),
        fills_ungranted: counter("fetches", "Fetches answered without a grant", "as at nodes"),
        offers: counter("keys", "Hot keys offered to nodes", "hot keys that reached storage"),
        revokes: counter("sessions", "Sessions revoked for a barrier",
            "a rise: FLUSHALL, scripts without declared keys and their like empty the cache each time"),
        leases_lost: counter("leases", "Leases that ran out although their nodes had copies",
            "a rise: nodes pause or are cut off; each held up writes for up to `lease_ms`"),
        queue_depth: gauge("commands", "Commands that wait for their keys",
            "grows and stays: writes wait for a lease, or storage is slow"),
        waiting: gauge("requests", "Requests that wait for room at storage",
            "above 0 for long: storage is asked for more than it can do; more waits at the routers \
             (`distcache_router_waiting`)"),
        waited: counter("requests", "Requests that had to wait for room at storage", "as above"),
        subscriptions: gauge("channels, patterns", "Channels and patterns subscribed to at storage",
            "subscribed to at storage, each counted once"),
        /// One for each router.
        messages_delivered: counter("messages", "Published messages sent to routers",
            "published messages, each counted once per router"),
        feed_losses: counter("times", "Times that storage ceased to report changes",
            "a rise: the connection that reports changes breaks; every copy is dropped each time"),
        feed_changes: counter("keys", "Keys that storage reported as changed", "how much others write"),
        feed_flushes: counter("times", "Times that storage reported that any key may have changed",
            "each drops every copy"),
        stale_periods: counter("times", "Times that storage was gone and copies that may be stale were served",
            "any: storage was away, and `stale_if_error_ms` has hidden it from readers of its prefixes"),
        stale_milliseconds: gauge("ms", "For how long storage is gone and copies that may be stale are served",
            "above 0: bring storage back; when `stale_if_error_ms` is over its prefixes' reads fail, too") as "stale_ms",
        feed_delay_microseconds: gauge("µs", "How late reports of changes are at most",
            "near `bounded_staleness_ms_max`: storage reports too slowly") as "feed_delay_us",
        staleness_microseconds: gauge("µs", "How old an unheard change may be",
            "mode `bounded`: how old what clients read may be now") as "staleness_us",
        staleness_longest_microseconds: gauge("µs", "How old one may have been, since start",
            "never above `bounded_staleness_ms_max`") as "staleness_longest_us",
        foreign_writes: counter("keys", "Keys with copies that others than DistCache have changed; before memcached, their changes of whatever keys",
            "any: [somebody else writes to this server](security.md#others-who-write), which strict mode rules out; \
             the copies are dropped within a second"),
        foreign_connections: gauge("connections", "Connections that have written to storage within the last minute, and are none of \
            DistCache's; before memcached, that were there after a change by others", "any: [who they are](security.md#others-who-write) is in `distcache status`"),
        storage_evicts: gauge("0 or 1", "Storage drops keys by itself when it is full",
            "1: `CONFIG SET maxmemory-policy noeviction`, or copies of what it drops are served for a moment"),
        storage_unfenced: gauge("0 or 1", "Storage refuses what keeps earlier processes and their lost connections from writing to it",
            "1: mode `bounded` follows what they write like what others write ([managed servers](managed.md)); \
             `distcache doctor` says what is refused"),
        forgotten_reads: counter("keys", "Keys with copies that storage reported because it remembers no more of them",
            "a steady rate: raise `tracking-table-max-keys` at the Redis server"),
        read_feed_losses: counter("times", "Times that storage ceased to report changes of keys with copies",
            "a rise: connections to storage break; every copy is dropped each time"),
        observed_reads: counter("reads", "Reads while observing only", "while `observe_only`"),
        observed_hits: counter("reads", "Reads that copies would have answered",
            "`observed_hits` / `observed_reads` is the hit ratio that caches would have"),
        observed_keys: gauge("keys", "Keys that would have copies now", "how many copies that would take"),
        purged_copies: counter("copies", "Copies dropped by purges and stricter policies",
            "what purges and stricter policies have dropped"),
        tracked_keys: gauge("keys", "Keys that routers track",
            "near `tracking_keys_max`: the oldest are forgotten, and clients drop them"),
        changes_told: counter("messages", "Messages to routers about keys that they track",
            "what clients that cache are told"),
        /// Nothing of them is granted until a fence.
        quarantined: gauge("keys", "Keys whose last write has an unknown outcome",
            "above 0 for more than seconds: storage does not answer reads of keys whose last write has an unknown \
             outcome"),
        hold_milliseconds: gauge("ms", "How long writes are still held, for leases of earlier processes",
            "above 0 after a start of the shim or of storage: [writes are slow](runbooks.md#writes-are-slow)") as "hold_ms",
        overflowed: shed("rate",
            "with `overload = \"refuse\"`, the same as for nodes, at a shim with a `rate_max`; fills may always \
             wait for 250 ms"),
        sheds: shed("queue",
            "a command beyond `blocking_max`; with `overload = \"refuse\"`, beyond `shim_queue_max` or \
             `key_queue_max`"),
        expired: shed("waited-too-long",
            "a command that was not begun within `queue_ms_max`: no room at storage, or other commands on its key; \
             what it waited at its router counts"),
        sheds_storage: shed("storage-limit",
            "with `overload = \"refuse\"`, a command beyond what storage can do in 100 ms ([decision \
             13](../decisions/0013-storage-limit-from-commands-that-queued.md)); fills of hot keys have a quarter \
             more room"),
        unexpected: counter("messages", "Messages that a shim must not get or cannot read",
            "a steady rate: a peer's version or an intruder"),
    }
}

impl Shim {
    /// Totals only, at no cost.
    pub fn statistics(&self) -> ShimStatistics {
        self.statistics
    }

    /// The statistics with what there is now.
    pub fn measured(&mut self, now: Time) -> ShimStatistics {
        let load = u64::from(self.meter.load(now, 1000));
        let feed = self.feed(now);
        ShimStatistics {
            load,
            storage_limit: u64::from(self.storage_limit.limit()),
            elastic_keys: self.elastic.raised() as u64,
            copies_most: self.elastic.places_most() as u64,
            sessions: self.sessions() as u64,
            near_sessions: self.holders.near_sessions() as u64,
            queue_depth: self.pending() as u64,
            waiting: self.waiting() as u64,
            subscriptions: self.subscriptions() as u64,
            stale_milliseconds: self.stale_for(now).unwrap_or_default().as_millis() as u64,
            feed_delay_microseconds: feed.delay.as_micros() as u64,
            staleness_microseconds: feed.staleness.as_micros() as u64,
            staleness_longest_microseconds: feed.staleness_longest.as_micros() as u64,
            hold_milliseconds: self.hold(now).as_millis() as u64,
            foreign_connections: self.foreign_writers().connections.len() as u64,
            storage_evicts: u64::from(self.foreign_writers().eviction.is_some()),
            storage_unfenced: u64::from(self.is_unfenced()),
            observed_keys: self.observed() as u64,
            tracked_keys: self.tracked() as u64,
            quarantined: self.quarantined.len() as u64,
            ..self.statistics
        }
    }

    /// The hottest keys among those that clients read here, with their requests per second.
    pub fn hottest(&self, now: Time, count: usize) -> Vec<(&Key, u32)> {
        self.hottest.top(now, count)
    }

    /// Copies that the directory knows of.
    pub fn copies(&self) -> usize {
        self.statistics.copies as usize
    }

    /// Holders whose lease runs.
    fn sessions(&self) -> usize {
        self.holders.iter().filter(|link| link.session.id().is_some()).count()
    }

    /// Requests that wait to be begun.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Commands queued or at storage.
    pub fn pending(&self) -> usize {
        self.tickets.len() + self.operations.len() + self.joined
    }

    /// Channels and patterns that routers have clients for.
    pub fn subscriptions(&self) -> usize {
        self.topics.len()
    }
}
