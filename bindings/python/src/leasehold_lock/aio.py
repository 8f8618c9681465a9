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
import functools
from typing import Optional

from ._client import Client
from ._errors import Closed
from ._events import Event, Events
from ._lease import Lease, OptionalCallback
from ._lock import Lock
from ._tasks import in_thread
from ._time import Seconds

__all__ = ["EventStream", "acquire", "acquire_within", "events", "extend", "on_lost", "release"]
__all__ += ["try_acquire"]


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
