"""A block of a task that ends with a lease: cancelled when the lease is lost."""

import asyncio
from types import TracebackType
from typing import Any, Generic, Optional, Protocol, TypeVar

from ._events import Event, LossReason
from ._watcher import Call, Owner, Watched


class Scoped(Watched, Protocol):
    """A lease, as far as its scopes know it."""

    _client: Owner

    @property
    def name(self) -> str: ...

    @property
    def valid(self) -> bool: ...

    def raise_if_lost(self) -> None: ...

    def _lost(self, why: str = "") -> Exception: ...


_L = TypeVar("_L", bound=Scoped)

_WHY = {
    LossReason.NOT_HELD: "its key was deleted, or another client holds the lock",
    LossReason.EXPIRED: "its ttl passed, since no renewal got through",
    LossReason.MAX_HOLD: "it was held for max_hold",
    LossReason.NOT_RENEWED: "the client's background thread has failed",
    LossReason.BROKEN: "an operator broke the lock",
}


class Scope(Generic[_L]):
    """What `Lease.scope()` returns."""

    __slots__ = ("_lease", "_task", "_call", "_event", "_cancels", "_cancelled", "_is_over")

    def __init__(self, lease: _L) -> None:
        self._lease = lease
        self._task: Optional[asyncio.Task[Any]] = None
        #: The loss, once it is known.
        self._event: Optional[Event] = None
        #: By us.
        self._cancelled = False
        self._is_over = False

    async def __aenter__(self) -> _L:
        if self._task is not None:
            raise RuntimeError(
                "this scope was entered before: write 'async with lease.scope()' again"
            )
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with lease.scope() needs a task")
        lease = self._lease
        lease.raise_if_lost()
        self._cancels = _cancels(task)
        run = asyncio.get_running_loop().call_soon_threadsafe
        self._call: Call = lease._client._watcher.add(lease, self._on_lost, run)
        self._task = task
        return lease

    def _on_lost(self, event: Event) -> None:
        """In the loop, while the task waits for something within the block."""
        self._event = event
        task = self._task
        if task is None or self._is_over:
            return
        if _is_cancelled_unmarked(task):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._on_lost, event)
            return
        self._cancelled = True
        _cancel(task, _message(self))

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        lease, task = self._lease, self._task
        assert task is not None, "it was entered"
        self._is_over = True
        lease._client._watcher.remove(lease, self._call)
        is_ours = self._cancelled and _uncancel(task, self._cancels, value, _message(self))
        if kind is None:
            # Lost, with no time left for this loop to hear of it, or the block has caught the cancellation.
            if self._event is not None or (lease._rooms and not lease.valid):
                raise self._lost()
        elif is_ours and issubclass(kind, asyncio.CancelledError):
            raise self._lost() from value

    def _lost(self) -> Exception:
        event = self._event
        if event is None:
            return self._lease._lost()
        return self._lease._lost(event.detail or _WHY.get(event.reason, ""))


#: How soon a task is looked at again that another one is cancelling.
_AGAIN_S = 0.005


# From Python 3.11 on, a task counts who has cancelled it. Before that, all there is is the message of the
# last one.


def _message(scope: Scope[Any]) -> str:
    return f"the lease on {scope._lease.name!r} was lost ({id(scope)})"


def _cancels(task: "asyncio.Task[Any]") -> int:
    """By how many others the task is being cancelled."""
    return int(getattr(task, "cancelling", int)())


def _cancel(task: Any, message: str) -> None:
    if hasattr(task, "cancelling"):
        task.cancel()
        return
    # By itself, a task keeps it only if it waits for nothing.
    task._cancel_message = message
    task.cancel(msg=message)


def _is_cancelled_unmarked(future: Any) -> bool:
    """Whether a task that does not count is being cancelled already: our message would take the place of
    the other one's, and that cancellation be lost."""
    if hasattr(future, "cancelling"):
        return False
    waiter = getattr(future, "_fut_waiter", None)
    if getattr(future, "_must_cancel", False) or getattr(future, "_cancel_requested", False):
        return True
    return waiter is not None and (waiter.cancelled() or _is_cancelled_unmarked(waiter))


def _uncancel(task: Any, before: int, error: Optional[BaseException], message: str) -> bool:
    """Takes our cancellation back. Whether it was the only one."""
    if hasattr(task, "uncancel"):
        return bool(task.uncancel() <= before)
    # A later one leaves its message with the task, though it is ours that is raised.
    return error is not None and error.args == (message,) and task._cancel_message == message
