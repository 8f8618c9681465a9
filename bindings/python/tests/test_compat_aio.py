"""What only the drop-in for redis-py's Lock for asyncio has to show. What it does as redis-py's, the
stories of test_compat_uses.py tell, and redis-py's own tests, which `run-tests --long` runs on it."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any, Callable, TypeVar

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.lock
import redis.asyncio.sentinel
import redis.exceptions
from server import Server, group

import leasehold_lock as leasehold
import leasehold_lock.compat.aio
from leasehold_lock.compat import LockError, LockNotOwnedError
from leasehold_lock.compat.aio import Lock

#: Redis-py has no types for it.
sentinel_of: Any = redis.asyncio.sentinel.Sentinel
_T = TypeVar("_T")
Story = Callable[[Any], Awaitable[_T]]


def tell(server: Server, story: Story[_T], **options: Any) -> _T:
    async def with_client() -> _T:
        async with redis.asyncio.Redis(port=server.port, **options) as client:
            return await story(client)

    return asyncio.run(with_client())


def test_every_argument_is_there() -> None:
    def parameters(function: Any) -> list[tuple[str, Any]]:
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.default) for one in found]

    theirs = redis.asyncio.lock.Lock
    for method in ["__init__", "acquire", "release", "extend", "reacquire", "locked", "owned"]:
        assert parameters(getattr(Lock, method)) == parameters(getattr(theirs, method)), method


def test_on_a_client_of_leasehold(redis_client: leasehold.Client, name: str) -> None:
    async def story() -> None:
        lock = Lock(redis_client, name, timeout=10)
        async with lock:
            assert await lock.owned() and await lock.extend(5)
            assert not await Lock(redis_client, name).acquire(blocking_timeout=0.05)
        with pytest.raises(LockError, match="not owned"):
            await lock.release()
        with pytest.raises(TypeError, match="redis.Redis"):
            await lock.acquire(token="mine")

    asyncio.run(story())


def test_a_holder_without_a_timeout_is_renewed_and_has_a_ttl(server: Server, name: str) -> None:
    async def story(client: Any) -> None:
        async with Lock(client, name):
            assert 20_000 < await client.pttl(name) <= 30_000

    tell(server, story)


def test_it_excludes_redis_pys_own(server: Server, name: str) -> None:
    async def story(client: Any) -> None:
        ours, theirs = (
            Lock(client, name, timeout=10),
            redis.asyncio.lock.Lock(client, name, timeout=10),
        )
        async with ours:
            assert not await theirs.acquire(blocking=False)
        async with theirs:
            assert not await ours.acquire(blocking=False) and await ours.locked()
        async with redis.asyncio.lock.Lock(client, name):  # Without a ttl.
            assert not await ours.acquire(blocking=False)
            assert not await ours.acquire(blocking_timeout=0.15)

    tell(server, story)


def test_a_task_that_is_cancelled_leaves_no_lock_behind(server: Server, name: str) -> None:
    async def story(client: Any) -> None:
        first = Lock(client, name, timeout=60, sleep=0.01)
        await first.acquire()
        waiting = [asyncio.create_task(Lock(client, name, sleep=0.01).acquire()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        await first.release()
        async with Lock(client, name, timeout=60, blocking_timeout=20, sleep=0.01):
            pass

    tell(server, story)


def test_waiters_have_it_one_after_the_other(server: Server, name: str) -> None:
    inside: list[int] = []
    most: list[int] = []

    async def story(client: Any) -> None:
        async def work() -> None:
            async with Lock(client, name, timeout=60, sleep=0.01):
                inside.append(1)
                await asyncio.sleep(0)
                most.append(len(inside))
                inside.pop()

        await asyncio.gather(*(work() for _ in range(20)))

    tell(server, story)
    assert len(most) == 20 and max(most) == 1


def test_a_script_of_ones_own(server: Server, name: str) -> None:
    async def story(client: Any) -> None:
        lock = Lock(client, name, timeout=60)
        lock.lua_extend = client.register_script("return redis.call('pexpire', KEYS[1], ARGV[2])")
        await lock.acquire()
        assert [await lock.extend(60) for _ in range(3)] == [True] * 3
        assert 59_000 < await client.pttl(name) <= 60_000
        await lock.release()
        assert not await client.exists(name)

    tell(server, story)


def test_what_is_lost(server: Server, name: str) -> None:
    async def story(client: Any) -> None:
        lock = Lock(client, name, timeout=60)
        await lock.acquire()
        await client.set(name, "somebody", px=60_000)
        for call in [lambda: lock.extend(1), lock.reacquire, lock.release]:
            with pytest.raises(LockNotOwnedError):
                await call()
        assert lock.local.token is None
        await client.delete(name)
        async with Lock(client, name, timeout=60, raise_on_release_error=False):
            await client.delete(name)

    tell(server, story)


def test_a_release_that_got_no_answer_can_be_made_again(own_server: Server, name: str) -> None:
    url = f"{own_server.url}?io_timeout=50ms"
    with leasehold.connect(url) as client:

        async def story() -> None:
            lock = Lock(client, name, timeout=600)
            await lock.acquire()
            own_server.fall_asleep()
            with pytest.raises(redis.exceptions.TimeoutError):
                await lock.release()
            own_server.wake_up()
            assert lock.local.token is not None

        asyncio.run(story())


def test_the_server_is_missing(own_server: Server, name: str) -> None:
    own_server.stop()

    async def story(client: Any) -> None:
        with pytest.raises(redis.exceptions.ConnectionError):
            await Lock(client, name, timeout=1).acquire(blocking=False)

    tell(own_server, story)


def test_the_master_that_sentinels_name(name: str) -> None:
    async def story(ports: list[int]) -> None:
        manager: Any = sentinel_of([("127.0.0.1", port) for port in ports[-3:]])
        client = manager.master_for("mymaster")
        async with Lock(client, name, timeout=20) as lock:
            assert await client.get(name) == lock.local.token
        with pytest.raises(TypeError, match="master_for"):
            Lock(manager.slave_for("mymaster"), name)
        await client.aclose()

    with group("sentinel") as ports:
        asyncio.run(story(ports))


def test_what_cannot_be_followed_is_refused(
    theirs: "redis.Redis", server: Server, name: str
) -> None:
    async def story(client: Any) -> None:
        with pytest.raises(TypeError, match="pipeline.*the client that made it"):
            Lock(client.pipeline(), name)
        clustered = redis.asyncio.RedisCluster(
            startup_nodes=[redis.asyncio.cluster.ClusterNode("127.0.0.1", 1)]
        )
        with pytest.raises(TypeError, match="RedisCluster for asyncio.*leasehold.connect"):
            Lock(clustered, name)
        with pytest.raises(TypeError, match="no client for asyncio.*leasehold_lock.compat.Lock"):
            Lock(theirs, name)
        with pytest.raises(TypeError, match="a client for asyncio.*leasehold_lock.compat.aio.Lock"):
            leasehold_lock.compat.Lock(client, name)

    tell(server, story)
    with pytest.raises(TypeError, match="pipeline.*the client that made it"):
        leasehold_lock.compat.Lock(theirs.pipeline(), name)
    for method in ["do_acquire", "do_release", "do_extend", "do_reacquire", "register_scripts"]:
        with pytest.raises(TypeError, match=f"Mine.{method}"):
            type("Mine", (Lock,), {method: lambda self: None})
