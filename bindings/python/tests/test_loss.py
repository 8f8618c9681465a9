"""A loss in Python's own words: a block that is cancelled, and a check. A lease that was released is never told
to be lost."""

import asyncio
import contextlib
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any, Callable, TypeVar

import pytest
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import LossReason, aio

_T = TypeVar("_T")
#: How long a test looks for a loss that was none.
STRESS_S = 60 if os.environ.get("KIT_LONG") else 12


def play(story: "Coroutine[Any, Any, _T]") -> _T:
    return asyncio.run(asyncio.wait_for(story, 60))


def break_it(lease: leasehold.Lease) -> None:
    """An operator breaks the lock, and the client hears of it at once, where else the next renewal would."""
    assert lease._client.lock(lease.name).break_held("ada@desk")  # type: ignore[attr-defined]
    with contextlib.suppress(leasehold.Lost):
        lease.extend()


@pytest.fixture
def lock(redis_client: leasehold.Client, name: str) -> leasehold.Lock:
    """A lock that no busy machine loses."""
    return redis_client.lock(name, ttl=60)


# ---- a check -----------------------------------------------------------------------------------


def test_a_check_raises_once_the_lease_is_lost(
    lock: leasehold.Lock, name: str, until: Until
) -> None:
    lease = lock.acquire()
    lease.raise_if_lost()
    break_it(lease)
    until(lambda: not lease.valid)
    for _ in range(2):
        with pytest.raises(leasehold.Lost, match=f"the lease on '{name}' was lost"):
            lease.raise_if_lost()


def test_a_check_raises_once_the_lease_has_ended(lock: leasehold.Lock) -> None:
    with lock as lease:
        lease.raise_if_lost()
    with pytest.raises(leasehold.Lost, match="ended before: released"):
        lease.raise_if_lost()


# ---- a block -----------------------------------------------------------------------------------


def test_a_block_is_cancelled_and_raises(lock: leasehold.Lock, name: str) -> None:
    async def story() -> None:
        lease = await aio.acquire(lock)
        seen: list[Any] = []
        with pytest.raises(leasehold.Lost, match=f"'{name}' was lost: .*ada@desk") as caught:
            async with lease.scope() as same:
                assert same is lease
                break_it(lease)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError as error:
                    seen.append(error)
                    raise
        assert seen == [caught.value.__cause__]
        # The task itself goes on.
        task = asyncio.current_task()
        assert task is not None and getattr(task, "cancelling", int)() == 0
        await asyncio.sleep(0.01)

    play(story())


def test_a_lock_and_a_scope_in_one_statement(lock: leasehold.Lock, name: str) -> None:
    async def story() -> None:
        with pytest.raises(leasehold.Lost):
            async with lock as lease, lease.scope():
                break_it(lease)
                await asyncio.sleep(60)
        async with lock as lease, lease.scope():
            await asyncio.sleep(0.01)

    play(story())


def test_a_block_that_ends_in_time_raises_nothing(
    redis_client: leasehold.Client, name: str
) -> None:
    async def story() -> None:
        lease = await aio.acquire(redis_client.lock(name, ttl=1, renew=False))
        async with lease.scope():
            await aio.release(lease)
            # It has ended before its ttl is over.
            await asyncio.sleep(1.1)
        await asyncio.sleep(0)

    play(story())


def test_a_loss_that_no_event_loop_has_heard_of(redis_client: leasehold.Client, name: str) -> None:
    """The block blocks its loop, and ends before the loop could cancel it."""

    async def story() -> None:
        lease = await aio.acquire(redis_client.lock(name, ttl=0.5, renew=False))
        with pytest.raises(leasehold.Lost, match="was lost$"):
            async with lease.scope():
                time.sleep(0.6)
        await asyncio.sleep(0.05)  # Nothing comes late.

    play(story())


def test_what_was_lost_before_begins_no_block(redis_client: leasehold.Client, name: str) -> None:
    async def story() -> None:
        lease = await aio.acquire(redis_client.lock(name, ttl=0.1, renew=False))
        await asyncio.sleep(0.2)
        with pytest.raises(leasehold.Lost):
            async with lease.scope():
                raise AssertionError("it has begun")
        async with redis_client.lock(name, ttl=10) as lease:
            await aio.release(lease)
            with pytest.raises(leasehold.Lost, match="ended before"):
                async with lease.scope():
                    raise AssertionError("it has begun")

    play(story())


def test_what_the_block_raises_comes_first(lock: leasehold.Lock, name: str) -> None:
    async def story() -> None:
        lease = await aio.acquire(lock)
        with pytest.raises(KeyError):
            async with lease.scope():
                break_it(lease)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise KeyError from None
        await asyncio.sleep(0.01)

    play(story())


def test_a_block_that_catches_its_cancellation_raises_all_the_same(
    lock: leasehold.Lock, name: str
) -> None:
    async def story() -> None:
        lease = await aio.acquire(lock)
        with pytest.raises(leasehold.Lost):
            async with lease.scope():
                break_it(lease)
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)

    play(story())


def test_a_cancellation_from_elsewhere_is_not_swallowed(lock: leasehold.Lock) -> None:
    async def work(begun: asyncio.Event) -> None:
        async with lock as lease, lease.scope():
            begun.set()
            await asyncio.sleep(60)

    async def story() -> None:
        begun = asyncio.Event()
        task = asyncio.ensure_future(work(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    play(story())


@pytest.mark.parametrize("within", ["a sleep", "another task"])
@pytest.mark.parametrize("first", ["loss", "other"])
def test_a_cancellation_that_comes_with_a_loss_is_not_swallowed(
    first: str, within: str, lock: leasehold.Lock
) -> None:
    event = leasehold.Event(leasehold.EventKind.LOST, lock.name, 1, LossReason.BROKEN)

    async def story() -> None:
        lease = await aio.acquire(lock)
        scopes = []

        async def work() -> None:
            scope = lease.scope()
            async with scope:
                scopes.append(scope)
                sleep = asyncio.sleep(60)
                await (asyncio.ensure_future(sleep) if within == "another task" else sleep)

        task = asyncio.ensure_future(work())
        while not scopes:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        # Both before the task runs again.
        both: list[Callable[[], Any]] = [lambda: scopes[0]._on_lost(event), task.cancel]
        for one in both if first == "loss" else reversed(both):
            one()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        await asyncio.sleep(0.02)
        await aio.release(lease)

    play(story())


def test_a_timeout_within_and_around(lock: leasehold.Lock, name: str) -> None:
    async def story() -> None:
        lease = await aio.acquire(lock)
        async with lease.scope():
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.sleep(60), 0.02)
            break_it(lease)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.sleep(60), 50)
            raise ZeroDivisionError

    async def around() -> None:
        lease = await aio.acquire(lock)
        async with lease.scope():
            await asyncio.sleep(60)

    with pytest.raises(ZeroDivisionError):
        play(story())

    async def limited() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(around(), 0.05)

    play(limited())


def test_scopes_within_each_other(redis_client: leasehold.Client, name: str) -> None:
    """Each ends with its own lease, and the outer one's error is not the inner one's."""

    async def story(lost: str) -> list[str]:
        told: list[str] = []
        names = {one: f"{name}:{lost}:{one}" for one in ("outer", "inner")}
        leases = {one: await aio.acquire(redis_client.lock(names[one], ttl=60)) for one in names}
        try:
            async with leases["outer"].scope():
                try:
                    async with leases["inner"].scope():
                        break_it(leases[lost])
                        await asyncio.sleep(60)
                except leasehold.Lost:
                    told.append("inner")
                    await asyncio.sleep(0.15)
        except leasehold.Lost:
            told.append("outer")
        for one in leases.values():
            if one.valid:
                await aio.release(one)
        return told

    assert play(story("inner")) == ["inner"]
    assert play(story("outer")) == ["outer"]


def test_two_tasks_have_a_scope_of_one_lease_beside_a_callback(
    lock: leasehold.Lock, name: str
) -> None:
    async def story() -> None:
        lease = await aio.acquire(lock)
        told: list[LossReason] = []
        lease.on_lost(lambda event: told.append(event.reason))

        async def work() -> None:
            async with lease.scope():
                await asyncio.sleep(60)

        async def short() -> None:
            async with lease.scope():
                await asyncio.sleep(0)

        works = [asyncio.ensure_future(one()) for one in (work, work, short)]
        await works[2]
        break_it(lease)
        ends = await asyncio.gather(*works, return_exceptions=True)
        assert [type(one) for one in ends] == [leasehold.Lost, leasehold.Lost, type(None)]
        while not told:
            await asyncio.sleep(0.005)
        assert told == [LossReason.BROKEN]

    play(story())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups of tasks came with Python 3.11")
def test_a_group_of_tasks_ends_with_the_lease(lock: leasehold.Lock, name: str) -> None:
    async def story() -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("work")
                raise

        lease = await aio.acquire(lock)
        with pytest.raises(leasehold.Lost):
            async with lease.scope():
                group: Any = asyncio.TaskGroup()  # type: ignore[attr-defined, unused-ignore]
                async with group:
                    group.create_task(work())
                    group.create_task(work())
                    await asyncio.sleep(0)
                    break_it(lease)
        assert ended == ["work", "work"]

    play(story())


def test_a_scope_is_for_one_task_and_one_time(lock: leasehold.Lock) -> None:
    async def story() -> None:
        async with lock as lease:
            scope = lease.scope()
            async with scope:
                pass
            with pytest.raises(RuntimeError, match="entered before"):
                async with scope:
                    pass
        with pytest.raises((TypeError, AttributeError)):
            with lease.scope():  # type: ignore[attr-defined]
                pass

    play(story())


def test_a_closed_client_ends_the_block_with_an_error(server: Server, name: str) -> None:
    async def story() -> None:
        client = leasehold.connect(server.url, io_timeout=10)
        lease = await aio.acquire(client.lock(name))
        with pytest.raises(leasehold.Lost):
            async with lease.scope():
                client.close()

    play(story())


# ---- never for one that was released -----------------------------------------------------------


def test_a_lease_that_was_released_is_never_told_to_be_lost(server: Server) -> None:
    """Leases with the shortest ttl that is renewed are released around their renewals, each at a moment of its
    own: from threads with callbacks, and from tasks with scopes. A busy machine may lose some; then the
    release says so."""
    told: set[int] = set()
    released: set[int] = set()
    cancelled: list[int] = []
    numbers = itertools.count()
    end = time.monotonic() + STRESS_S
    stop: list[BaseException] = []

    def around_a_renewal() -> float:
        return max(0.0, random.choice((1, 2, 3)) * 0.1 / 3 + random.gauss(0, 0.002))

    def hold_many(client: leasehold.Client, whose: str) -> None:
        locks = [client.lock(f"{whose}:{number}", ttl=0.1, wait=30) for number in range(100)]
        try:
            while time.monotonic() < end:
                held = []
                for lock in locks:
                    lease, number = lock.acquire(), next(numbers)
                    lease.on_lost(lambda event, number=number: told.add(number))
                    held.append((time.monotonic() + around_a_renewal(), number, lease))
                for when, number, lease in sorted(held, key=lambda one: one[0]):
                    time.sleep(max(0.0, when - time.monotonic()))
                    try:
                        with lease:
                            if number % 3 == 0:
                                lease.release()
                            elif number % 3 == 1:
                                lease.let_expire(after=0.003)
                        released.add(number)
                    except leasehold.Lost:
                        pass
        except BaseException as error:
            stop.append(error)
            raise

    async def one_after_the_other(client: leasehold.Client, name: str) -> None:
        lock = client.lock(name, ttl=0.1, wait=30)
        while time.monotonic() < end:
            number = next(numbers)
            try:
                async with lock as lease:
                    try:
                        async with lease.scope():
                            await asyncio.sleep(around_a_renewal())
                            if number % 2:
                                await aio.release(lease)
                                released.add(number)
                                await asyncio.sleep(0)
                    except asyncio.CancelledError:
                        cancelled.append(number)
                    except leasehold.Lost:
                        assert number not in released
                        raise
                released.add(number)
            except leasehold.Lost:
                pass

    async def tasks(client: leasehold.Client) -> None:
        await asyncio.gather(*(one_after_the_other(client, f"task:{n}") for n in range(50)))

    with leasehold.connect(server.url + "?io_timeout=10s&pool=16") as client:
        threads = [
            threading.Thread(target=hold_many, args=(client, f"thread:{number}"))
            for number in range(2)
        ]
        threads.append(threading.Thread(target=lambda: asyncio.run(tasks(client))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lost = client.counters().lost
        time.sleep(0.3)  # What is late would come now.
    assert not stop and not cancelled
    assert not told & released
    print(f"{len(released)} released, {len(told)} of others told to be lost, {lost} lost")
    assert len(released) > 500


def test_control_a_loss_that_is_told_is_seen(lock: leasehold.Lock, name: str, until: Until) -> None:
    told: list[leasehold.Event] = []
    lease = lock.acquire()
    lease.on_lost(told.append)
    break_it(lease)
    until(lambda: told)
    with pytest.raises(leasehold.Lost):
        lease.release()
