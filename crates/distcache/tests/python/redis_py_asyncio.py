"""What asyncio applications do with redis-py, against a DistCache router. Usage: redis_py_asyncio.py PORT PROTOCOL"""

import asyncio
import sys

import redis.asyncio as redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])


async def worker(client, index):
    key = f"aio:{index % 3}"
    for _ in range(30):
        before = int(await client.get(key) or 0)
        after = await client.incr(key)
        assert after > before, (key, before, after)
        assert int(await client.get(key)) >= after, key


async def main():
    client = redis.Redis(host="127.0.0.1", port=port, protocol=protocol, decode_responses=True)
    assert await client.ping() is True
    await client.flushall()
    await asyncio.gather(*(worker(client, index) for index in range(12)))
    assert [int(value) for value in await client.mget("aio:0", "aio:1", "aio:2")] == [120, 120, 120]

    async with client.pipeline(transaction=False) as pipeline:
        for index in range(200):
            pipeline.hset(f"aio:h:{index}", mapping={"i": index})
            pipeline.hgetall(f"aio:h:{index}")
        replies = await pipeline.execute()
    assert replies[1::2] == [{"i": str(index)} for index in range(200)]
    assert len([key async for key in client.scan_iter("aio:h:*", count=17)]) == 200

    waiting = asyncio.create_task(client.blpop("aio:queue", timeout=10))
    while not waiting.done():
        # Whoever comes first: the other pops it, or it is there already.
        await client.rpush("aio:queue", "job")
        await asyncio.wait([waiting], timeout=0.05)
    assert list(waiting.result()) == ["aio:queue", "job"]

    await client.set("aio:e", "v", px=150)
    while await client.get("aio:e") is not None:
        pass
    await client.flushall()
    await client.aclose()


asyncio.run(asyncio.wait_for(main(), 60))
