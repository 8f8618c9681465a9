"""Fakes of Redis that serve TCP, with a client of Leasehold on them: what the guide on tests says of each."""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from conftest import Until
from fakeredis._clients import _tcp_server

import leasehold_lock as leasehold

MINIREDIS = Path(__file__).resolve().parents[3] / "tests/fakes/miniredis"
PATIENT = "?io_timeout=20s"


@pytest.fixture(scope="session")
def miniredis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one in which time passes."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("miniredis is built with Go")
    program = tmp_path_factory.mktemp("miniredis") / "miniredis"
    subprocess.run([go, "build", "-o", program, "."], cwd=MINIREDIS, check=True, timeout=300)
    pipe = subprocess.PIPE
    with subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


def serve() -> "tuple[fakeredis.TcpFakeServer, str]":
    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"127.0.0.1:{server.socket.getsockname()[1]}"


def end(server: "fakeredis.TcpFakeServer") -> None:
    server.shutdown()
    server.server_close()


@pytest.fixture
def mended_fakeredis(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One whose scripts return bulk strings, as those of a Redis do."""
    encode = _tcp_server.encode_reply

    def encode_reply(value: Any, protocol: int, nested: bool = False) -> bytes:
        is_text = isinstance(value, (bytes, str)) and value not in (b"OK", "OK", b"PONG", "PONG")
        return encode(value, protocol, nested or is_text)

    monkeypatch.setattr(_tcp_server, "encode_reply", encode_reply)
    server, address = serve()
    yield address
    end(server)


@pytest.fixture(params=["miniredis", "mended_fakeredis"])
def url(request: pytest.FixtureRequest) -> str:
    return f"redis://{request.getfixturevalue(request.param)}{PATIENT}"


def test_clients_exclude_each_other_and_fences_grow(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    fences = []
    for turn in (client, other, client):
        with turn.lock(name) as lease:
            fences.append(lease.fence)
            assert client.lock(name).try_acquire() is None
            assert other.lock(name).try_acquire() is None
            assert other.lock(name).inspect().held
    assert fences == sorted(set(fences))


def test_a_release_hands_the_lock_to_the_first_waiter(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    got: list[int] = []
    lease = client.lock(name).acquire()

    def wait() -> None:
        with other.lock(name, wait=60) as own:
            got.append(own.fence)

    waiter = threading.Thread(target=wait)
    waiter.start()
    until(lambda: client.lock(name).inspect().waiters)
    lease.release()
    waiter.join(60)
    assert got and got[0] > lease.fence


def test_leases_are_renewed_and_expire(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    renewed = client.lock(name, ttl=3).acquire()
    dead = client.lock(name + ":dead", ttl=0.3, renew=False).acquire()
    until(lambda: client.counters().renewed >= 2)
    other.lock(name + ":dead", wait=60).acquire().release()
    assert not dead.valid
    assert renewed.valid and other.lock(name).try_acquire() is None
    renewed.extend()
    renewed.release()


def test_a_lease_is_left_detached_and_broken(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    client.lock(name).acquire().let_expire(after=0.3)
    assert other.lock(name).try_acquire() is None
    lease = other.lock(name, wait=60).acquire()
    handed = lease.detach()
    attached = client.lock(name).attach(handed.token, handed.fence)
    attached.extend()
    other.lock(name).break_held(by="a test")
    with pytest.raises(leasehold.Lost, match="broken by"):
        attached.extend()


def test_clients_of_many_threads_are_never_inside_at_once(url: str, name: str) -> None:
    inside: list[int] = []
    most: list[int] = []

    def contend(number: int) -> None:
        with leasehold.connect(url) as own:
            for _ in range(5):
                with own.lock(name, wait=60):
                    inside.append(number)
                    most.append(len(inside))
                    time.sleep(0)
                    inside.remove(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


def test_fakeredis_by_itself_answers_scripts_in_another_form_than_redis() -> None:
    """As long as this holds, the guide says so."""
    server, address = serve()
    with leasehold.connect(f"redis://{address}{PATIENT}") as client:
        with pytest.raises(leasehold.Protocol, match="a reply that cannot be read: simple-string"):
            client.lock("a").try_acquire()
    end(server)
