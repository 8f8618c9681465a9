"""Forty ways in which public programs use redis-py's Lock, each told to redis-py's own class and to the
drop-in in its place. What a program observes has to be the same; what is not is in DIFFERENT, with why."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
import redis.asyncio.client
import redis.asyncio.lock
import redis.client
import redis.exceptions
import redis.lock
from server import Server

import leasehold_lock.compat.aio

Use = Callable[["redis.Redis", str], Any]
AsyncUse = Callable[[Any, str], Any]
USES: list[Any] = []
ASYNC_USES: list[Any] = []

#: The one difference that leasehold_lock.compat names: no lock is left without a ttl.
DIFFERENT: dict[str, Any] = {"no_timeout_is_no_ttl": ("TTL of a living holder", -1, 30)}


def use(function: Use) -> Use:
    USES.append(function)
    return function


def async_use(function: AsyncUse) -> AsyncUse:
    ASYNC_USES.append(function)
    return function


# ---- by the client's own method ----------------------------------------------------------------


@use
def block(r: Any, name: str) -> Any:
    with r.lock(name, timeout=20):
        return r.exists(name)


@use
def block_with_a_short_wait_that_fails(r: Any, name: str) -> Any:
    r.set(name, "somebody", px=60_000)
    try:
        with r.lock(name, timeout=5, blocking_timeout=0.05):
            return "in"
    except redis.exceptions.LockError as error:
        return str(error)


@use
def skip_if_taken(r: Any, name: str) -> Any:
    done = []
    for _ in range(2):
        lock = r.lock(name, timeout=60)
        if lock.acquire(blocking=False):
            done.append(lock)
    done[0].release()
    return len(done), r.exists(name)


@use
def never_blocking_block(r: Any, name: str) -> Any:
    seen = []
    with r.lock(name, timeout=60, blocking=False):
        with contextlib.suppress(redis.exceptions.LockError):
            with r.lock(name, timeout=60, blocking=False):
                seen.append("twice")
        seen.append("once")
    return seen


@use
def keywords_alone(r: Any, name: str) -> Any:
    lock = r.lock(name=name, timeout=3600, blocking_timeout=0)
    return lock.acquire(), lock.release()


@use
def class_with_keywords(r: Any, name: str) -> Any:
    lock = redis.lock.Lock(redis=r, name=name, timeout=300, blocking_timeout=300)
    with lock:
        return lock.redis is r, lock.name == name


@use
def class_by_position(r: Any, name: str) -> Any:
    lock: Any = redis.lock.Lock(r, name, 30, 0.01, True, 1, False)
    return lock.acquire(), lock.owned(), lock.release()


@use
def finally_if_owned(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30)
    try:
        return lock.acquire(blocking=True, blocking_timeout=2)
    finally:
        if lock.owned():
            lock.release()


@use
def finally_if_locked(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30)
    lock.acquire()
    if lock.locked():
        lock.release()
    return lock.locked()


@use
def release_that_came_too_late(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30)
    lock.acquire()
    r.delete(name)
    try:
        lock.release()
    except redis.exceptions.LockError as error:
        return type(error).__name__, str(error), isinstance(error, ValueError)


@use
def release_by_deleting_the_key(r: Any, name: str) -> Any:
    r.lock(name, timeout=30).acquire()
    r.delete(name)
    return r.lock(name, timeout=30).acquire(blocking=False)


@use
def object_is_dropped_and_the_ttl_ends_it(r: Any, name: str) -> Any:
    taken = redis.lock.Lock(r, name, timeout=60, blocking=False).acquire()
    again = redis.lock.Lock(r, name, timeout=60, blocking=False).acquire()
    return taken, again, 50_000 < r.pttl(name) <= 60_000


@use
def attributes(r: Any, name: str) -> Any:
    lock = r.lock(
        name, timeout=7, sleep=0.2, blocking=False, blocking_timeout=1, thread_local=False
    )
    return lock.timeout, lock.sleep, lock.blocking, lock.blocking_timeout, lock.thread_local


@use
def attributes_that_are_set_later(r: Any, name: str) -> Any:
    lock = r.lock(name)
    lock.timeout = 9
    lock.acquire()
    return 8000 < r.pttl(name) <= 9000


@use
def falsy_positional_argument(r: Any, name: str) -> Any:
    # `acquire(False)` is a sleep of nothing, and not "without blocking".
    return r.lock(name, timeout=5).acquire(False), r.exists(name)


# ---- tokens ------------------------------------------------------------------------------------


@use
def token_in_a_script_of_the_program(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=5)
    lock.acquire()
    script = "return redis.call('get', KEYS[1]) == ARGV[1] and 1 or 0"
    return r.eval(script, 1, name, lock.local.token)


@use
def token_handed_to_another_process(r: Any, name: str) -> Any:
    first = r.lock(name, timeout=30, thread_local=False)
    first.acquire()
    other = r.lock(name, timeout=30)
    other.local.token = first.local.token.decode()
    return other.release(), r.exists(name)


@use
def token_that_is_put_back_after_a_release_failed(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30)
    lock.acquire()
    token = lock.local.token
    value = r.getdel(name)
    with contextlib.suppress(redis.exceptions.LockError):
        lock.release()
    r.set(name, value, px=30_000)
    lock.local.token = token
    return lock.release(), r.exists(name)


@use
def token_of_its_own(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30)
    taken = lock.acquire(token="worker-1:job-7")
    return taken, r.get(name), lock.owned(), lock.extend(5), lock.reacquire(), lock.release()


@use
def token_of_its_own_without_blocking(r: Any, name: str) -> Any:
    first: Any = redis.lock.Lock(r, name, timeout=30, thread_local=False)
    second = redis.lock.Lock(r, name, timeout=30, thread_local=False)
    taken = first.acquire(blocking=False, token="a"), second.acquire(blocking=False, token="b")
    return taken, first.release(), second.acquire(blocking=False, token="b"), r.get(name)


@use
def one_try_and_release_by_token(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30)
    return lock.do_acquire(b"a"), lock.do_acquire(b"b"), lock.do_release(b"a"), r.exists(name)


@use
def release_by_the_token_of_another_object(r: Any, name: str) -> Any:
    first = r.lock(name, timeout=30)
    first.acquire()
    r.lock(name).do_release(first.local.token)
    return r.exists(name)


@use
def what_is_told_in_a_log(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=10)
    lock.acquire()
    token = lock.local.token
    return lock.name == name, r.ttl(name) > 8, lock.locked(), r.get(lock.name) == token, len(token)


# ---- extending ---------------------------------------------------------------------------------


@use
def extend_in_a_thread(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=2, thread_local=False)
    with lock, ThreadPoolExecutor() as threads:
        extended = threads.submit(lock.extend, 30, replace_ttl=True).result()
        return extended, 29_000 < r.pttl(name) <= 30_000


@use
def reacquire_in_a_loop(r: Any, name: str) -> Any:
    with r.lock(name, timeout=10) as lock:
        r.pexpire(name, 3000)
        return [lock.reacquire() for _ in range(3)], r.pttl(name) > 9000


@use
def extend_by_keyword(r: Any, name: str) -> Any:
    with r.lock(name, timeout=10) as lock:
        return lock.extend(additional_time=5), 14_000 < r.pttl(name) <= 15_000


@use
def extend_what_is_lost(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=10)
    lock.acquire()
    r.set(name, "somebody", px=60_000)
    try:
        lock.extend(10)
    except redis.exceptions.LockNotOwnedError as error:
        return str(error)


@use
def extend_by_a_script_of_its_own(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=60)
    lock.lua_extend = r.register_script(
        "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2])"
    )
    lock.acquire()
    return [lock.extend(60) for _ in range(3)], 59_000 < r.pttl(name) <= 60_000


@use
def no_timeout_is_no_ttl(r: Any, name: str) -> Any:
    with r.lock(name):
        return "TTL of a living holder", r.ttl(name)


# ---- threads and wrappers ----------------------------------------------------------------------


@use
def one_object_for_many_threads(r: Any, name: str) -> Any:
    lock, inside, most = r.lock(name, timeout=30, sleep=0.001), [], []

    def work(_: int) -> None:
        with lock:
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(12)))
    return len(most), max(most)


@use
def decorator(r: Any, name: str) -> Any:
    def single(function: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(function)
        def wrapped() -> Any:
            lock = r.lock(name, timeout=30)
            if not lock.acquire(blocking=False):
                return "busy"
            try:
                return function()
            finally:
                lock.release()

        return wrapped

    @single
    def outer() -> Any:
        return single(lambda: "inner")()

    return outer(), r.exists(name)


@use
def exit_stack(r: Any, name: str) -> Any:
    with contextlib.ExitStack() as stack:
        for number in range(3):
            stack.enter_context(r.lock(f"{name}:{number}", timeout=10))
        taken = r.exists(*(f"{name}:{number}" for number in range(3)))
    return taken, r.exists(f"{name}:0")


@use
def subclass_with_more_arguments(r: Any, name: str) -> Any:
    class Named(redis.lock.Lock):
        def __init__(self, client: Any, name: str, **options: Any) -> None:
            super().__init__(client, f"lock:{name}", **options)

    with Named(r, name, timeout=10) as lock:
        return isinstance(lock, redis.lock.Lock), r.exists(f"lock:{name}")


@use
def client_that_decodes(r: Any, name: str) -> Any:
    port = r.connection_pool.connection_kwargs["port"]
    with redis.Redis(port=port, decode_responses=True) as decoding:
        lock = decoding.lock(name, timeout=10)
        lock.acquire()
        return lock.owned(), isinstance(lock.local.token, bytes), lock.release()


@use
def waits_for_another_thread(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=30, thread_local=False)
    lock.acquire()
    timer = threading.Timer(0.05, lock.release)
    timer.start()
    return r.lock(name, timeout=30, sleep=0.01).acquire(blocking_timeout=20)


@use
def error_in_the_block(r: Any, name: str) -> Any:
    try:
        with r.lock(name, timeout=10):
            raise KeyError("mine")
    except KeyError:
        return r.exists(name)


# ---- asyncio -----------------------------------------------------------------------------------


@async_use
async def async_block(r: Any, name: str) -> Any:
    async with r.lock(name, timeout=20):
        return await r.exists(name)


@async_use
async def async_skip_if_taken(r: Any, name: str) -> Any:
    first, second = r.lock(name, timeout=20), r.lock(name, timeout=20)
    taken = await first.acquire(blocking=False), await second.acquire(blocking=False)
    return taken, await first.owned(), await second.owned(), await first.release()


@async_use
async def async_renewing_task(r: Any, name: str) -> Any:
    lock = r.lock(name, timeout=10)
    await lock.acquire()
    extended = await asyncio.create_task(lock.extend(10, replace_ttl=True))
    return extended, await lock.reacquire(), await lock.release(), await lock.locked()


@async_use
async def async_token_of_another_process(r: Any, name: str) -> Any:
    first = r.lock(name, timeout=30, thread_local=False)
    await first.acquire()
    other = r.lock(name, thread_local=False)
    other.local.token = first.local.token.decode().encode()
    await other.release()
    mine = await first.acquire(token="mine"), await r.get(name), await first.release()
    return mine, await r.exists(name)


OURS, OURS_ASYNC = leasehold_lock.compat.Lock, leasehold_lock.compat.aio.Lock


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    def replace() -> None:
        for module in (redis.lock, redis.client):
            monkeypatch.setattr(module, "Lock", OURS)
        for module in (redis.asyncio.lock, redis.asyncio.client):
            monkeypatch.setattr(module, "Lock", OURS_ASYNC)

    yield replace


def both(observe: Callable[[str], Any], replaced: Callable[[], None], what: str) -> None:
    expected = observe("theirs")
    replaced()
    observed = observe("ours")
    if what not in DIFFERENT:
        assert observed == expected
    else:
        assert (expected, observed) == (DIFFERENT[what][:2], DIFFERENT[what][::2])


@pytest.mark.parametrize("story", USES, ids=lambda story: story.__name__)
def test_a_use_in_a_program(
    story: Use, theirs: "redis.Redis", name: str, replaced: Callable[[], None]
) -> None:
    both(lambda whose: story(theirs, f"{name}:{whose}"), replaced, story.__name__)


@pytest.mark.parametrize("story", ASYNC_USES, ids=lambda story: story.__name__)
def test_a_use_in_a_program_of_asyncio(
    story: AsyncUse, server: Server, name: str, replaced: Callable[[], None]
) -> None:
    async def tell(whose: str) -> Any:
        async with redis.asyncio.Redis(port=server.port) as client:
            return await story(client, f"{name}:{whose}")

    both(lambda whose: asyncio.run(tell(whose)), replaced, story.__name__)


def test_there_are_forty() -> None:
    assert len(USES) + len(ASYNC_USES) == 40
