"""What is lost to garbage collection stops being renewed and is not released."""

import gc
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock._rooms import Room


def test_a_lost_lease_runs_out_by_its_ttl(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    lease = client.lock(name, ttl=1).acquire()
    assert lease.valid
    del lease
    state = other.lock(name).inspect()
    assert state.held
    # Nobody renews it, so this is less than the ttl and goes on falling.
    other.lock(name).acquire_within(20).release()
    assert client.counters().renewed == 0


def test_a_lease_lost_right_after_it_was_handed_over_runs_out_by_its_ttl(
    server: Server, redis_client: leasehold.Client, name: str, until: Until
) -> None:
    with leasehold.connect(server.url) as other, ThreadPoolExecutor() as pool:
        held = other.lock(name).acquire()
        waiter = pool.submit(lambda: redis_client.lock(name).acquire().fence)
        until(lambda: redis_client.counters().busy > 0)
        held.release()
        fence = waiter.result()
        # Its client claims it for its whole ttl all the same, and then leaves it.
        until(lambda: (other.lock(name).inspect().ttl or 0) > 20)
        assert other.lock(name).inspect().fence == fence
        assert redis_client.counters().renewed == 0


def test_a_cycle_of_garbage(url: str, other: leasehold.Client, name: str) -> None:
    class Node:
        me: Any
        kept: Any

    client = leasehold.connect(url)
    node = Node()
    node.me, node.kept = node, [client, client.lock(name), client.lock(name, ttl=1).acquire()]
    del node, client
    gc.collect()
    assert other.lock(name).inspect().held
    other.lock(name).acquire_within(20).release()


def test_a_lease_keeps_its_client_open(url: str, name: str) -> None:
    lease = leasehold.connect(url).lock(name).acquire()
    gc.collect()
    lease.extend()
    assert lease.valid
    lease.release()


def test_a_room_that_an_interrupt_left_empty_goes_quietly() -> None:
    Room.__new__(Room).__del__()


def test_a_with_block_keeps_its_lease(
    url: str, other: leasehold.Client, name: str, until: Until
) -> None:
    with leasehold.connect(url).lock(name):
        gc.collect()
        assert other.lock(name).try_acquire() is None
    until(lambda: not other.lock(name).inspect().held)


def test_a_block_that_another_thread_ends_leaves_its_lease_to_the_ttl(
    url: str, other: leasehold.Client, name: str
) -> None:
    client = leasehold.connect(url)

    def block() -> Generator[None, None, None]:
        with client.lock(name, ttl=1):
            yield

    entered, ended, over = block(), threading.Event(), threading.Event()

    def enter() -> None:
        next(entered)  # noqa: F821
        ended.set()
        over.wait()

    thread = threading.Thread(target=enter)
    thread.start()
    try:
        assert ended.wait(20)
        with pytest.raises(RuntimeError):  # That thread is not in the block.
            entered.close()
        assert other.lock(name).inspect().held
        del entered
        # The thread in which it began lives on.
        other.lock(name).acquire_within(20).release()
    finally:
        over.set()
        thread.join()
    client.close()


@pytest.mark.parametrize("times", [1000])
def test_nothing_grows(redis_client: leasehold.Client, name: str, times: int) -> None:
    lock = redis_client.lock(name)

    def objects() -> int:
        for _ in range(times):
            with lock:
                pass
            lock.acquire().release()
        gc.collect()
        return len(gc.get_objects())

    objects()
    before = objects()
    assert objects() < before + times // 2


def test_an_exception_that_is_kept_keeps_no_later_lease(
    client: leasehold.Client, other: leasehold.Client, name: str
) -> None:
    kept: list[leasehold.Error] = []
    with client.lock(name):
        try:
            other.lock(name).acquire_within(0)
        except leasehold.Timeout as error:
            kept.append(error)
    try:
        client.lock("").try_acquire()
    except leasehold.BadArgument as error:
        kept.append(error)
    leases = [client.lock(f"{name}:{number}", ttl=1).acquire() for number in range(10)]
    del leases
    for number in range(10):
        other.lock(f"{name}:{number}").acquire_within(20).release()
    assert len(kept) == 2
