"""A lease: what a holder has while it holds a lock."""

import logging
from ctypes import byref, c_uint64, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Optional, TypeVar

from . import _abi, _errors
from ._errors import OK, Error, Lost, failure
from ._events import Events
from ._habits import no_lease_attribute, warn_of_long
from ._handles import LockHandle
from ._rooms import Room
from ._time import Seconds, milliseconds
from ._watcher import Callback, OnLost, Owner, here

if TYPE_CHECKING:
    from ._scope import Scope

_log = logging.getLogger("leasehold")

OptionalCallback = TypeVar("OptionalCallback", bound=Optional[Callback])


class Handover(NamedTuple):
    """What another process needs to continue a lease: see `Lock.attach()`."""

    token: str
    fence: int


class Lease:
    """The proof that you hold a lock, for as long as `valid` says so; from a `Lock`.

    It is renewed in the background unless `renew=False`. End it with `release()`, or use it in a
    ``with`` statement. A lease that is garbage-collected is no longer renewed and *not* released: the
    lock is free when the ttl has passed.

    **The end of a block.** If the lease is still valid then, the block releases the lock without
    waiting for the store's answer. This client finds the lock free at once, other clients a moment
    later. If the lease is no longer valid, the block waits for the answer, and raises `Lost` if the
    lock was lost.

    - On a quorum and an SQLite file, the block always waits for the answer. It also waits if other
      threads of this process wait for the lock, and the process now leaves it to other processes.
    - If the program exits right after the block, the lock may stay held until its ttl has passed. It
      does not if the program closes the client.
    - Between the last renewal and the release, somebody may have deleted the key, or the store may
      have lost its data. Only the answer tells. In this case, and if no answer comes,
      `Client.events()` has an event of the kind ``RELEASED_LATE``, and `Client.counters()` counts
      it. If you must know before you go on, call `release()` as the last step of the block.

    >>> with lock.acquire() as lease:
    ...     lease.valid
    True
    >>> lease.valid
    False
    """

    __slots__ = (
        "fence",
        "_client",
        "_lock_handle",
        "_handle",
        "_rooms",
        "_on_lost",
        "_hold",
        "__weakref__",
    )

    #: The fencing token: larger than the fence of every earlier lease on this name. Send it to the
    #: resource with each write, and let the resource reject a smaller one. It is from 1 to 2**53 - 1
    #: (16 digits), so a BIGINT column holds it.
    fence: int

    # Kept open. The lock itself is not kept: it has the lease of a `with` statement, in a place of
    # the thread, where the garbage collector would not see the cycle.
    _client: Owner
    _lock_handle: LockHandle
    _handle: int
    # Its room, and nothing from the end of the lease on. Of several threads that end it, one gets
    # the room.
    _rooms: list[Room]
    # Not set before something was registered.
    _on_lost: OnLost
    # Not set without `leasehold_lock.otel`.
    _hold: Any

    def __init__(self) -> None:
        raise TypeError("a lease comes from a lock")

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._lock_handle.name

    @property
    def token(self) -> str:
        """What identifies this lease in the store: 32 hexadecimal digits. A program that knows it can
        release the lock. Raises `Lost` after the lease has ended."""
        if not self._rooms:
            raise self._ended()
        return str(_abi.lease_token(self._handle).decode())

    @property
    def remaining(self) -> float:
        """For how many more seconds you may rely on the lease; 0 if it has ended or was lost. It does
        not contact the store."""
        return _abi.lease_remaining_ms(self._handle) / 1000 if self._rooms else 0.0

    @property
    def valid(self) -> bool:
        """Whether you may rely on the lease at this moment. It does not contact the store."""
        return bool(self._rooms and _abi.lease_is_valid(self._handle))

    def extend(self, ttl: Optional[Seconds] = None) -> None:
        """Makes the lease valid for its ttl, or for `ttl`, from now on. A renewed lease does not need
        it. It never goes beyond ``max_hold``, and never makes a lease shorter.

        Raises `Lost` if you no longer hold the lock. After any other error the store has not
        confirmed the new ttl, and the lease is valid until the time that it had before.
        """
        if not self._rooms:
            raise self._ended()
        error = c_void_p()
        if ttl is None:
            status = _abi.lease_extend(self._handle, byref(error))
        else:
            ttl_ms = milliseconds("ttl", ttl)
            warn_of_long(ttl, 2)
            status = _abi.lease_extend_for_ms(self._handle, ttl_ms, byref(error))
        self._check(status, error)

    def release(self) -> None:
        """Releases the lock. The lease has ended, even if this raises.

        Raises `Lost` if the lease was lost or had ended before. Raises `Unknown` if the store did not
        confirm the release: then the client releases it in the background, or it is free when its
        ttl has passed.
        """
        self._give(_abi.WAIT, False)

    def let_expire(self, after: Optional[Seconds] = None) -> None:
        """Ends the lease without releasing the lock. The lock stays held until its ttl has passed, or
        for `after` from now. Use it for "once per interval".

        If it raises, the store has not confirmed it, and the lock may be free earlier. If the lock was
        handed over to this lease a moment ago, it may be free as soon as `claim_window` has passed.

        >>> if (lease := lock.try_acquire()) is not None:
        ...     # ... the work of this hour, and then:
        ...     lease.let_expire(after=3600)
        >>> lock.try_acquire() is None
        True
        """
        if not self._rooms:
            raise self._ended()
        error = c_void_p()
        if after is None:
            status = _abi.lease_let_expire(self._handle, byref(error))
        else:
            after_ms = milliseconds("after", after)
            status = _abi.lease_let_expire_in_ms(self._handle, after_ms, byref(error))
        # Then the lease goes on, or is the parent's.
        if status not in (_errors.BadArgument.status, _errors.Forked.status):
            self._end()
        self._check(status, error)

    def detach(self) -> Handover:
        """Ends the lease in this process, so that another process can continue it: see
        `Lock.attach()`. The lock stays held for one ttl from now, and belongs to no process until one
        attaches it. If this raises, the store has not confirmed it, and perhaps no process can attach
        the lease."""
        if not self._rooms:
            raise self._ended()
        handed = Handover(self.token, self.fence)
        error = c_void_p()
        status = _abi.lease_detach(self._handle, byref(error))
        if status != _errors.Forked.status:
            self._end()
        self._check(status, error)
        return handed

    def on_lost(self, callback: OptionalCallback) -> OptionalCallback:
        """Calls `callback` with an `Event` if this lease is lost, or at once if it was lost already.
        Another callback replaces it; None removes it.

        The client calls it at most once. It does not call it after the lease has ended, for example
        at the end of its block, or after the client was closed. A call that has begun goes on. A
        forked child never calls it.

        One thread calls all callbacks of a client, one after the other, and does nothing else. A slow
        callback delays the others, but no renewal. What a callback raises is logged. In a program of
        `asyncio`, use `leasehold_lock.aio.on_lost()`.

        It returns `callback`, so you can use it as a decorator.

        >>> with lock as lease:
        ...     @lease.on_lost
        ...     def stop(event: leasehold.Event) -> None:
        ...         print("lost:", event.reason)
        """
        self._client._watcher.register(self, callback, here)
        return callback

    def raise_if_lost(self) -> None:
        """Raises `Lost` unless you may rely on the lease at this moment: if it was lost, and if it has
        ended. It does not contact the store. Call it before each step of long work.

        >>> with lock as lease:
        ...     lease.raise_if_lost()
        """
        if not self._rooms:
            raise self._ended()
        if not self.valid:
            raise self._lost()

    def scope(self) -> "Scope[Lease]":
        """For ``async with``: a block that is cancelled if the lease is lost, and then raises `Lost` at its
        end, as `asyncio.timeout()` cancels a block and raises `TimeoutError`.

        - A cancellation from elsewhere goes on, also if it comes with a loss.
        - What the block itself raises comes before `Lost`. A block that catches the cancellation and
          ends normally raises `Lost` all the same.
        - A lease that is lost when the block begins raises `Lost` there. One that was released within the
          block is never told to be lost.
        - The block does not release the lease. Several tasks may have a scope of one lease.

        >>> async def work() -> bool:
        ...     async with lock as lease, lease.scope():
        ...         await asyncio.sleep(0.01)       # cancelled if the lease is lost
        ...         return lease.valid
        >>> asyncio.run(work())
        True
        """
        from ._scope import Scope

        return Scope(self)

    def _watch(self, events: Events) -> int:
        """The number by which events name this lease. One that was lost before is told of again."""
        if not self._rooms:
            raise self._ended()
        number, error = c_uint64(), c_void_p()
        handle = events._handle
        status = _abi.lease_watch(self._handle, handle, byref(number), byref(error))
        self._check(status, error)
        return number.value

    def _check(self, status: int, error: c_void_p) -> None:
        if status == _errors.BadHandle.status:  # Another thread was faster to end it.
            _abi.error_free(error)
            raise self._ended()
        if status != OK:
            raise failure(status, error)

    def _ended(self) -> Error:
        return _errors.error(
            Lost.status,
            f"the lease on {self.name!r} was ended before: released, left to expire, or detached",
        )

    def _lost(self, why: str = "") -> Error:
        return _errors.error(
            Lost.status, f"the lease on {self.name!r} was lost{why and ': ' + why}", why
        )

    def _give(self, wait: Any, raised: bool) -> None:
        """Gives the lock back. With `DO_NOT_WAIT`, only a lease that cannot be relied on any more waits
        for the store's answer. What a block has raised comes before what we could say."""
        rooms = self._rooms
        try:
            room = rooms[0]  # For as long as the call takes.
            rooms.pop()
            status = _abi.prepared_end(_abi.argument(self._handle), wait, room.error_at)
        except IndexError:  # Another thread was faster to end it.
            if not raised:
                raise self._ended() from None
            return self._warn(self._ended())
        except BaseException:
            # A Ctrl-C. The handle may be freed already, which does no harm.
            _abi.lease_free(self._handle)
            raise
        if status == OK:
            room.home.append(room)
            return
        if status == _errors.Forked.status:  # The parent's: it stays what it was.
            rooms.append(room)
        try:
            self._check(status, room.error)
        except Error as error:
            if not raised:
                raise
            self._warn(error)

    def _warn(self, error: Error) -> None:
        _log.warning("the lock %r was not released: %s", self.name, error)

    def _end(self) -> None:
        """Frees the handle, if that was not done; that releases what is still held, after a
        Ctrl-C in the midst of a call. Of several threads that get here, one returns the room."""
        if not self._rooms:
            return
        _abi.lease_free(self._handle)
        try:
            room = self._rooms.pop()
        except IndexError:
            return
        room.home.append(room)

    def _leave(self, raised: bool) -> None:
        """The end of a block, if the block has not ended the lease itself."""
        if self._rooms:
            self._give(_abi.DO_NOT_WAIT, raised)

    if not TYPE_CHECKING:  # Else every attribute would seem to be there.

        def __getattr__(self, name: str) -> NoReturn:
            raise no_lease_attribute(name)

    def __enter__(self) -> "Lease":
        if not self._rooms:
            raise self._ended()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self._leave(kind is not None)
        finally:
            if self._rooms:
                self._end()  # A Ctrl-C came before it was released.

    def __reduce__(self) -> str:
        raise TypeError(
            "a lease stays in its process; hand on what detach() gives, and attach() it there"
        )

    def __repr__(self) -> str:
        state = "valid" if self.valid else "over"
        return f"<leasehold.Lease {self.name!r}, fence {self.fence}, {state}>"


new = object.__new__


def begun(client: Owner, lock: LockHandle, room: Room) -> Lease:
    """The lease that C has written into a room, with its fence."""
    # Not by calling the class, which takes as long as all the rest.
    lease: Lease = new(Lease)
    turn = room.turn
    lease.fence, lease._handle = turn.fence, turn.lease
    lease._client, lease._lock_handle = client, lock
    lease._rooms = [room]
    return lease
