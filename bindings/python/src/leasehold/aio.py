"""Leasehold for programs of `asyncio`.

A lock can be used with ``async with`` as it is, and what a lease says of itself (`fence`,
`valid`, `remaining`) asks nobody. For the rest there are these functions. Waiting for a lock needs
no thread, however many tasks wait: a few threads of the client ask for all of them, and the event
loop looks at a descriptor, as it does for events. Calls that talk to the store at once
(`try_acquire`, `release`, `extend`) run in threads.

>>> async def work() -> bool:
...     async with lock as lease:           # waits for as long as the lock says
...         return lease.valid
>>> asyncio.run(work())
True

A task that is cancelled while it waits leaves the queue, and no lock behind.
"""

import asyncio
import functools
import weakref
from typing import Any, Callable, Optional, TypeVar

from . import _waits
from ._client import Client
from ._errors import Closed
from ._events import Event, Events
from ._lease import Lease, OptionalCallback
from ._lock import Lock, nested
from ._time import Seconds
from ._workers import WORKERS

__all__ = ["EventStream", "acquire", "acquire_within", "events", "extend", "on_lost", "release"]
__all__ += ["try_acquire"]

_T = TypeVar("_T")


async def acquire(lock: Lock) -> Lease:
    """Takes the lock, as `Lock.acquire()` does."""
    return await _waits.acquire(lock, None)


async def acquire_within(lock: Lock, wait: Seconds) -> Lease:
    """Takes the lock, as `Lock.acquire_within()` does.

    >>> async def work() -> None:
    ...     lease = await leasehold.aio.acquire_within(lock, 0.5)
    ...     await leasehold.aio.release(lease)
    >>> asyncio.run(work())
    """
    return await _waits.acquire(lock, wait)


async def try_acquire(lock: Lock) -> Optional[Lease]:
    """Takes the lock if it is free, as `Lock.try_acquire()` does."""
    return await _in_thread(lock.try_acquire, undo=_undo)


async def release(lease: Lease) -> None:
    """Gives the lock back, as `Lease.release()` does, also when the task is cancelled
    meanwhile."""
    await _in_thread(lease.release)


async def extend(lease: Lease, ttl: Optional[Seconds] = None) -> None:
    """Makes the lease valid for its ttl from now on, as `Lease.extend()` does."""
    await _in_thread(functools.partial(lease.extend, ttl))


def _undo(lease: Optional[Lease]) -> None:
    """Gives back what nobody will see."""
    if lease is not None:
        lease._end()


async def _in_thread(call: Callable[[], _T], undo: Optional[Callable[[_T], None]] = None) -> _T:
    """Makes a call in a thread. A task that is cancelled meanwhile waits for the end of the call
    all the same, and `undo` gets what it came to."""
    future = asyncio.wrap_future(WORKERS.submit(call))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _outlast(future)
        if undo is not None and not future.cancelled() and future.exception() is None:
            result = future.result()
            await _outlast(asyncio.wrap_future(WORKERS.submit(lambda: undo(result))))
        raise


async def _outlast(future: "asyncio.Future[Any]") -> None:
    """Waits for the end of a call, however often the task is cancelled."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue


class TaskLeases:
    """The leases of ``async with`` statements on one lock, for each task."""

    __slots__ = ("_by_task",)

    def __init__(self) -> None:
        self._by_task: weakref.WeakKeyDictionary[asyncio.Task[Any], Lease]
        self._by_task = weakref.WeakKeyDictionary()

    async def enter(self, lock: Lock) -> Lease:
        """Begins the block."""
        task = _current_task()
        if task in self._by_task:
            raise nested(lock.name, "this task")
        lease = await acquire(lock)
        self._by_task[task] = lease
        return lease

    async def leave(self, lock: Lock, raised: bool) -> None:
        """Ends the block."""
        lease = self._by_task.pop(_current_task(), None)
        if lease is None:
            raise RuntimeError(f"this task is not in an async with on lock {lock.name!r}")
        await _in_thread(functools.partial(lease._leave, raised))


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("async with needs a task")
    return task


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
        """Ends the subscription; nobody may be waiting for it at this moment."""
        self._subscription.close()


def events(client: Client) -> EventStream:
    """Subscribes to what happens to the leases of a client from now on.

    ::

        async for event in leasehold.aio.events(client):
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
    `Lease.on_lost()` does in a thread. What it raises goes to the loop's exception handler.

    >>> async def work() -> None:
    ...     task = asyncio.current_task()
    ...     assert task is not None
    ...     async with lock as lease:
    ...         leasehold.aio.on_lost(lease, lambda event: task.cancel())
    ...         ...                         # cancelled when the lease is lost
    >>> asyncio.run(work())
    """
    run = asyncio.get_running_loop().call_soon_threadsafe
    lease._client._watcher.register(lease, callback, run)
    return callback
