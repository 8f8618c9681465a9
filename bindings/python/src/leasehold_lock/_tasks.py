"""What `async with` and the calls of `asyncio` stand on: the leases of tasks, and calls in threads."""

import asyncio
import contextvars
import functools
import weakref
from typing import Any, Callable, Optional, TypeVar

from ._errors import nested
from ._lease import Lease
from ._waits import Waited
from ._workers import WORKERS

_T = TypeVar("_T")


async def in_thread(call: Callable[[], _T], undo: Optional[Callable[[_T], None]] = None) -> _T:
    """Makes a call in a thread. A task that is cancelled meanwhile waits for the end of the call
    all the same, and `undo` gets what it came to."""
    # What a span is begun in, say.
    context = contextvars.copy_context()
    future = asyncio.wrap_future(WORKERS.submit(lambda: context.run(call)))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await outlast(future)
        # Looked at in any case: asyncio would complain of an exception that nobody has seen.
        if not future.cancelled() and future.exception() is None and undo is not None:
            result = future.result()
            await outlast(asyncio.wrap_future(WORKERS.submit(lambda: undo(result))))
        raise


async def outlast(future: "asyncio.Future[Any]") -> None:
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

    async def enter(self, lock: Waited) -> Lease:
        """Begins the block."""
        task = _current_task()
        if task in self._by_task:
            raise nested(lock.name, "this task")
        lease = await lock._wait(None)
        self._by_task[task] = lease
        return lease

    async def leave(self, lock: Waited, raised: bool) -> None:
        """Ends the block."""
        lease = self._by_task.pop(_current_task(), None)
        if lease is None:
            raise RuntimeError(f"this task is not in an async with on lock {lock.name!r}")
        await in_thread(functools.partial(lease._leave, raised))


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("async with needs a task")
    return task
