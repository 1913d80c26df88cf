"""Pipelines that redis-py writes as a whole before it reads. Usage: redis_py_pipelines.py PORT UNIX_SOCKET COMMANDS"""

import sys

import redis

port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def value(index):
    return b"%d." % index * (1000 // len(b"%d." % index))


def check(client, name):
    pipeline = client.pipeline(transaction=False)
    for index in range(count):
        pipeline.set("%s:%d" % (name, index), value(index))
    assert pipeline.execute() == [True] * count
    for index in range(count):
        pipeline.get("%s:%d" % (name, index))
    found = pipeline.execute()
    assert len(found) == count
    for index in range(count):
        assert found[index] == value(index), index


check(redis.Redis(port=port), "tcp")
check(redis.Redis(unix_socket_path=path), "unix")
