"""What is said when the store fails."""

import os
import threading
import time
from typing import Any

import pytest
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import EventKind, LossReason


def test_a_server_that_sleeps(own_server: Server, name: str, until: Until) -> None:
    client = leasehold.connect(own_server.url, io_timeout=0.3)
    events = client.events()
    lock = client.lock(name, ttl=1.5)
    lease = lock.acquire()
    own_server.fall_asleep()
    try:
        start = time.monotonic()
        with pytest.raises(leasehold.Error) as caught:
            client.lock(name + ":other").try_acquire()
        assert type(caught.value) in (leasehold.NoAnswer, leasehold.Unknown)
        assert caught.value.retriable and time.monotonic() - start < 10
        # The holder is told before its validity ends, and then it has ended.
        risk, loss = events.next_within(20), events.next_within(20)
        assert risk is not None and loss is not None
        assert (risk.kind, loss.kind) == (EventKind.AT_RISK, EventKind.LOST)
        assert risk.fence == loss.fence == lease.fence
        assert loss.reason is LossReason.EXPIRED and not lease.valid
        start = time.monotonic()
        with pytest.raises((leasehold.Lost, leasehold.Unknown)):
            lease.release()
        with pytest.raises(leasehold.Error):
            client.lock(name).acquire_within(0.4)
        assert time.monotonic() - start < 10
    finally:
        own_server.wake_up()
    # When it is awake, everything goes on.
    with leasehold.connect(own_server.url) as later:
        later.lock(name).acquire_within(20).release()
        later.lock(name + ":other").acquire_within(60).release()
    client.close()


def test_a_block_ends_at_once_when_the_server_sleeps_and_the_lease_is_valid(
    own_server: Server, name: str
) -> None:
    client = leasehold.connect(own_server.url, io_timeout=5)
    events = client.events()
    try:
        with client.lock(name, ttl=30) as lease:
            own_server.fall_asleep()
            start = time.monotonic()
        assert time.monotonic() - start < 4
        event = events.next_within(20)
        assert event is not None
        assert (event.kind, event.fence) == (EventKind.RELEASED_LATE, lease.fence)
    finally:
        own_server.wake_up()
    with leasehold.connect(own_server.url) as later:
        later.lock(name).acquire_within(20).release()
    client.close()


def test_a_block_ends_with_an_error_when_the_server_sleeps_and_the_lease_is_over(
    own_server: Server, name: str, until: Until
) -> None:
    client = leasehold.connect(own_server.url, io_timeout=0.3)
    lock = client.lock(name, ttl=0.2, wait=20, renew=False)
    try:
        with pytest.raises((leasehold.Lost, leasehold.Unknown)):
            with lock as lease:
                own_server.fall_asleep()
                until(lambda: not lease.valid)
        with pytest.raises(ZeroDivisionError):  # which is more important
            own_server.wake_up()
            with lock as lease:
                own_server.fall_asleep()
                until(lambda: not lease.valid)
                1 / 0
    finally:
        own_server.wake_up()
    client.close()


def test_other_threads_run_while_one_waits_for_a_sleeping_server(
    own_server: Server, name: str
) -> None:
    client = leasehold.connect(own_server.url, io_timeout=1)
    client.ping()
    own_server.fall_asleep()

    def ping() -> None:
        with pytest.raises(leasehold.Error):
            client.ping()

    try:
        thread = threading.Thread(target=ping)
        thread.start()
        turns = 0
        while thread.is_alive():
            turns += 1
            time.sleep(0.001)
        assert turns > 50
    finally:
        own_server.wake_up()
    client.close()


def test_nobody_listens(own_server: Server, name: str) -> None:
    own_server.stop()
    with leasehold.connect(own_server.url, io_timeout=0.3) as client:
        for call in [client.ping, client.lock(name).try_acquire]:
            with pytest.raises(leasehold.Refused) as caught:
                call()
            assert isinstance(caught.value, ConnectionError) and caught.value.retriable
            assert str(own_server.port) in str(caught.value)


def test_an_error_says_once_what_to_do() -> None:
    with leasehold.connect("unix:///nowhere/at/all") as client:
        with pytest.raises(leasehold.Refused) as caught:
            client.ping()
    said = caught.value
    assert "there is no socket /nowhere/at/all: start the server" in said.detail
    assert str(said) == f"the store cannot be reached: {said.detail}"


def test_a_wait_outlasts_a_restart(own_server: Server, name: str, until: Until) -> None:
    client = leasehold.connect(own_server.url, io_timeout=0.3)
    lease = client.lock(name).acquire()
    outcome: list[Any] = []
    thread = threading.Thread(
        target=lambda: outcome.append(client.lock(name + ":other").acquire_within(60))
    )
    blocker = client.lock(name + ":other", ttl=60).acquire()
    thread.start()
    until(lambda: client.counters().busy)
    own_server.call("CLIENT", "KILL", "TYPE", "normal")
    blocker.release()
    thread.join(60)
    assert len(outcome) == 1 and outcome[0].valid
    outcome[0].release()
    lease.release()
    client.close()


def test_a_foreign_key(redis_client: leasehold.Client, server: Server, name: str) -> None:
    server.call("LPUSH", name, "a list")
    lock = redis_client.lock(name)
    for call in [lock.try_acquire, lock.acquire, lock.inspect]:
        with pytest.raises(leasehold.WrongType) as caught:
            call()
        assert not caught.value.retriable and caught.value.detail
    server.call("DEL", name)


def test_what_the_server_forbids(own_server: Server, name: str) -> None:
    own_server.call("ACL", "SETUSER", "guest", "on", ">secret", "~other:*", "+@all")
    with leasehold.connect(f"redis://guest:secret@127.0.0.1:{own_server.port}") as client:
        with pytest.raises(leasehold.Permission):
            client.lock(name).try_acquire()
    with leasehold.connect(f"redis://guest:wrong@127.0.0.1:{own_server.port}") as client:
        with pytest.raises(leasehold.Auth):
            client.ping()


def test_a_file_that_cannot_be_used(tmp_path: Any) -> None:
    file = tmp_path / "locks.db"
    file.write_text("this is no database, and long enough to be seen as none" * 100)
    with pytest.raises(leasehold.Storage):
        leasehold.connect(f"sqlite://{file}")
    if os.getuid() != 0:
        file.chmod(0)
        with pytest.raises(leasehold.Storage):
            leasehold.connect(f"sqlite://{file}")
