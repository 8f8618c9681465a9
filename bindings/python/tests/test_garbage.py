"""What is lost to garbage collection stops being renewed and is not released."""

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any, List

import pytest
from conftest import Until
from server import Server

import leasehold


def test_a_lost_lease_runs_out_by_its_ttl(
    client: leasehold.Client, other: leasehold.Client, name: str, until: Until
) -> None:
    lease = client.lock(name, ttl=1).acquire()
    assert lease.valid
    del lease
    state = other.lock(name).inspect()
    assert state.held
    # Nobody renews it, so this is less than the ttl and goes on falling.
    other.lock(name).acquire(wait=20).release()
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
    other.lock(name).acquire(wait=20).release()


def test_a_lease_keeps_its_client_open(url: str, name: str) -> None:
    lease = leasehold.connect(url).lock(name).acquire()
    gc.collect()
    lease.extend()
    assert lease.valid
    lease.release()


def test_a_with_block_keeps_its_lease(url: str, other: leasehold.Client, name: str) -> None:
    with leasehold.connect(url).lock(name):
        gc.collect()
        assert other.lock(name).try_acquire() is None
    assert not other.lock(name).inspect().held


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
    kept: List[leasehold.Error] = []
    with client.lock(name):
        try:
            other.lock(name).acquire(wait=0)
        except leasehold.Timeout as error:
            kept.append(error)
    try:
        client.lock("").try_acquire()
    except leasehold.BadArgument as error:
        kept.append(error)
    leases = [client.lock(f"{name}:{number}", ttl=1).acquire() for number in range(10)]
    del leases
    for number in range(10):
        other.lock(f"{name}:{number}").acquire(wait=20).release()
    assert len(kept) == 2
