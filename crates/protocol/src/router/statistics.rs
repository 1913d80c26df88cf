//! What a router counts, row by row, latencies besides. Not how they are published.

use std::time::Duration;

use crate::statistics::statistics;

statistics! {
    /// Totals since the start, and what there is now.
    pub struct RouterStatistics {
        requests: counter("commands", "Commands received from clients", "traffic at the front door"),
        /// Parts of fan-outs count one each, here and in the next ones.
        reads_to_nodes: counter("reads", "Reads sent to nodes",
            "reads of keys that are known to be cached; with `requests` it says how much the caches are asked"),
        reads_to_shims: counter("reads", "Reads sent to shims", "reads of cold keys"),
        /// All commands but cacheable reads.
        writes: counter("commands", "Writes sent to shims", "everything that may change something; it goes to shims"),
        hits: counter("replies", "Replies that came from a copy",
            "`hits` / (`reads_to_nodes` + `reads_to_shims` + `near_hits`) is the hit ratio that clients see. Low: `objects_max` \
             is small, the load is not skewed, or [the hot key is not \
             cached](runbooks.md#a-hot-key-is-not-cached)"),
        near_hits: counter("replies", "Replies that came from a copy of this router's own",
            "part of `hits`, without a read that is sent; 0 with `[near] objects_max` above 0: no key is read often enough here, or \
             all are written often"),
        near_objects: gauge("keys", "Keys with copies of this router's own", "at `[near] objects_max`: more keys are hot here"),
        near_fetches: counter("fetches", "Copies asked for by this router", "many for each of `near_hits`: raise `[near] heat_min`"),
        near_invalidations: counter("copies", "Copies of this router invalidated by writes",
            "more than a sixteenth of `near_hits`: writes pay for what reads hardly use"),
        /// The sum of those that are counted by their reason.
        errors: counter("replies", "Error replies made by the router",
            "any steady rate: clients see errors that storage did not make. The `rule` of \
             `distcache_router_sheds_total` and the log say why"),
        /// Unknown, malformed, or not possible here.
        refusals: counter("commands", "Commands refused as such by the router",
            "a rise: an application asks for what cannot be"),
        commands_lost: counter("commands", "Commands under way to a shim when it was lost",
            "any: what became of writes is unknown"),
        handovers: counter("times", "Times that a shim has said that it hands over to another process",
            "once for each shim that is stopped: its commands wait for the next process and do not fail"),
        transactions_unwatched: counter("transactions", "EXECs that ran nothing because their WATCH was lost",
            "a steady rate: shims or their storage are lost while clients watch keys, and these try again"),
        error_replies: counter("replies", "Error replies from storage or shims",
            "a rise: storage refuses what applications do, or is full"),
        /// Commands before authentication included.
        denials: counter("commands", "Commands that their user may not run",
            "a rise: an application has a user that is not allowed what it does; `ACL LOG` on this router"),
        users_differing: gauge("users", "Users that are not the same at all storage servers",
            "above 0: with `users = \"storage\"` the servers do not agree on users; mend them there"),
        authentication_failures: counter("attempts", "Wrong users and passwords",
            "a rise: an old password somewhere, or somebody guesses"),
        retries: counter("reads", "Reads asked again because somebody was busy",
            "a rise: members are busy; reads find another place"),
        /// Or hung.
        reads_lost: counter("reads", "Reads asked again because their node was lost",
            "rises once when a node is lost; a steady rate: a link breaks again and again"),
        /// It hung or refused everything.
        breakers_opened: counter("times", "Times that a node was left alone",
            "a rise: a node hangs or refuses everything"),
        breakers_open: gauge("nodes", "Nodes that are left alone",
            "above 0 for more than seconds: look at the node; its reads go elsewhere"),
        late_replies: counter("replies", "Replies that nobody waits for",
            "a steady rate: members answer too late, or one makes them up"),
        load: gauge("commands/s", "Commands in the last second",
            "routers beside each other should have equal parts: it is the load balancer's work"),
        clients_accepted: counter("connections", "Clients accepted",
            "a fast rise: clients do not keep their connections") as "clients_total",
        queue_depth: gauge("commands", "Commands sent to nodes and shims that have no reply",
            "grows and stays: something behind is slow; compare `distcache_shim_storage_pending`"),
        waiting: gauge("commands", "Commands that wait for room at a node or shim",
            "above 0 for long: a storage server, or a node with a rate, is asked for more than it can do; clients \
             wait, and after `queue_ms_max` get `-BUSY`"),
        waited: counter("commands", "Commands that had to wait for room at a node or shim",
            "a steady rate: as above"),
        ordered_waits: counter("commands", "Commands that waited for earlier ones of their client",
            "near requests: pipelines gain little"),
        subscriptions: gauge("channels, patterns", "Channels and patterns that clients have",
            "what clients are subscribed to"),
        tracked_keys: gauge("keys", "Keys that clients keep in caches of their own",
            "near `tracking_keys_max`: the oldest are forgotten, and clients drop them"),
        large_replies: counter("replies", "Replies that came in parts",
            "replies of more than a MiB to a read of one key"),
        large_replies_broken: counter("clients", "Clients closed in the middle of a reply",
            "any: storage, a shim or a link was lost in the middle of a large reply"),
        pushes: counter("messages", "Published messages given to clients", "what subscribers get"),
        slow_commands: counter("commands", "Commands that the slow log has taken",
            "a rise: `SLOWLOG GET` or `DISTCACHE SLOWLOG` on this router tells where the time goes"),
        learned: gauge("keys", "Keys believed to be cached",
            "at `learned_max`: more keys are hot than the router remembers; raise it"),
        sheds: shed("busy", "a command beyond the requests that a router may have in flight"),
        turns_expired: shed("waited-too-long",
            "a command for which there was no room at a node or shim for `queue_ms_max`"),
        unavailable: shed("unavailable", "a command for a shim that is not linked"),
        exhausted: shed("everybody-busy", "a read that every place able to answer it has refused"),
        retries_denied: shed("retry-budget",
            "a retry: only a tenth of the reads may be asked again because somebody was busy"),
        closed_unread: shed("slow_client",
            "a client that does not read its replies, and sends more than `client_input_bytes_max` or lets 256 \
             times `output_bytes_max` wait"),
        closed_for_memory: shed("client_memory",
            "the clients that hold the most, closed because all of them together held more than \
             `client_buffers_bytes_max`"),
        closed_unauthenticated: shed("unauthenticated",
            "a client that has not shown who it is within `authentication_ms_max`"),
    }
}

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// Log-linear histogram of microseconds, 16 steps for each power of two: within 6.25 %, a few ns per record.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; BUCKETS] }
    }
}

impl Latencies {
    pub fn record(&mut self, latency: Duration) {
        self.counts[bucket(latency.as_micros() as u64)] += 1;
    }

    /// Gives every filled step as (microseconds, count) and starts anew.
    pub fn drain(&mut self, mut each: impl FnMut(u64, u64)) {
        for (index, count) in self.counts.iter_mut().enumerate() {
            if *count > 0 {
                each(floor(index), std::mem::take(count));
            }
        }
    }
}

fn bucket(microseconds: u64) -> usize {
    if microseconds < SUB as u64 {
        return microseconds as usize;
    }
    let shift = microseconds.ilog2() - SUB_BITS;
    (shift as usize + 1) * SUB + ((microseconds >> shift) as usize & (SUB - 1))
}

fn floor(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = bucket / SUB - 1;
    ((SUB + bucket % SUB) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_the_step_that_starts_at_or_below_it() {
        for value in (0..5_000).chain([1 << 20, (1 << 40) + 12_345, u64::MAX]) {
            let index = bucket(value);
            assert!(floor(index) <= value);
            assert!(value - floor(index) <= value / 16, "{value} is too far from {}", floor(index));
        }
    }

    #[test]
    fn draining_empties() {
        let mut latencies = Latencies::default();
        latencies.record(Duration::from_micros(7));
        latencies.record(Duration::from_micros(7));
        let mut seen = Vec::new();
        latencies.drain(|value, count| seen.push((value, count)));
        assert_eq!(seen, [(7, 2)]);
        latencies.drain(|_, _| panic!("it was drained"));
    }
}
