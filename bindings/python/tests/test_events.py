"""Being told: subscriptions, and callbacks for losses."""

import logging
import select
import threading
import time
from typing import List

import pytest
from conftest import Until
from server import Server

import leasehold
from leasehold import EventKind, LossReason


def lose(server: Server, name: str) -> None:
    server.call("DEL", name)


def test_a_loss_is_an_event(server: Server, redis_client: leasehold.Client, name: str) -> None:
    with redis_client.events() as events:
        lease = redis_client.lock(name, ttl=3).acquire()
        lose(server, name)
        event = events.next_within(20)
        assert event == (EventKind.LOST, name, lease.fence, LossReason.NOT_HELD)
        assert not lease.valid
        with pytest.raises(leasehold.Lost):
            lease.release()


def test_a_lease_at_risk_is_an_event(redis_client: leasehold.Client, name: str) -> None:
    with redis_client.events() as events:
        lease = redis_client.lock(name, ttl=2, max_hold=3).acquire()
        kinds = [event.kind for event in (events.next_within(20), events.next_within(20)) if event]
        assert kinds == [EventKind.AT_RISK, EventKind.LOST] and not lease.valid


def test_the_descriptor_is_readable_when_there_is_something_to_read(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    with redis_client.events() as events:
        assert select.select([events], [], [], 0) == ([], [], [])
        lease = redis_client.lock(name, ttl=3).acquire()
        lose(server, name)
        assert select.select([events], [], [], 20)[0] == [events]
        event = events.try_next()
        assert event is not None and event.fence == lease.fence
        assert events.try_next() is None and events.dropped == 0


def test_iterating_ends_with_the_client(server: Server, name: str) -> None:
    client = leasehold.connect(server.url)
    seen: List[leasehold.Event] = []
    events = client.events()
    reader = threading.Thread(target=lambda: seen.extend(events))
    reader.start()
    lease = client.lock(name, ttl=3).acquire()
    lose(server, name)
    with client.events() as others:
        others.next_within(20)
    client.close()
    reader.join(20)
    assert not reader.is_alive() and [event.fence for event in seen] == [lease.fence]


def test_closing_a_subscription_ends_its_reader(redis_client: leasehold.Client) -> None:
    events = redis_client.events()
    reader = threading.Thread(target=lambda: list(events))
    reader.start()
    events.close()
    events.close()
    reader.join(20)
    assert not reader.is_alive() and events.fileno() == -1
    with pytest.raises(leasehold.Closed):
        events.try_next()


def test_waiting_for_an_event_takes_its_time(redis_client: leasehold.Client) -> None:
    with redis_client.events() as events:
        start = time.monotonic()
        assert events.next_within(0.25) is None
        assert time.monotonic() - start > 0.2


def test_callbacks_for_losses(
    server: Server,
    redis_client: leasehold.Client,
    name: str,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = redis_client.lock(name, ttl=3)
    threads: List[threading.Thread] = []
    lost: List[leasehold.Event] = []

    @lock.on_lost
    def broken(event: leasehold.Event) -> None:
        threads.append(threading.current_thread())
        raise RuntimeError("a defect of the program")

    assert lock.on_lost(lost.append) == lost.append
    redis_client.lock(name + ":other").on_lost(lost.append)
    with caplog.at_level(logging.ERROR, "leasehold"):
        for count in (1, 2):
            lease = lock.acquire()
            lose(server, name)
            until(lambda: len(lost) == count)
            assert lost[-1].fence == lease.fence and lost[-1].reason is LossReason.NOT_HELD
    assert threads[0] is threads[1] is not threading.main_thread()
    assert "a defect of the program" in caplog.text


def test_a_release_is_no_loss(redis_client: leasehold.Client, name: str) -> None:
    with redis_client.events() as events:
        with redis_client.lock(name):
            pass
        assert events.next_within(0.2) is None


def test_the_thread_for_callbacks_ends_with_the_client(
    server: Server, name: str, until: Until
) -> None:
    def watchers() -> int:
        return [thread.name for thread in threading.enumerate()].count("leasehold-events")

    before = watchers()
    client = leasehold.connect(server.url)
    client.lock(name).on_lost(print)
    assert watchers() == before + 1
    del client  # Nobody has it any more, so it closes.
    until(lambda: watchers() == before)
