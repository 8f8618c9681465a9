"""What only our drop-in for redis-py's Lock has to show: its clients, its renewal, its exceptions."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Tuple

import pytest
import redis
import redis.exceptions
import redis.lock
from conftest import Run, Until
from server import Server

import leasehold
import leasehold.compat


def test_exceptions_are_redis_pys() -> None:
    for name in leasehold.compat.__all__:
        if name != "Lock":
            assert getattr(leasehold.compat, name) is getattr(redis.exceptions, name)


def test_every_argument_is_there() -> None:
    def parameters(function: Any) -> List[Tuple[str, Any]]:
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.default) for one in found]

    for method in ["acquire", "release", "extend", "reacquire", "locked", "owned"]:
        ours = parameters(getattr(leasehold.compat.Lock, method))
        assert ours == parameters(getattr(redis.lock.Lock, method)), method
    ours = parameters(leasehold.compat.Lock.__init__)
    assert ours[2:] == parameters(redis.lock.Lock.__init__)[2:]


def test_a_lock_without_a_timeout_is_renewed_and_has_a_ttl(
    redis_client: leasehold.Client, server: Server, name: str
) -> None:
    with leasehold.compat.Lock(redis_client, name):
        assert 20000 < server.pttl(name) <= 30000


def test_redis_py_makes_one_itself(theirs: "redis.Redis", server: Server, name: str) -> None:
    lock: Any = theirs.lock(name, timeout=5, lock_class=leasehold.compat.Lock)
    assert isinstance(lock, leasehold.compat.Lock)
    with lock:
        assert server.get(name) == lock.local.token


def test_an_object_of_redis_py_survives_a_fork(run: Run, server: Server, name: str) -> None:
    result = run(
        """
        import os, sys, warnings
        import redis, leasehold.compat
        warnings.simplefilter("ignore")
        _, port, name = sys.argv
        lock = leasehold.compat.Lock(redis.Redis(port=int(port)), name, timeout=5)
        with lock:
            pass
        child = os.fork()
        with lock:
            assert lock.owned()
        if child == 0:
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        """,
        str(server.port),
        name,
    )
    assert (result.stdout, result.stderr) == ("0\n", "")


def test_it_stands_in_no_queue(
    server: Server, redis_client: leasehold.Client, name: str, until: Until
) -> None:
    lease = redis_client.lock(name).acquire()
    queue = f"leasehold:queue:{{{name}}}"
    with leasehold.connect(server.url) as client, ThreadPoolExecutor() as threads:
        lock = leasehold.compat.Lock(client, name, timeout=5, sleep=0.01, thread_local=False)
        waiting = threads.submit(lock.acquire)
        until(lambda: client.counters().busy > 3)
        assert server.call("EXISTS", queue).strip() == b":0"
        # As whoever waits by default does.
        in_line = threads.submit(client.lock(name).acquire)
        until(lambda: server.call("EXISTS", queue).strip() == b":1")
        lease.release()
        in_line.result().release()
        assert waiting.result() is True
        lock.release()


def test_without_redis_py(run: Run, server: Server, name: str) -> None:
    result = run(
        """
        import sys
        sys.modules["redis"] = None
        import leasehold, leasehold.compat
        from leasehold.compat import Lock, LockError, LockNotOwnedError, RedisError
        lock = Lock(leasehold.connect(sys.argv[1]), sys.argv[2], timeout=5)
        with lock:
            pass
        try:
            lock.release()
        except LockError as error:
            print(isinstance(error, (RedisError)), isinstance(error, ValueError), error.lock_name)
        assert issubclass(LockNotOwnedError, LockError)
        """,
        server.url,
        name,
    )
    assert (result.stdout, result.stderr) == (f"True True {name}\n", "")


def test_the_certificates_of_a_redis_py_client() -> None:
    from leasehold.compat._clients import url_of

    pool: Any = redis.Redis.from_url("rediss://h:1/2?ssl_ca_certs=/a b.pem").connection_pool
    assert url_of(pool) == "rediss://h:1/2?ca=%2Fa%20b.pem"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis://:p%40ss@h", "redis://:p%40ss@h:6379/0"),
        ("redis://u:p@h:1", "redis://u:p@h:1/0"),
        ("redis://[::1]:7/0", "redis://[::1]:7/0"),
        ("unix:///tmp/a b.sock?db=3&password=x", "unix:///tmp/a%20b.sock?password=x&db=3"),
    ],
)
def test_the_server_of_a_redis_py_client(url: str, expected: str) -> None:
    from leasehold.compat._clients import url_of

    pool: Any = redis.Redis.from_url(url).connection_pool
    made = url_of(pool)
    assert made == expected
    leasehold.connect(made).close()  # It is one that Leasehold can read.


def test_a_token_of_ones_own_needs_redis_py(redis_client: leasehold.Client, name: str) -> None:
    with pytest.raises(TypeError, match="redis.Redis"):
        leasehold.compat.Lock(redis_client, name).acquire(token="mine")


def test_what_is_no_client_is_refused(name: str) -> None:
    wrong: Dict[str, Any] = {"connection_pool": 1}
    for client in [None, "redis://localhost", wrong]:
        with pytest.raises(TypeError, match="redis.Redis"):
            leasehold.compat.Lock(client, name)
    sentinels: Any = redis.Sentinel
    sentinel = sentinels([("localhost", 1)]).master_for("mymaster")
    with pytest.raises(TypeError, match="leasehold.connect"):
        leasehold.compat.Lock(sentinel, name)
