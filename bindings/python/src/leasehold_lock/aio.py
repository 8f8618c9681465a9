"""Leasehold for programs of `asyncio`.

Use ``async with`` on any lock. A lease's `fence`, `valid` and `remaining` never block, so read them
directly. For everything else there are the functions of this module. A waiting task needs no thread:
a few threads of the client wait for all tasks, and the event loop watches a descriptor. Calls that
talk to the store at once (`try_acquire`, `release`, `extend`) run in threads.

>>> async def work() -> bool:
...     async with lock as lease:           # waits up to the lock's `wait`
...         return lease.valid
>>> asyncio.run(work())
True

A task that is cancelled while it waits leaves the queue and holds no lock. `Lease.scope()` cancels a block
when its lease is lost.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Callable, Optional

from . import _abi
from ._client import Client
from ._election import Election, Term
from ._errors import Closed, Interrupted
from ._events import Event, Events
from ._lease import Lease, OptionalCallback
from ._lock import Lock
from ._tasks import in_thread, outlast
from ._time import FOREVER_MS, Seconds
from ._workers import WORKERS, settle

__all__ = ["EventStream", "acquire", "acquire_within", "events", "extend", "on_lost", "release"]
__all__ += ["run_as_leader", "try_acquire"]


async def acquire(lock: Lock) -> Lease:
    """Acquires the lock, as `Lock.acquire()` does."""
    return await lock._wait(None)


async def acquire_within(lock: Lock, wait: Seconds) -> Lease:
    """Acquires the lock, as `Lock.acquire_within()` does.

    >>> async def work() -> None:
    ...     lease = await leasehold_lock.aio.acquire_within(lock, 0.5)
    ...     await leasehold_lock.aio.release(lease)
    >>> asyncio.run(work())
    """
    return await lock._wait(wait)


async def try_acquire(lock: Lock) -> Optional[Lease]:
    """Acquires the lock if it is free, as `Lock.try_acquire()` does."""
    return await in_thread(lock.try_acquire, undo=_undo)


async def release(lease: Lease) -> None:
    """Releases the lock, as `Lease.release()` does, even if the task is cancelled during the call."""
    await in_thread(lease.release)


async def extend(lease: Lease, ttl: Optional[Seconds] = None) -> None:
    """Makes the lease valid for its ttl from now on, as `Lease.extend()` does."""
    await in_thread(functools.partial(lease.extend, ttl))


def _undo(lease: Optional[Lease]) -> None:
    """Releases a lease that the cancelled caller will never see."""
    if lease is not None:
        lease._end()


class EventStream:
    """An iterator over events, from `events()`. It ends when the client is closed."""

    def __init__(self, subscription: Events) -> None:
        self._subscription = subscription

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        while True:
            try:
                event = self._subscription.try_next()
            except Closed:
                raise StopAsyncIteration from None
            if event is not None:
                return event
            await _readable(self._subscription.fileno())

    def close(self) -> None:
        """Ends the subscription. No task may be waiting for an event at this moment."""
        self._subscription.close()


def events(client: Client) -> EventStream:
    """Subscribes to what happens to the leases of a client from now on.

    ::

        async for event in leasehold_lock.aio.events(client):
            print(event.kind, event.name)
    """
    return EventStream(client.events())


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(descriptor, ready)
    try:
        await future
    finally:
        loop.remove_reader(descriptor)


def on_lost(lease: Lease, callback: OptionalCallback) -> OptionalCallback:
    """Calls `callback` in the running event loop with an `Event` if this lease is lost, as
    `Lease.on_lost()` does in a thread. What the callback raises goes to the loop's exception handler.

    To cancel what relies on the lease, use `Lease.scope()`.

    >>> async def work() -> None:
    ...     async with lock as lease:
    ...         leasehold_lock.aio.on_lost(lease, lambda event: print("lost:", event.reason))
    ...         ...
    >>> asyncio.run(work())
    """
    run = asyncio.get_running_loop().call_soon_threadsafe
    lease._client._watcher.register(lease, callback, run)
    return callback


async def run_as_leader(
    election: Election, work: Callable[[Term], Coroutine[Any, Any, object]]
) -> None:
    """Stands by, runs the coroutine ``work(term)`` when elected, and stands again when the leadership was
    lost, as `Election.run_as_leader()` does. When the term ends, the work is cancelled. When the work has
    ended, the lock is released.

    A task that is cancelled here cancels the work, and waits until the lock is released.

    >>> election = client.election("collector:aio", ttl=15)
    >>> async def work(term: leasehold.Term) -> None:
    ...     collect(term.fence)                 # the database rejects a smaller fence
    >>> asyncio.run(leasehold_lock.aio.run_as_leader(election, work))
    """
    while (term := await _elected(election)) is not None:
        try:
            await _work_in(term, work)
        except BaseException:
            await in_thread(term._let_go)
            raise
        if await in_thread(functools.partial(election._is_done, term)):
            return


async def _elected(election: Election) -> Optional[Term]:
    """Stands in a thread; None if the election was stopped. A task that is cancelled ends the standing."""
    over = threading.Event()
    interrupt = _abi.INTERRUPT(lambda _: over.is_set())

    def stand() -> Optional[Term]:
        try:
            return election._stand(FOREVER_MS, interrupt)
        except Interrupted:
            return None

    future: Future[Optional[Term]] = Future()
    # One of its own: a thread that leads cannot stand for the same name elsewhere.
    name = "leasehold-election"
    threading.Thread(target=settle, args=(future, stand), name=name, daemon=True).start()
    standing = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(standing)
    except asyncio.CancelledError:
        over.set()
        await outlast(standing)
        if standing.exception() is None and (term := standing.result()) is not None:
            await in_thread(term._let_go)
        raise


async def _work_in(term: Term, work: Callable[[Term], Coroutine[Any, Any, object]]) -> None:
    """Runs the work until it ends, or its term does: then it is cancelled."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work(term))
    ended = loop.create_future()

    def tell() -> None:
        if not ended.done():
            ended.set_result(None)

    def watch() -> None:
        term.ended_within(float("inf"))
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(tell)

    WORKERS.submit(watch)
    try:
        await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_ours = ended.done() and not task.done()
        if not task.done():
            task.cancel()
            await outlast(task)
    if not (is_ours and task.cancelled()):
        task.result()
