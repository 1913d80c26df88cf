"""redis-py with its client-side cache: replies are kept, and dropped when somebody else writes."""

import sys
import time

import redis
import redis.connection
from redis.cache import CacheConfig

# The servers of these tests are older than those that redis-py asks for.
redis.connection.CacheProxyConnection.MIN_ALLOWED_VERSION = "6.0.0"
PORT = int(sys.argv[1])


def eventually(what, holds):
    """Invalidations arrive with the next read of the connection."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, what


def main():
    reader = redis.Redis(port=PORT, protocol=3, cache_config=CacheConfig(max_size=100), decode_responses=True)
    writer = redis.Redis(port=PORT, decode_responses=True)
    cache = reader.get_cache()
    for number in range(20):
        key = f"py:{number}"
        writer.set(key, "one")
        assert reader.get(key) == "one"
        assert reader.get(key) == "one"
        writer.set(key, "two")
        eventually("the new value is read", lambda: reader.get(key) == "two")
    assert cache.size == 20, cache.size
    writer.hset("py:hash", mapping={"a": "1"})
    assert reader.hgetall("py:hash") == {"a": "1"}
    writer.hset("py:hash", "b", "2")
    eventually("the new hash is read", lambda: reader.hgetall("py:hash") == {"a": "1", "b": "2"})
    writer.set("py:0", "three", px=20)
    eventually("the expiry is seen", lambda: reader.get("py:0") is None)
    writer.flushall()
    eventually("everything is dropped", lambda: reader.get("py:1") is None)


main()
