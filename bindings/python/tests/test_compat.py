"""redis-py's Lock and ours: the same stories, told to both, and each of them beside the other."""

import logging
import threading
import time
from typing import Any, Callable

import pytest
import redis
import redis.exceptions
import redis.lock
from conftest import Until
from server import Server

import leasehold_lock as leasehold
import leasehold_lock.compat
from leasehold_lock.compat import LockError, LockNotOwnedError

Make = Callable[..., Any]


def maker(which: str, theirs: "redis.Redis", ours: leasehold.Client, name: str) -> Make:
    def make(**options: Any) -> Any:
        if which == "redis-py":
            return redis.lock.Lock(theirs, name, **options)
        given = ours if which == "leasehold" else theirs
        return leasehold_lock.compat.Lock(given, name, **options)

    return make


WHICH = ["redis-py", "leasehold", "leasehold on redis.Redis"]


@pytest.fixture(params=WHICH)
def make(
    request: pytest.FixtureRequest,
    theirs: "redis.Redis",
    redis_client: leasehold.Client,
    name: str,
) -> Make:
    """The lock that is tested."""
    return maker(request.param, theirs, redis_client, name)


@pytest.fixture(params=WHICH[:2])
def rival(
    request: pytest.FixtureRequest,
    theirs: "redis.Redis",
    redis_client: leasehold.Client,
    name: str,
) -> Make:
    """The other one, which contends for it."""
    return maker(request.param, theirs, redis_client, name)


def test_taking_and_giving_back(make: Make, rival: Make, server: Server, name: str) -> None:
    lock = make(timeout=10)
    assert not lock.locked() and not lock.owned()
    assert lock.acquire(blocking=False) is True
    assert lock.locked() and lock.owned() and rival().locked() and not rival().owned()
    assert server.get(name) == lock.local.token and len(lock.local.token) == 32
    assert 9000 < server.pttl(name) <= 10000
    assert rival(timeout=10).acquire(blocking=False) is False
    assert lock.release() is None
    assert lock.local.token is None and server.get(name) is None
    assert not lock.locked() and not lock.owned()


def test_without_a_timeout(make: Make, rival: Make, server: Server, name: str) -> None:
    lock = make()
    assert lock.acquire()
    assert lock.owned() and rival().locked()
    assert rival(timeout=1).acquire(blocking=False) is False
    assert rival(timeout=1, blocking_timeout=0.3).acquire() is False
    for call in [lambda: lock.extend(1), lock.reacquire]:
        with pytest.raises(LockError, match="with no timeout"):
            call()
    lock.release()
    assert server.get(name) is None


def test_blocking_timeout(make: Make, rival: Make) -> None:
    with rival(timeout=10):
        start = time.monotonic()
        assert make(sleep=0.05).acquire(blocking_timeout=0.3) is False
        assert make(sleep=0.05, blocking_timeout=0.3).acquire() is False
        assert 0.4 < time.monotonic() - start < 10
        assert make(blocking=False).acquire() is False
        assert make(blocking_timeout=0).acquire() is False
        assert make(blocking=False).acquire(blocking=True, blocking_timeout=0.1) is False


def test_waiting_until_it_is_free(make: Make, rival: Make) -> None:
    first = rival(timeout=10, thread_local=False)
    first.acquire()
    threading.Timer(0.2, first.release).start()
    lock = make(timeout=10, sleep=0.01)
    assert lock.acquire(sleep=0.02)
    lock.release()


def test_waiting_for_ones_own_lock_to_expire(make: Make) -> None:
    lock = make(timeout=0.3, sleep=0.02)
    assert lock.acquire() and lock.acquire()
    lock.release()


def test_a_with_statement(make: Make, rival: Make) -> None:
    with make(timeout=10) as lock:
        assert lock.owned()
        with pytest.raises(LockError, match="Unable to acquire lock within the time specified"):
            with rival(blocking_timeout=0.1):
                pass
    assert not lock.locked()


def test_giving_back_what_is_not_owned(make: Make, name: str) -> None:
    lock = make(timeout=10)
    with pytest.raises(LockError, match="Cannot release a lock that's not owned") as caught:
        lock.release()
    assert caught.value.lock_name == name and isinstance(caught.value, ValueError)
    assert not isinstance(caught.value, LockNotOwnedError)
    for call in [lambda: lock.extend(1), lock.reacquire]:
        with pytest.raises(LockError, match="an unlocked lock"):
            call()


@pytest.mark.parametrize("timeout", [10, None])
def test_what_somebody_else_has_by_now(make: Make, server: Server, name: str, timeout: Any) -> None:
    lock = make(timeout=timeout)
    lock.acquire()
    server.call("SET", name, "somebody else", "PX", "60000")
    assert not lock.owned() and lock.locked()
    if timeout:
        for call in [lambda: lock.extend(1), lock.reacquire, lambda: lock.extend(5, True)]:
            with pytest.raises(LockNotOwnedError, match="no longer owned"):
                call()
    with pytest.raises(LockNotOwnedError, match="Cannot release a lock that's no longer owned"):
        lock.release()
    assert server.get(name) == b"somebody else" and lock.local.token is None


def test_what_ran_out(make: Make, until: Until) -> None:
    lock = make(timeout=0.05)
    lock.acquire()
    until(lambda: not lock.locked())
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.extend(1)
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_an_error_when_the_block_ends(
    make: Make, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LockNotOwnedError):
        with make(timeout=10):
            server.call("DEL", name)
    with caplog.at_level(logging.WARNING):
        with make(timeout=10, raise_on_release_error=False):
            server.call("DEL", name)
        with make(timeout=10, raise_on_release_error=False) as lock:
            lock.release()
    expected = "Lock was unlocked or no longer owned when exiting context manager."
    assert [record.message for record in caplog.records].count(expected) == 2


def test_extending_adds(make: Make, server: Server, name: str) -> None:
    lock = make(timeout=10)
    lock.acquire()
    assert lock.extend(5) is True and 14000 < server.pttl(name) <= 15000
    assert lock.extend(0.5) is True and 14500 < server.pttl(name) <= 15500
    assert lock.extend(20, replace_ttl=True) is True and 19000 < server.pttl(name) <= 20000
    assert lock.extend(3, replace_ttl=True) is True and 2000 < server.pttl(name) <= 3000
    assert lock.extend(-1) is True and 1000 < server.pttl(name) <= 2000
    assert lock.reacquire() is True and 9000 < server.pttl(name) <= 10000
    assert lock.extend(60) and lock.reacquire() and 9000 < server.pttl(name) <= 10000
    assert lock.owned()
    lock.release()


@pytest.mark.parametrize("by, replace", [(-10, False), (-99, False), (0, True), (-1, True)])
def test_extending_to_no_time_frees_it(make: Make, rival: Make, by: float, replace: bool) -> None:
    lock = make(timeout=10)
    lock.acquire()
    assert lock.extend(by, replace) is True
    assert rival(timeout=10).acquire(blocking=False) is True and not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()


@pytest.mark.parametrize("timeout", [0.0005, -1])
def test_a_timeout_that_is_no_ttl(make: Make, timeout: float) -> None:
    with pytest.raises(redis.exceptions.ResponseError):
        make(timeout=timeout).acquire(blocking=False)


ODD_NAMES = [b"\xff\x00", bytearray(b"\xff\x01"), memoryview(b"\xff\x02"), 4711, 0.5]


@pytest.mark.parametrize("odd_name", ODD_NAMES, ids=lambda odd_name: type(odd_name).__name__)
@pytest.mark.parametrize("which", WHICH)
def test_a_name_of_another_type(
    which: str, theirs: "redis.Redis", redis_client: leasehold.Client, odd_name: Any
) -> None:
    lock = maker(which, theirs, redis_client, odd_name)(timeout=10)
    assert lock.acquire(blocking=False) and theirs.get(odd_name) == lock.local.token
    assert lock.name is odd_name and lock.owned() and lock.extend(5)
    lock.release()
    assert theirs.get(odd_name) is None
    with pytest.raises(LockError) as caught:
        lock.release()
    assert caught.value.lock_name is odd_name


def test_a_name_in_the_encoding_of_the_client(server: Server, name: str) -> None:
    """With hiredis, redis-py sends UTF-8 all the same."""
    kinds: list[Any] = [redis.lock.Lock, leasehold_lock.compat.Lock]
    seen: list[Any] = []
    with redis.Redis(port=server.port, encoding="latin-1") as latin:
        for kind in kinds:
            with kind(latin, name + "\xe9", timeout=10):
                seen.append(latin.keys(name + "*"))
    assert seen[0] == seen[1] and len(seen[0]) == 1


#: As celery-redbeat has it: sets the ttl where redis-py adds to it.
EXTEND_TO = """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then
        return 0
    end
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1
"""


def test_a_script_of_ones_own(theirs: "redis.Redis", server: Server, name: str) -> None:
    kinds: list[Any] = [redis.lock.Lock, leasehold_lock.compat.Lock]
    for kind in kinds:
        lock = kind(theirs, name, timeout=60)
        lock.lua_extend = theirs.register_script(EXTEND_TO)
        lock.acquire()
        for _ in range(3):
            assert lock.extend(60) is True
            assert 59_000 < server.pttl(name) <= 60_000
        server.call("PEXPIRE", name, "1000")
        assert lock.reacquire() is True and server.pttl(name) > 59_000
        lock.release()
        assert server.get(name) is None
        with pytest.raises(LockError):
            lock.extend(60)
        lock.acquire()
        server.call("SET", name, "somebody else")
        with pytest.raises(LockNotOwnedError):
            lock.extend(60)
        server.call("DEL", name)

        scripts = {
            "LUA_RELEASE_SCRIPT": "redis.call('set', KEYS[1] .. ':gone', ARGV[1]) return 1",
            "LUA_REACQUIRE_SCRIPT": EXTEND_TO.replace("ARGV[2]", "1000"),
            "lua_release": None,
            "lua_reacquire": None,
        }
        lock = type("Mine", (kind,), scripts)(theirs, name, timeout=60)
        lock.acquire()
        token = lock.local.token
        assert lock.reacquire() is True and 0 < server.pttl(name) <= 1000
        lock.release()
        assert server.get(name + ":gone") == token
        server.call("DEL", name)


def test_fractions_of_a_second(make: Make, server: Server, name: str) -> None:
    lock = make(timeout=1.5)
    lock.acquire()
    assert 1000 < server.pttl(name) <= 1500
    lock.release()


def test_each_thread_has_its_own_token(make: Make) -> None:
    lock = make(timeout=10, thread_local=True)
    lock.acquire()
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(getattr(lock.local, "token", None)))
    thread.start()
    thread.join()
    assert seen == [None] and lock.owned()
    lock.release()


@pytest.mark.parametrize("timeout", [10, None])
def test_threads_can_share_a_token(make: Make, timeout: Any) -> None:
    lock = make(timeout=timeout, thread_local=False)
    lock.acquire()
    seen: list[Any] = []

    def release() -> None:
        seen.append(lock.owned())
        lock.release()

    thread = threading.Thread(target=release)
    thread.start()
    thread.join()
    assert seen == [True] and not lock.locked()


def test_a_token_goes_from_one_to_the_other(make: Make, rival: Make) -> None:
    lock, other = make(timeout=10), rival(timeout=10)
    lock.acquire()
    other.local.token = lock.local.token
    assert other.owned() and other.extend(5) and other.reacquire()
    other.release()
    assert not lock.owned() and not lock.locked()


@pytest.fixture(params=[WHICH[0], WHICH[2]])
def make_on_redis(
    request: pytest.FixtureRequest,
    theirs: "redis.Redis",
    redis_client: leasehold.Client,
    name: str,
) -> Make:
    """Those that know redis-py's connection."""
    return maker(request.param, theirs, redis_client, name)


@pytest.mark.parametrize("token", ["mine", b"\x00\xff", "0123456789abcdef0123456789abcdef"])
def test_a_token_of_ones_own(
    make_on_redis: Make, rival: Make, server: Server, name: str, token: Any
) -> None:
    lock = make_on_redis(timeout=10)
    expected = token.encode() if isinstance(token, str) else token
    assert lock.acquire(token=token) is True
    assert server.get(name) == lock.local.token == expected
    assert lock.owned() and lock.locked() and not rival(timeout=1).acquire(blocking=False)
    again = make_on_redis(timeout=10)
    assert again.acquire(blocking=False, token=token) is False
    assert lock.extend(5) is True and 14000 < server.pttl(name) <= 15000
    assert lock.reacquire() is True and server.pttl(name) <= 10000
    again.local.token = expected
    assert again.owned()
    again.release()
    assert again.local.token is None and server.get(name) is None
    with pytest.raises(LockNotOwnedError):
        lock.release()
    for call in [lambda: lock.extend(1), lock.reacquire]:
        lock.local.token = expected
        with pytest.raises(LockNotOwnedError):
            call()


def test_a_key_that_is_something_else(make: Make, server: Server, name: str) -> None:
    server.call("LPUSH", name, "a list")
    assert make(timeout=1).acquire(blocking=False) is False
    assert make(timeout=1).acquire(blocking_timeout=0.25) is False


def test_waiting_outlasts_a_lock_without_a_ttl(make: Make, server: Server, name: str) -> None:
    server.call("SET", name, "for ever")
    lock = make(timeout=5, sleep=0.02)
    threading.Timer(0.2, server.call, ["DEL", name]).start()
    assert lock.acquire()
    lock.release()


def test_options_are_attributes(make: Make, name: str) -> None:
    lock = make(timeout=3, sleep=0.2, blocking=False, blocking_timeout=4, thread_local=False)
    read = (lock.name, lock.timeout, lock.sleep, lock.blocking, lock.blocking_timeout)
    assert read == (name, 3, 0.2, False, 4)
    assert lock.thread_local is False and lock.raise_on_release_error is True
    assert lock.redis is not None


def test_contention_of_the_two(make: Make, rival: Make) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work(make: Make) -> None:
        lock = make(timeout=30, sleep=0.001)
        for _ in range(20):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work, args=(one,)) for one in [make, rival] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(most) == 80 and max(most) == 1


def test_the_server_is_missing(make: Make, own_server: Server, name: str) -> None:
    """Ours raises redis-py's exceptions where that is installed."""
    port = own_server.port
    own_server.stop()
    retry = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    with redis.Redis(port=port, retry=retry) as gone:
        kind = type(make())
        with pytest.raises(redis.exceptions.ConnectionError):
            kind(gone, name, timeout=1).acquire(blocking=False)
