"""A lock: a name, options, and the ways to take it."""

import threading
from ctypes import byref, c_void_p
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Callable, Literal, NamedTuple, Optional, Type, TypeVar, get_args

from . import _abi, _errors, _interrupts, _rooms
from ._errors import BUSY, OK, WouldDeadlock, failure
from ._events import Event
from ._handles import LockHandle, LockStateHandle
from ._interrupts import NOTHING, Flag
from ._lease import Lease
from ._names import decode_name
from ._rooms import Room
from ._time import Seconds, milliseconds

if TYPE_CHECKING:
    from ._client import Client
    from .aio import TaskLeases

OnLost = TypeVar("OnLost", bound=Callable[[Event], object])


#: How a wait for a lock goes.
WaitMode = Literal["auto", "queue", "spin"]
#: In the order of their numbers in C.
WAIT_MODES = get_args(WaitMode)


class Backoff(NamedTuple):
    """How a wait with ``wait_mode="spin"`` asks again: `spins` more times at once, then after
    pauses of random length, the first one up to `first` and the others up to twice as much each
    time, none longer than `longest`, which is by default what suits the store."""

    spins: int = 3
    first: Seconds = 0.001
    longest: Seconds = float("inf")


class LockState(NamedTuple):
    """Who had a lock when `Lock.inspect()` asked."""

    held: bool
    #: The first digits of the holder's token; empty when the lock was free.
    token_prefix: str
    #: In how many seconds the lock would be free if nobody renewed it.
    ttl: float
    #: The holder's fence; None when the lock was free, or a program holds it without one.
    fence: Optional[int]
    #: The last fence given out, where the store still knows it.
    last_fence: Optional[int]


class _Held(threading.local):
    """The lease of a ``with`` statement, for each thread."""

    lease: Optional[Lease] = None


class Lock:
    """A lock that can be taken: a name and options. It holds nothing itself, and any number of
    threads may use it at once; from `Client.lock()`.

    >>> with lock as lease:                        # waits for as long as the lock says
    ...     lease.fence > 0
    True
    >>> if (lease := lock.try_acquire()) is None:  # never waits
    ...     print("somebody else has it")
    ... else:
    ...     lease.release()
    >>> with lock.acquire(wait=0.5) as lease:      # another wait than the lock's
    ...     lease.valid
    True

    A ``with`` statement keeps its lease for the thread, an ``async with`` for the task. It ends
    with `LeaseLost` if the lease was lost meanwhile, unless the block has raised something.
    """

    __slots__ = ("_client", "_handle", "_held", "_name", "_tasks", "__weakref__")

    def __init__(self, client: "Client", handle: LockHandle, name: bytes) -> None:
        self._client = client
        self._handle = handle
        self._name = decode_name(name)
        self._held: Optional[_Held] = None
        self._tasks: Optional["TaskLeases"] = None

    @property
    def name(self) -> str:
        """The name. Bytes that are no UTF-8 are in it as lone surrogates."""
        return self._name

    def try_acquire(self) -> Optional[Lease]:
        """Takes the lock if it is free, without waiting; None when somebody else has it.

        It waits for the store's answer: while that is silent, for `io_timeout`, the lock's own (see
        `Client.lock()`) or the client's (1 s). Then it raises `Unknown`, with nothing held, or
        `NoAnswer`.

        >>> with lock:
        ...     print(other_client.lock(lock.name).try_acquire())
        None
        """
        room = _rooms.take()
        try:
            status = _abi.lock_try_acquire(self._handle, room.address, room.error_address)
            if status == OK:
                return Lease(self._client, self._name, room)
        except BaseException:
            _undo(room)
            del room  # See _failed().
            raise
        if status == BUSY:
            _rooms.give_back(room)
            return None
        try:
            raise _failed(status, room, self._name)
        finally:
            del room

    def acquire(self, wait: Optional[Seconds] = None) -> Lease:
        """Takes the lock, waiting for it as long as `wait` says, or the lock where it is None;
        `math.inf` has no limit.

        Raises `Timeout` when it stayed taken. Ctrl-C ends the wait. While the store is silent, also
        a wait of 0, or any below `io_timeout`, takes as long as that: see `try_acquire()`.

        >>> with lock:
        ...     try:
        ...         other_client.lock(lock.name).acquire(wait=0.05)
        ...     except leasehold.Timeout:
        ...         print("still taken")
        still taken
        """
        return self._acquire(wait)

    def _acquire(self, wait: Optional[Seconds], flag: Optional[Flag] = None) -> Lease:
        wait_ms = None if wait is None else milliseconds("wait", wait)
        room = _rooms.take()
        watch = None
        try:
            if flag is not None:
                interrupt, asked = Flag.function, flag.address
            elif get_ident() == _interrupts.main_thread:
                watch = _interrupts.watch_signals()
                interrupt, asked = watch.function, None
            else:
                interrupt, asked = NOTHING, None
            places = (room.address, room.error_address)
            if wait_ms is None:
                status = _abi.lock_acquire_unless(self._handle, interrupt, asked, *places)
            else:
                status = _abi.lock_acquire_within(self._handle, wait_ms, interrupt, asked, *places)
            if watch is not None:
                if watch.caught:
                    raise watch.caught.pop()
                _interrupts.give_back(watch)
            if status == OK:
                return Lease(self._client, self._name, room)
        except BaseException:
            _undo(room)
            del room  # See _failed().
            raise
        try:
            raise _failed(status, room, self._name)
        finally:
            del room

    def attach(self, token: str, fence: int) -> Lease:
        """Goes on with a lease that another process took and let go of with `Lease.detach()`. Asks
        nobody; the lease may be relied on after its first successful `Lease.extend()`, which only one
        of several gets who attach it, and nobody where it was not detached with this token and fence.

        >>> token, fence = lock.acquire().detach()
        >>> # ... and in the other process:
        >>> with lock.attach(token, fence) as lease:
        ...     lease.extend()
        """
        if not isinstance(token, str) or not isinstance(fence, int):
            raise TypeError("what goes on is a token, a str, and a fence, an int")
        text = token.encode()
        room = _rooms.take()
        try:
            status = _abi.lock_attach(
                self._handle, text, len(text), fence, room.address, room.error_address
            )
            if status == OK:
                return Lease(self._client, self._name, room)
        except BaseException:
            _undo(room)
            del room  # See _failed().
            raise
        try:
            raise _failed(status, room, self._name)
        finally:
            del room

    def inspect(self) -> LockState:
        """Looks who has the lock, without touching it.

        >>> lock.inspect().held
        False
        """
        state, error = LockStateHandle(), c_void_p()
        status = _abi.lock_inspect(self._handle, byref(state), byref(error))
        if status != OK:
            raise failure(status, error)
        return LockState(
            held=_abi.lock_state_is_held(state),
            token_prefix=_abi.lock_state_token_prefix(state).decode(),
            ttl=_abi.lock_state_ttl_ms(state) / 1000,
            fence=_abi.lock_state_fence(state) or None,
            last_fence=_abi.lock_state_last_fence(state) or None,
        )

    def on_lost(self, callback: OnLost) -> OnLost:
        """Calls `callback` with an `Event` when a lease that this client has on this name is lost.

        It is called in a thread of its own, one for the client, as long as the client is open. In
        a program of `asyncio`, use `leasehold.aio.on_lost()`, which needs no thread. It returns
        `callback`, so that it can be used as a decorator.

        >>> @lock.on_lost
        ... def stop(event: leasehold.Event) -> None:
        ...     print("lost:", event.reason)
        """
        if not callable(callback):
            raise TypeError(f"{callback!r} cannot be called when the lease is lost")
        self._client._watcher.add(self._name, callback)
        return callback

    def __enter__(self) -> Lease:
        held = self._held
        if held is None:
            held = self._held = _Held()
        # In a forked child, what the parent's thread held is nothing.
        elif held.lease is not None and not self._client._forked:
            raise nested(self._name, "this thread")
        try:
            held.lease = self._acquire(None)
            return held.lease
        except BaseException:
            lease, held.lease = held.lease, None
            if lease is not None:
                lease._end()
            raise

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        held = self._held
        if held is None or held.lease is None:
            raise RuntimeError(f"this thread is not in a with statement on lock {self._name!r}")
        lease = held.lease
        try:
            lease._leave(kind is not None)
        finally:
            held.lease = None
            lease._end()  # A Ctrl-C may have come before it was released.

    async def __aenter__(self) -> Lease:
        if self._tasks is None:
            # Not before it is needed: asyncio takes longer to import than all the rest.
            from .aio import TaskLeases

            self._tasks = TaskLeases()
        return await self._tasks.enter(self)

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._tasks is None:
            raise RuntimeError(f"no task is in an async with on lock {self._name!r}")
        await self._tasks.leave(self, kind is not None)

    def __reduce__(self) -> str:
        raise TypeError("a lock stays in its process; connect there, and make one of this name")

    def __repr__(self) -> str:
        return f"<leasehold.Lock {self._name!r} in {self._client.store}>"


def _undo(room: Room) -> None:
    """After a Ctrl-C: nobody will ever see the lease that may have come."""
    room.release()
    _rooms.give_back(room)


def _failed(status: int, room: Room, name: str) -> _errors.Error:
    """The exception; the room is for the next lease. The caller lets go of it: who keeps the
    exception keeps the frames that it came through, and the room has to go with its lease."""
    error = failure(status, room.error, name)
    _rooms.give_back(room)
    return error


def nested(name: str, holder: str) -> _errors.Error:
    return _errors.error(
        WouldDeadlock.status, f"{holder} is in a with statement on lock {name!r} already"
    )
