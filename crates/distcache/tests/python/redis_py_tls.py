"""redis-py over TLS, against a DistCache router. Usage: redis_py_tls.py PORT PROTOCOL CA CERTIFICATE KEY"""

import sys

import redis

port, protocol, ca, certificate, key = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
secured = dict(host="localhost", port=port, protocol=protocol, ssl=True, ssl_ca_certs=ca)
client = redis.Redis(**secured, ssl_certfile=certificate, ssl_keyfile=key)

assert client.ping() is True
big = bytes(range(256)) * (16 << 10)
assert client.set("tls:big", big) is True
for _ in range(3):
    assert client.get("tls:big") == big

# More at a time is more than slow storage is asked for.
for first in range(0, 1000, 100):
    pipe = client.pipeline(transaction=False)
    for index in range(first, first + 100):
        pipe.set(f"tls:{index}", index)
    assert all(pipe.execute())
    for index in range(first, first + 100):
        pipe.get(f"tls:{index}")
    assert pipe.execute() == [str(index).encode() for index in range(first, first + 100)]

for wrong in (dict(), dict(ssl_ca_certs=certificate, ssl_certfile=certificate, ssl_keyfile=key)):
    try:
        redis.Redis(**{**secured, **wrong}).ping()
    except redis.exceptions.ConnectionError:
        continue
    raise AssertionError(f"a connection with {wrong} was accepted")
