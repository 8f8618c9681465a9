"""What the tests share: servers, clients, names, and a way to wait for a condition."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
import redis
from server import Server, group

import leasehold_lock as leasehold

os.environ.pop("LEASEHOLD_URL", None)
os.environ["LEASEHOLD_CONF"] = os.devnull
# A test run in the background of a script ignores Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
_numbers = itertools.count()

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that all tests share; nobody stops it or flushes it."""
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server to be ill-treated."""
    made = Server()
    yield made
    made.stop()


@pytest.fixture(params=["redis", "sqlite"])
def url(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> str:
    store = server.url if request.param == "redis" else f"sqlite://{tmp_path}/locks.db"
    # Where many contend for a file on a busy machine, a second may be too short for one of them.
    return store + "?io_timeout=10s"


@pytest.fixture
def client(url: str) -> Iterator[leasehold.Client]:
    with leasehold.connect(url) as made:
        yield made


@pytest.fixture
def other(url: str) -> Iterator[leasehold.Client]:
    """Another client of the same store, as another process would have it."""
    with leasehold.connect(url) as made:
        yield made


@pytest.fixture
def redis_client(server: Server) -> Iterator[leasehold.Client]:
    with leasehold.connect(server.url + "?io_timeout=10s") as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"test:{next(_numbers)}"


@pytest.fixture
def theirs(server: Server) -> Iterator["redis.Redis"]:
    """A client of redis-py."""
    made = redis.Redis(port=server.port)
    yield made
    made.close()


@pytest.fixture(scope="session")
def sentinels() -> Iterator[list[tuple[str, int]]]:
    """Where Sentinels are that know `mymaster`."""
    with group("sentinel") as ports:
        yield [("127.0.0.1", port) for port in ports[-3:]]


@pytest.fixture(scope="session")
def cluster_ports() -> Iterator[list[int]]:
    """Of a Cluster."""
    with group("cluster") as ports:
        yield ports


Until = Callable[..., Any]


@pytest.fixture
def until() -> Until:
    """Waits for a condition, and fails if it does not come true."""

    def wait(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        end, late = time.monotonic() + seconds, False
        while True:
            value = condition()
            if value:
                return value
            assert not late, "it did not come true in time"
            # Asked once more after the end: this thread may have been kept from it before.
            late = time.monotonic() >= end
            time.sleep(0.005)

    return wait


Run = Callable[..., "subprocess.CompletedProcess[str]"]


def script(text: str, *arguments: str) -> list[str]:
    """The command of a Python program."""
    return [sys.executable, "-c", textwrap.dedent(text), *arguments]


@pytest.fixture
def run() -> Run:
    """Runs a Python program to its end, which must come."""

    def runs(text: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = script(text, *arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return runs
