"""Being told: subscriptions, and callbacks for losses."""

import gc
import logging
import select
import threading
import time

import pytest
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import EventKind, LossReason


def lose(server: Server, name: str) -> None:
    server.call("DEL", name)


def test_a_loss_is_an_event(server: Server, redis_client: leasehold.Client, name: str) -> None:
    with redis_client.events() as events:
        lease = redis_client.lock(name, ttl=3).acquire()
        lose(server, name)
        event = events.next_within(20)
        assert event == (EventKind.LOST, name, lease.fence, LossReason.NOT_HELD, "")
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
    seen: list[leasehold.Event] = []
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


def test_a_lease_calls_when_it_is_lost(
    server: Server,
    redis_client: leasehold.Client,
    name: str,
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"{name}:{number}" for number in range(4)]
    leases = [redis_client.lock(each, ttl=3).acquire() for each in names]
    threads: list[threading.Thread] = []
    lost: list[leasehold.Event] = []

    @leases[0].on_lost
    def broken(event: leasehold.Event) -> None:
        threads.append(threading.current_thread())
        raise SystemExit("a defect of the program")

    leases[1].on_lost(broken)
    assert leases[1].on_lost(lost.append) == lost.append
    leases[2].on_lost(broken)
    leases[2].on_lost(None)
    leases[3].on_lost(broken)
    with caplog.at_level(logging.ERROR, "leasehold"):
        for lease in leases[:3]:
            lose(server, lease.name)
        until(lambda: redis_client.counters().lost == 3 and bool(threads and lost))
    assert lost == [leasehold.Event(EventKind.LOST, names[1], leases[1].fence, LossReason.NOT_HELD)]
    assert "a defect of the program" in caplog.text
    # At once, in the same thread, when it was lost before.
    for count in (2, 3):
        leases[1].on_lost(lambda event: threads.append(threading.current_thread()))
        until(lambda: len(threads) == count)
    assert threads[0] is threads[1] is threads[2] is not threading.main_thread()
    assert leases[3].valid and len(lost) == 1
    leases[3].release()
    leases[3].on_lost(None)
    with pytest.raises(leasehold.Lost):
        leases[3].on_lost(broken)
    with pytest.raises(TypeError):
        leases[1].on_lost("no function")  # type: ignore[type-var]


def test_no_loss_falls_between_being_told_and_registering(
    redis_client: leasehold.Client, name: str, until: Until
) -> None:
    lock = redis_client.lock(name, ttl=0.05)
    for number in range(30):
        lost: list[leasehold.Event] = []
        lease = lock.acquire()
        time.sleep(max(lease.remaining - 0.005, 0) + number * 0.0003)
        lease.on_lost(lost.append)
        until(lambda: len(lost) == 1)


def test_an_ended_lease_calls_nobody(
    server: Server, redis_client: leasehold.Client, name: str, until: Until
) -> None:
    """Although the loss came first, and waits to be told."""
    lost: list[leasehold.Event] = []
    held_up, go_on = threading.Event(), threading.Event()
    slow = redis_client.lock(name + ":slow", ttl=1).acquire()

    @slow.on_lost
    def wait(event: leasehold.Event) -> None:
        held_up.set()
        go_on.wait(20)

    released, dropped = (redis_client.lock(name + end, ttl=1).acquire() for end in "ab")
    last = redis_client.lock(name + ":last", ttl=1).acquire()
    for lease in (released, dropped, last):
        lease.on_lost(lost.append)
    lose(server, slow.name)
    assert held_up.wait(20)
    # A slow callback holds up no renewal.
    renewed = redis_client.counters().renewed
    until(lambda: redis_client.counters().renewed > renewed + 3)
    for lease in (released, dropped, last):
        lose(server, lease.name)
    until(lambda: redis_client.counters().lost == 4)
    with pytest.raises(leasehold.Lost):
        released.release()
    del lease, dropped
    go_on.set()
    until(lambda: bool(lost))
    assert [event.name for event in lost] == [last.name]


def test_a_callback_may_do_anything(server: Server, name: str, until: Until) -> None:
    client = leasehold.connect(server.url)
    lease = client.lock(name, ttl=1).acquire()
    done: list[bool] = []

    @lease.on_lost
    def end(event: leasehold.Event) -> None:
        with pytest.raises(leasehold.Lost):
            lease.release()
        with client.lock(name) as again:
            again.on_lost(print)
        client.close()
        done.append(True)

    lose(server, name)
    until(lambda: bool(done))


def test_a_callback_keeps_no_lease(redis_client: leasehold.Client, name: str, until: Until) -> None:
    lease = redis_client.lock(name, ttl=1).acquire()
    lease.on_lost(lambda event, lease=lease: None)
    del lease
    gc.collect()
    # One that was kept would be renewed.
    redis_client.lock(name).acquire_within(20).release()


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
    lease = client.lock(name).acquire()
    lease.on_lost(print)
    assert watchers() == before + 1
    del client, lease  # Nobody has it any more, so it closes.
    until(lambda: watchers() == before)
