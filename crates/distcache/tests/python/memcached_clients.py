"""What applications do with pymemcache, python-memcached and pylibmc, unmodified, before a router.

Arguments: the router's port, and whether storage keeps flags ("flags") or not ("plain").
"""

import sys

import memcache
import pylibmc
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient

PORT, KEEPS_FLAGS = int(sys.argv[1]), sys.argv[2] == "flags"
ADDRESS = ("127.0.0.1", PORT)


def pymemcache_client(client):
    assert client.set("py:a", b"one", noreply=False)
    assert client.get("py:a") == b"one"
    assert client.set_many({"py:b": b"2", "py:c": b"3"}, noreply=False) == []
    assert client.get_many(["py:a", "py:b", "py:none", "py:c"]) == {"py:a": b"one", "py:b": b"2", "py:c": b"3"}
    assert client.add("py:a", b"x", noreply=False) is False
    assert client.replace("py:a", b"two", expire=1000, noreply=False) is True
    assert client.append("py:a", b"!", noreply=False) and client.prepend("py:a", b"?", noreply=False)
    value, unique = client.gets("py:a")
    assert value == b"?two!"
    assert client.cas("py:a", b"three", unique, noreply=False) is True
    assert client.cas("py:a", b"four", unique, noreply=False) is False
    assert client.cas("py:none", b"four", unique, noreply=False) is None
    assert client.incr("py:b", 40) == 42 and client.decr("py:b", 50) == 0
    assert client.incr("py:none", 1) is None
    assert client.touch("py:a", 1000, noreply=False) is True
    assert client.touch("py:none", 1000, noreply=False) is False
    assert client.delete("py:a", noreply=False) is True and client.delete("py:a", noreply=False) is False
    # Without answers the order of one connection is kept all the same.
    for number in range(200):
        client.set("py:order", str(number).encode(), noreply=True)
    assert client.get("py:order") == b"199"
    large = bytes(range(256)) * 3000
    assert client.set("py:large", large, noreply=False) and client.get("py:large") == large


def python_memcached():
    client = memcache.Client(["127.0.0.1:%d" % PORT])
    assert client.set("pm:a", b"bytes") and client.get("pm:a") == b"bytes"
    assert client.set_multi({"x": b"1", "y": b"2"}, key_prefix="pm:") == []
    assert client.get_multi(["x", "y", "z"], key_prefix="pm:") == {"x": b"1", "y": b"2"}
    assert client.incr("pm:x", 9) == 10 and client.delete("pm:x") and client.get("pm:x") is None
    assert client.get_stats()
    # Everything but bytes has flags.
    if KEEPS_FLAGS:
        assert client.set("pm:t", "text") and client.get("pm:t") == "text"
        assert client.set("pm:o", {"a": [1, 2]}) and client.get("pm:o") == {"a": [1, 2]}
        client.cache_cas = True
        value = client.gets("pm:o")
        assert value == {"a": [1, 2]} and client.cas("pm:o", 7) and client.get("pm:o") == 7
    else:
        assert not client.set("pm:o", {"a": [1, 2]}) and client.get("pm:o") is None


def libmemcached():
    client = pylibmc.Client(["127.0.0.1:%d" % PORT], binary=False, behaviors={"cas": True, "tcp_nodelay": True})
    assert client.set("pl:a", b"bytes") and client.get("pl:a") == b"bytes"
    assert client.set_multi({"x": b"1", "y": b"2"}, key_prefix="pl:") == []
    assert client.get_multi(["x", "y", "z"], key_prefix="pl:") == {"x": b"1", "y": b"2"}
    value, unique = client.gets("pl:a")
    assert value == b"bytes" and client.cas("pl:a", b"other", unique)
    assert client.touch("pl:a", 1000) and not client.touch("pl:none", 1000)
    assert client.delete("pl:a") and client.get("pl:a") is None
    if KEEPS_FLAGS:
        assert client.set("pl:n", 41) and client.incr("pl:n") == 42 and client.get("pl:n") == 42
    client.disconnect_all()


pymemcache_client(Client(ADDRESS))
pymemcache_client(PooledClient(ADDRESS, max_pool_size=2))
hashed = HashClient([ADDRESS])
assert hashed.set("h", b"1", noreply=False) and hashed.get("h") == b"1"
python_memcached()
libmemcached()
