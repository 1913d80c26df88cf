"""What applications do with redis-py, against a DistCache router. Usage: redis_py.py PORT PROTOCOL"""

import queue
import sys
import threading
import time

import redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])
pool = redis.ConnectionPool(host="127.0.0.1", port=port, protocol=protocol, decode_responses=True, max_connections=8)
client = redis.Redis(connection_pool=pool)


def strings():
    assert client.ping() is True
    assert client.set("py:a", "1") is True
    assert client.set("py:a", "2", nx=True) is None
    assert client.get("py:a") == "1"
    assert client.getdel("py:a") == "1"
    assert client.get("py:a") is None
    assert client.incr("py:n", 5) == 5
    assert client.append("py:s", "ab") == 2
    assert client.mset({"py:1": "1", "py:2": "2", "py:3": "3"}) is True
    assert client.mget("py:1", "py:2", "py:3", "py:none") == ["1", "2", "3", None]
    assert client.exists("py:1", "py:2", "py:none") == 2
    assert client.delete("py:1", "py:2", "py:3") == 3
    binary = redis.Redis(host="127.0.0.1", port=port, protocol=protocol)
    assert binary.set("py:bin", bytes(range(256))) and binary.get("py:bin") == bytes(range(256))


def collections():
    assert client.hset("py:h", mapping={"a": 1, "b": 2}) == 2
    for _ in range(5):
        assert client.hgetall("py:h") == {"a": "1", "b": "2"}
    assert client.hmget("py:h", "a", "x") == ["1", None]
    assert client.rpush("py:l", 1, 2, 3) == 3
    assert client.lrange("py:l", 0, -1) == ["1", "2", "3"]
    assert client.blpop("py:l", timeout=1) in [("py:l", "1"), ["py:l", "1"]]
    assert client.sadd("py:set", "x", "y") == 2
    assert client.smembers("py:set") == {"x", "y"}
    assert client.zadd("py:z", {"one": 1, "two": 2.5}) == 2
    pairs = client.zrange("py:z", 0, -1, withscores=True)
    assert [(name, score) for name, score in pairs] == [("one", 1.0), ("two", 2.5)], pairs
    assert client.zscore("py:z", "two") == 2.5
    identity = client.xadd("py:x", {"f": "v"})
    assert client.xrange("py:x") == [(identity, {"f": "v"})]
    assert client.type("py:z") == "zset"


def expirations():
    client.set("py:e", "v", px=200)
    assert 0 < client.pttl("py:e") <= 200
    deadline = time.monotonic() + 5
    while client.get("py:e") is not None:
        assert time.monotonic() < deadline
    client.set("py:e", "v")
    assert client.ttl("py:e") == -1
    assert client.expire("py:e", 100) is True
    assert 98 <= client.ttl("py:e") <= 100
    assert client.persist("py:e") is True


def pipelines():
    pipeline = client.pipeline(transaction=False)
    for index in range(500):
        pipeline.set(f"py:p:{index}", index)
        pipeline.get(f"py:p:{index}")
        pipeline.incr("py:p:counter")
    replies = pipeline.execute()
    for index in range(500):
        assert replies[3 * index : 3 * index + 3] == [True, str(index), index + 1], index
    pipeline.set("py:p:text", "x")
    pipeline.lpush("py:p:text", 1)
    replies = pipeline.execute(raise_on_error=False)
    assert replies[0] is True and "WRONGTYPE" in str(replies[1])


def transactions():
    pipeline = client.pipeline()  # MULTI and EXEC around all of it
    pipeline.set("{py}:a", 1).incr("{py}:a").lpush("{py}:l", "x").lrange("{py}:l", 0, -1).get("{py}:a")
    assert pipeline.execute() == [True, 2, 1, ["x"], "2"]
    pipeline.lpush("{py}:a", 1).set("{py}:b", 2)
    replies = pipeline.execute(raise_on_error=False)
    assert "WRONGTYPE" in str(replies[0]) and replies[1] is True
    pipeline.set("{py}:b", 3).execute_command("NOSUCHCOMMAND")
    try:
        pipeline.execute()
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error
    else:
        raise AssertionError("a transaction with an unknown command was executed")
    assert client.get("{py}:b") == "2"
    with client.pipeline() as pipeline:
        pipeline.watch("{py}:b")
        assert pipeline.get("{py}:b") == "2"
        client.set("{py}:b", 5)
        pipeline.multi()
        pipeline.set("{py}:b", 6)
        try:
            pipeline.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("a transaction was executed although its key had changed")
    client.transaction(lambda pipe: (pipe.multi(), pipe.incr("{py}:b")), "{py}:b")
    assert client.get("{py}:b") == "6"


def scans():
    expected = {f"py:p:{index}" for index in range(500)}
    assert {key for key in client.scan_iter("py:p:[0-9]*", count=50)} == expected
    assert dict(client.hscan_iter("py:h")) == {"a": "1", "b": "2"}
    assert sorted(client.zscan_iter("py:z")) == [("one", 1.0), ("two", 2.5)]
    assert client.dbsize() >= 500


def subscriptions():
    def messages(listener, count):
        deadline = time.monotonic() + 20
        while len(seen) < count and time.monotonic() < deadline:
            message = listener.get_message(timeout=0.1)
            if message is not None:
                seen.append((message["type"], message["channel"], message["data"]))
        assert len(seen) == count, seen
        found = list(seen)
        seen.clear()
        return found

    seen = []
    with client.pubsub() as listener:
        listener.subscribe("py:c1", "py:c2")
        assert messages(listener, 2) == [("subscribe", "py:c1", 1), ("subscribe", "py:c2", 2)]
        listener.psubscribe("py:c*")
        assert messages(listener, 1) == [("psubscribe", "py:c*", 3)]
        assert client.publish("py:c1", "hi") == 2
        assert sorted(messages(listener, 2)) == [("message", "py:c1", "hi"), ("pmessage", "py:c1", "hi")]
        assert client.publish("py:c3", "hi") == 1
        assert messages(listener, 1) == [("pmessage", "py:c3", "hi")]
        assert sorted(client.pubsub_channels("py:*")) == ["py:c1", "py:c2"]
        assert client.pubsub_numsub("py:c1", "py:c3") == [("py:c1", 1), ("py:c3", 0)]
        assert client.pubsub_numpat() == 1
        listener.unsubscribe()
        listener.punsubscribe()
        assert {kind for kind, _, _ in messages(listener, 3)} == {"unsubscribe", "punsubscribe"}
        assert client.publish("py:c1", "hi") == 0
        called = queue.Queue()
        listener.subscribe(**{"py:handled": called.put})
        thread = listener.run_in_thread(sleep_time=0.01)
        while client.publish("py:handled", "x") == 0:
            pass
        first = called.get(timeout=20)
        thread.stop()
        thread.join()
        assert first["data"] == "x"


def errors():
    for call, text in [
        (lambda: client.hget("py:p:text", "f"), "WRONGTYPE"),
        (lambda: client.execute_command("NOSUCHCOMMAND", "x"), "unknown command"),
        (lambda: client.execute_command("SET", "x"), "wrong number of arguments"),
        (lambda: client.mset({"py:1": "1"}) and client.rename("py:none", "py:none"), "no such key"),
    ]:
        try:
            call()
        except redis.ResponseError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no error: {text}")


def pools():
    def count():
        for _ in range(50):
            client.incr("py:pool")
            client.get("py:pool")

    threads = [threading.Thread(target=count) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("py:pool") == "400"


def connections():
    named = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, client_name="py-test", decode_responses=True)
    assert named.client_getname() == "py-test"
    assert isinstance(named.client_id(), int)
    assert named.info()["redis_mode"] == "standalone"
    assert named.echo("x") == "x"
    assert "get" in {name.lower() for name in named.command()}


for check in [strings, collections, expirations, pipelines, transactions, scans, subscriptions, errors, pools, connections]:
    check()
assert client.flushall() is True
assert client.dbsize() == 0
