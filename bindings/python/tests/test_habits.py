"""Who writes what another library has is told our word for it, and who writes milliseconds is warned."""

import inspect
import subprocess
import warnings
from datetime import timedelta
from typing import Any, Callable

import pytest
import redis.lock
from conftest import script

import leasehold_lock as leasehold
import leasehold_lock.compat
from leasehold_lock import _habits


def told(kind: type, call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("argument", "ours"),
    [
        ("timeout", "ttl=10"),
        ("blocking", "try_acquire()"),
        ("blocking_timeout", "wait=5"),
        ("sleep", "the store hands the lock to waiters"),
        ("thread_local", "any thread may use a Lease"),
        ("raise_on_release_error", "leasehold.Lost"),
        ("expire", "ttl=10"),
        ("lock_class", "leasehold_lock.compat.Lock"),
    ],
)
def test_an_argument_of_another_library(client: Any, argument: str, ours: str) -> None:
    said = told(TypeError, lambda: client.lock("name", **{argument: 1}))
    assert said.startswith(f"lock() has no {argument!r}: ") and ours in said, said


def test_no_argument_of_redis_py_is_left_out() -> None:
    arguments = set(inspect.signature(redis.lock.Lock.__init__).parameters)
    assert arguments - {"self", "redis", "name"} <= set(_habits._ARGUMENTS)
    arguments = set(inspect.signature(redis.lock.Lock.acquire).parameters)
    assert arguments - {"self"} <= set(_habits._OF_TAKING)


def test_no_method_of_redis_py_is_left_out() -> None:
    methods = {
        name
        for name in vars(redis.lock.Lock)
        if name[0] != "_" and not name.startswith(("do_", "lua", "LUA"))
    }
    methods -= {"register_scripts"}
    ours = [
        set(dir(leasehold.Lock)) | set(_habits._OF_LOCK),
        set(dir(leasehold.Lease)) | set(_habits._OF_LEASE),
    ]
    for has in ours:
        assert methods <= has


def test_an_argument_that_is_misspelt(client: Any) -> None:
    said = told(TypeError, lambda: client.lock("name", tll=1))
    assert said == "lock() has no argument 'tll'; did you mean 'ttl'?"
    assert (
        told(TypeError, lambda: client.lock("name", colour=1)) == "lock() has no argument 'colour'"
    )


def test_what_a_call_that_takes_a_lock_has_in_another_library(client: Any, name: str) -> None:
    lock = client.lock(name)
    cases: dict[str, Callable[[], Any]] = {
        "acquire_within(5)": lambda: lock.acquire(timeout=5),
        "acquire() has no 'blocking_timeout'": lambda: lock.acquire(blocking_timeout=5),
        "try_acquire(), which returns None": lambda: lock.acquire(blocking=False),
        "takes no False: write try_acquire()": lambda: lock.acquire(False),
        "takes no 5: write wait=5, or acquire_within(5)": lambda: lock.acquire(5),
    }
    for ours, call in cases.items():
        assert ours in told(TypeError, call)
    assert lock.try_acquire().release() is None


def test_a_method_of_another_library(client: Any, name: str) -> None:
    lock = client.lock(name)
    of_lock = {
        "release": "release()",
        "extend": "extend()",
        "owned": "valid",
        "locked": "inspect().held",
    }
    for method, ours in of_lock.items():
        said = told(AttributeError, lambda method=method: getattr(lock, method)())  # type: ignore[misc]
        assert said.startswith(f"a leasehold.Lock has no {method!r}: ") and ours in said, said
        assert not hasattr(lock, method)
    with lock as lease:
        for method, ours in {
            "owned": "lease.valid",
            "locked": "lease.valid",
            "reacquire": "extend()",
        }.items():
            said = told(AttributeError, lambda method=method: getattr(lease, method)())  # type: ignore[misc]
            assert said.startswith(f"a leasehold.Lease has no {method!r}: ") and ours in said, said
    assert told(AttributeError, lambda: lock.colour) == "a leasehold.Lock has no 'colour'"
    assert told(AttributeError, lambda: lease.colour) == "a leasehold.Lease has no 'colour'"


def test_a_lock_is_not_made_as_redis_pys_is(client: Any, name: str) -> None:
    for call in [
        lambda: leasehold.Lock(client, name),  # type: ignore[arg-type]
        lambda: leasehold.Lock(client, name, timeout=10),  # type: ignore[arg-type]
    ]:
        assert "client.lock(name, ttl=10)" in told(TypeError, call)


def test_a_ttl_in_milliseconds_is_warned_of(client: leasehold.Client, name: str) -> None:
    with pytest.warns(
        leasehold.UnitWarning, match=r"ttl=10000 is 2:46:40 h: .*seconds.*ttl=10 if"
    ) as caught:
        client.lock(name, ttl=10000)
    assert [warning.filename for warning in caught] == [__file__]
    with client.lock(name) as lease:
        with pytest.warns(leasehold.UnitWarning, match="ttl=7200.0 is 2:00:00 h") as caught:
            lease.extend(7200.0)
        assert [warning.filename for warning in caught] == [__file__]


def test_what_is_meant_so_is_not_warned_of(redis_client: leasehold.Client, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        redis_client.lock(name, ttl=3600)
        with redis_client.lock(
            name, ttl=timedelta(hours=2), max_hold=100_000, wait=100_000
        ) as lease:
            lease.extend(timedelta(hours=3))
        with leasehold_lock.compat.Lock(redis_client, name, timeout=7200) as lock:
            lock.extend(7200)


def test_it_is_warned_of_once() -> None:
    text = """
    import leasehold_lock as leasehold, sys
    client = leasehold.connect("redis://localhost:1")
    for number in range(5):
        client.lock(f"a{number}", ttl=10000)
    """
    run = subprocess.run(script(text), capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr.count("UnitWarning") == 1, run.stderr
