"""What only our drop-in for redis-py's Lock has to show: its clients, its renewal, its exceptions."""

import inspect
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.client
import redis.exceptions
import redis.lock
import redis.sentinel
from conftest import Run, Until
from server import Server

import leasehold_lock as leasehold
import leasehold_lock.compat


def test_exceptions_are_redis_pys() -> None:
    for name in leasehold_lock.compat.__all__:
        if name != "Lock":
            assert getattr(leasehold_lock.compat, name) is getattr(redis.exceptions, name)


def test_every_argument_is_there() -> None:
    def parameters(function: Any) -> list[tuple[str, Any]]:
        found = inspect.signature(function).parameters.values()
        return [(one.name, one.default) for one in found]

    for method in ["acquire", "release", "extend", "reacquire", "locked", "owned"]:
        ours = parameters(getattr(leasehold_lock.compat.Lock, method))
        assert ours == parameters(getattr(redis.lock.Lock, method)), method
    ours = parameters(leasehold_lock.compat.Lock.__init__)
    assert ours == parameters(redis.lock.Lock.__init__)


def test_a_lock_without_a_timeout_is_renewed_and_has_a_ttl(
    redis_client: leasehold.Client, server: Server, name: str
) -> None:
    with leasehold_lock.compat.Lock(redis_client, name):
        assert 20000 < server.pttl(name) <= 30000


def test_redis_py_makes_one_itself(theirs: "redis.Redis", server: Server, name: str) -> None:
    lock: Any = theirs.lock(name, timeout=5, lock_class=leasehold_lock.compat.Lock)
    assert isinstance(lock, leasehold_lock.compat.Lock)
    with lock:
        assert server.get(name) == lock.local.token


def test_an_object_of_redis_py_survives_a_fork(run: Run, server: Server, name: str) -> None:
    result = run(
        """
        import os, sys, warnings
        import redis, leasehold_lock.compat
        warnings.simplefilter("ignore")
        _, port, name = sys.argv
        lock = leasehold_lock.compat.Lock(redis.Redis(port=int(port)), name, timeout=5)
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
        lock = leasehold_lock.compat.Lock(client, name, timeout=5, sleep=0.01, thread_local=False)
        waiting = threads.submit(lock.acquire)
        until(lambda: client.counters().busy > 3)
        assert server.call("EXISTS", queue).strip() == b":0"
        # As a waiter does by default.
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
        import leasehold_lock as leasehold, leasehold_lock.compat
        from leasehold_lock.compat import Lock, LockError, LockNotOwnedError, RedisError
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
    from leasehold_lock._borrowed._redis import url_of_source as url_of

    pool: Any = redis.Redis.from_url("rediss://h:1/2?ssl_ca_certs=/a b.pem").connection_pool
    assert url_of(pool) == "rediss://h:1/2?ca=%2Fa%20b.pem"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("redis://", "redis://localhost:6379/0"),
        ("redis:///3", "redis://localhost:6379/3"),
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis://:p%40ss@h", "redis://:p%40ss@h:6379/0"),
        ("redis://u:p@h:1", "redis://u:p@h:1/0"),
        ("redis://u@h:1", "redis://u:@h:1/0"),
        ("redis://[::1]:7/0", "redis://[::1]:7/0"),
        ("unix:///tmp/a b.sock?db=3&password=x", "unix:///tmp/a%20b.sock?password=x&db=3"),
        ("unix://u@/tmp/a.sock", "unix:///tmp/a.sock?user=u&password=&db=0"),
    ],
)
def test_the_server_of_a_redis_py_client(url: str, expected: str) -> None:
    from leasehold_lock._borrowed._redis import url_of_source as url_of

    pool: Any = redis.Redis.from_url(url).connection_pool
    made = url_of(pool)
    assert made == expected
    leasehold.connect(made).close()  # It is one that Leasehold can read.


def test_the_server_of_a_pool_that_names_none() -> None:
    from leasehold_lock._borrowed._redis import url_of_source as url_of

    assert url_of(redis.ConnectionPool()) == "redis://localhost:6379/0"
    assert url_of(redis.ConnectionPool(port=1)) == "redis://localhost:1/0"
    secure: Any = redis.ConnectionPool(connection_class=redis.SSLConnection, ssl_certfile="/a.pem")
    assert url_of(secure) == "rediss://localhost:6379/0?cert=%2Fa.pem&key=%2Fa.pem"


@pytest.mark.parametrize(
    "options, refused",
    [
        ({"ssl_check_hostname": True, "ssl_cert_reqs": "required"}, None),
        ({"ssl_cert_reqs": ssl.CERT_REQUIRED}, None),
        ({"ssl_check_hostname": False}, "ssl_check_hostname"),
        ({"ssl_cert_reqs": "none"}, "ssl_cert_reqs"),
        ({"ssl_cert_reqs": ssl.CERT_NONE}, "ssl_cert_reqs"),
        ({"ssl_ca_data": "PEM"}, "ssl_ca_data"),
        ({"ssl_ca_path": "/certificates"}, "ssl_ca_path"),
        ({"ssl_password": "secret"}, "ssl_password"),
        ({"ssl_ciphers": "ALL"}, "ssl_ciphers"),
        ({"ssl_min_version": ssl.TLSVersion.TLSv1_3}, "ssl_min_version"),
        ({"ssl_validate_ocsp": True}, "ssl_validate_ocsp"),
        ({"redis_connect_func": print}, "redis_connect_func"),
        ({"credential_provider": redis.UsernamePasswordCredentialProvider("u", "p")}, "credential"),
    ],
)
def test_a_connection_that_is_not_made_as_redis_py_would_is_refused(
    options: dict[str, Any], refused: Optional[str]
) -> None:
    client = redis.Redis(host="h", ssl=True, **options)
    if refused is None:
        leasehold_lock.compat.Lock(client, "name")
        return
    with pytest.raises(TypeError, match=f"{refused}.*leasehold.connect") as caught:
        leasehold_lock.compat.Lock(client, "name")
    assert "secret" not in str(caught.value)


def test_tls_files_without_tls_are_refused() -> None:
    plain: Any = redis.Redis.from_url("redis://h?ssl_ca_certs=/ca.pem")
    with pytest.raises(TypeError, match="ssl_ca_certs"):
        leasehold_lock.compat.Lock(plain, "name")


def test_a_connection_of_ones_own_is_refused() -> None:
    class Elsewhere(redis.Connection):
        pass

    pool: Any = redis.ConnectionPool(connection_class=Elsewhere)
    with pytest.raises(TypeError, match="Elsewhere.*leasehold.connect"):
        leasehold_lock.compat.Lock(redis.Redis(connection_pool=pool), "name")


@pytest.fixture
def cluster(cluster_ports: list[int]) -> Iterator["redis.RedisCluster"]:
    with redis.RedisCluster("127.0.0.1", cluster_ports[0]) as client:
        yield client


#: Redis-py has no types for it.
sentinel_of: Any = redis.sentinel.Sentinel


def use(client: Any, name: str) -> None:
    """A lock of ours beside one of redis-py."""
    lock: Any = client.lock(name, timeout=5, lock_class=leasehold_lock.compat.Lock)
    with lock:
        assert client.get(name) == lock.local.token and lock.extend(5)
        assert not client.lock(name, timeout=5).acquire(blocking=False)
    with client.lock(name, timeout=5):
        assert not lock.acquire(blocking=False)
    with lock:
        client.delete(name)
        with pytest.raises(leasehold_lock.compat.LockNotOwnedError):
            lock.release()
        assert lock.acquire(blocking=False)
    assert lock.acquire(token="mine") and client.get(name) == b"mine"
    lock.release()


def test_the_master_that_sentinels_name(sentinels: Any, name: str) -> None:
    manager = sentinel_of(sentinels)
    use(manager.master_for("mymaster"), name)
    with pytest.raises(TypeError, match="master_for"):
        leasehold_lock.compat.Lock(manager.slave_for("mymaster"), name)


def test_a_cluster(cluster: "redis.RedisCluster") -> None:
    for name in ["a", "b", "c", "{d}e"]:
        use(cluster, name)


def test_where_sentinels_are_and_what_they_are_told() -> None:
    from leasehold_lock._borrowed._redis import url_of_source as url_of

    def made(sentinel: Any = None, **options: Any) -> str:
        given = sentinel_of([("h", 1), ("::1", 2)], sentinel_kwargs=sentinel, **options)
        url = url_of(given.master_for("a b").connection_pool)
        leasehold.connect(url).close()  # It is one that Leasehold can read.
        return url

    assert made() == "redis+sentinel://h:1,[::1]:2/a%20b/0"
    assert made(db=3, password="p@") == "redis+sentinel://:p%40@h:1,[::1]:2/a%20b/3"
    told = {"username": "u", "password": "x"}
    expected = "redis+sentinel://h:1,[::1]:2/a%20b/0?sentinel_user=u&sentinel_password=x"
    assert made(told) == expected
    assert made(ssl=True) == "rediss+sentinel://h:1,[::1]:2/a%20b/0?sentinel_tls=no"
    assert made({"ssl": True}, ssl=True) == "rediss+sentinel://h:1,[::1]:2/a%20b/0"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ({"ssl": True}, {}, "speak TLS"),
        ({"ssl": True, "ssl_ca_certs": "/ca"}, {"ssl": True}, "different certificates"),
        ({"credential_provider": 1}, {}, "credential_provider"),
        ({}, {"min_other_sentinels": 1}, "min_other_sentinels"),
        ({}, {"force_master_ip": "10.0.0.1"}, "force_master_ip"),
        ({}, {"ssl": True, "ssl_ca_data": "PEM"}, "ssl_ca_data"),
    ]
    for sentinel, options, why in cases:
        with pytest.raises(leasehold.BadArgument, match=f"{why}.*leasehold.connect"):
            made(sentinel, **options)


def test_a_cluster_that_connects_in_a_way_of_its_own_is_refused(cluster: Any, name: str) -> None:
    node = cluster.get_nodes()[0]
    for option, value in [
        ("redis_connect_func", lambda connection: connection.on_connect()),
        ("address_remap", lambda address: address),
    ]:
        options: Any = {option: value}
        with redis.RedisCluster(node.host, node.port, **options) as client:
            with pytest.raises(TypeError, match=f"{option}.*leasehold.connect"):
                leasehold_lock.compat.Lock(client, name)


@pytest.mark.parametrize("value", ["5", b"5"])
def test_a_time_that_is_text(value: Any, theirs: "redis.Redis", name: str) -> None:
    kinds: list[Any] = [redis.lock.Lock, leasehold_lock.compat.Lock]
    for kind in kinds:
        with pytest.raises(redis.exceptions.ResponseError, match="not an integer"):
            kind(theirs, name, timeout=value).acquire(blocking=False)
        with kind(theirs, name, timeout=5) as lock:
            with pytest.raises(redis.exceptions.ResponseError, match="not an integer"):
                lock.extend(value)


def test_a_token_that_a_program_sets_as_it_likes(theirs: "redis.Redis", name: str) -> None:
    kinds: list[Any] = [redis.lock.Lock, leasehold_lock.compat.Lock]
    for kind in kinds:
        lock = kind(theirs, name, timeout=5)
        lock.acquire()
        lock.local.token = lock.local.token.decode()
        assert lock.extend(1) and lock.reacquire()
        lock.release()
        for other in ["x", 4711]:
            lock.local.token = other
            with pytest.raises(leasehold_lock.compat.LockNotOwnedError):
                lock.release()


def test_a_client_for_asyncio_is_refused(server: Server, name: str) -> None:
    client: Any = redis.asyncio.Redis(port=server.port)
    with pytest.raises(TypeError, match="asyncio"):
        leasehold_lock.compat.Lock(client, name, timeout=10)
    with pytest.raises(TypeError, match="asyncio"):
        client.lock(name, timeout=10, lock_class=leasehold_lock.compat.Lock)
    assert server.get(name) is None
    clustered: Any = redis.asyncio.RedisCluster(
        startup_nodes=[redis.asyncio.cluster.ClusterNode("h", 1)]
    )
    with pytest.raises(TypeError, match="asyncio"):
        leasehold_lock.compat.Lock(clustered, name, timeout=10)


def test_a_method_that_would_not_be_called_is_refused() -> None:
    for method in ["do_acquire", "do_release", "do_extend", "do_reacquire", "register_scripts"]:
        with pytest.raises(TypeError, match=f"Mine.{method}"):
            type("Mine", (leasehold_lock.compat.Lock,), {method: lambda self: None})


def test_redis_pys_classes_are_found_where_ours_stands_in_their_place(
    theirs: "redis.Redis", monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also where a program has replaced them before, and loads the package anew."""
    monkeypatch.setattr(redis.lock, "Lock", leasehold_lock.compat.Lock)
    monkeypatch.setattr(redis.client, "Lock", leasehold_lock.compat.Lock)
    from leasehold_lock.compat import _foreign

    _foreign.class_of.cache_clear()
    lock = theirs.lock(name, timeout=20)
    assert type(lock) is leasehold_lock.compat.Lock
    assert lock.acquire(token="mine") and lock.owned() and lock.extend(5) and lock.reacquire()
    lock.release()
    assert _foreign.class_of("redis.lock").__mro__[1:] == (object,)
    assert type(theirs.lock(name)) is leasehold_lock.compat.Lock


def test_a_script_of_ones_own_needs_redis_py(
    redis_client: leasehold.Client, server: Server, name: str
) -> None:
    lock = leasehold_lock.compat.Lock(redis_client, name, timeout=10)
    lock.lua_extend = print
    with lock:
        with pytest.raises(TypeError, match="script.*redis.Redis"):
            lock.extend(5)


def test_a_ttl_that_we_do_not_have_is_redis_pys_error(
    redis_client: leasehold.Client, name: str
) -> None:
    for timeout in [0.001, 367 * 24 * 3600]:
        with pytest.raises(redis.exceptions.ResponseError, match="from 3 ms to 366 d"):
            leasehold_lock.compat.Lock(redis_client, name, timeout=timeout).acquire()
    with leasehold_lock.compat.Lock(redis_client, name, timeout=10) as lock:
        with pytest.raises(redis.exceptions.ResponseError, match="from 3 ms to 366 d"):
            lock.extend(366 * 24 * 3600)
        assert lock.owned()


def test_a_name_that_is_none_is_refused(redis_client: leasehold.Client) -> None:
    for wrong in [True, None]:
        name: Any = wrong
        with pytest.raises(TypeError):
            leasehold_lock.compat.Lock(redis_client, name).acquire()


def test_a_token_of_ones_own_needs_redis_py(redis_client: leasehold.Client, name: str) -> None:
    with pytest.raises(TypeError, match="redis.Redis"):
        leasehold_lock.compat.Lock(redis_client, name).acquire(token="mine")


def test_what_is_no_client_is_refused(name: str) -> None:
    wrong: dict[str, Any] = {"connection_pool": 1}
    for client in [None, "redis://localhost", wrong]:
        with pytest.raises(TypeError, match="redis.Redis"):
            leasehold_lock.compat.Lock(client, name)
