//! Which of storage's configuration parameters clients may set through DistCache, at all servers at once. Not those on
//! which coherence, durability, memory or access depend: they belong to whoever runs the storage.

/// How values are laid out, how expiry and scripts take their time, what is logged and who is notified.
const PARAMETERS: [&[u8]; 35] = [
    b"active-expire-effort",
    b"activerehashing",
    b"busy-reply-threshold",
    b"dynamic-hz",
    b"hash-max-listpack-entries",
    b"hash-max-listpack-value",
    b"hash-max-ziplist-entries",
    b"hash-max-ziplist-value",
    b"hll-sparse-max-bytes",
    b"hz",
    b"latency-monitor-threshold",
    b"latency-tracking",
    b"latency-tracking-info-percentiles",
    b"lazyfree-lazy-expire",
    b"lazyfree-lazy-server-del",
    b"lazyfree-lazy-user-del",
    b"lazyfree-lazy-user-flush",
    b"list-compress-depth",
    b"list-max-listpack-size",
    b"list-max-ziplist-size",
    b"lua-time-limit",
    b"notify-keyspace-events",
    b"sanitize-dump-payload",
    b"set-max-intset-entries",
    b"set-max-listpack-entries",
    b"set-max-listpack-value",
    b"slowlog-log-slower-than",
    b"slowlog-max-len",
    b"stream-node-max-bytes",
    b"stream-node-max-entries",
    b"tracking-table-max-keys",
    b"zset-max-listpack-entries",
    b"zset-max-listpack-value",
    b"zset-max-ziplist-entries",
    b"zset-max-ziplist-value",
];

pub(super) fn may_be_set(name: &[u8]) -> bool {
    PARAMETERS.iter().any(|parameter| parameter.eq_ignore_ascii_case(name))
}
