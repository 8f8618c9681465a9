"""One holder's turn."""

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

_log = logging.getLogger("leasehold")

OptionalCallback = TypeVar("OptionalCallback", bound=Optional[Callback])


class Handover(NamedTuple):
    """What another process needs to go on with a lease."""

    token: str
    fence: int


class Lease:
    """The proof that a lock is yours, for as long as it says so; from a `Lock`.

    It is renewed in the background unless that was switched off. End it with `release()`, or use
    it in a ``with`` statement. One that is dropped instead stops being renewed and is *not*
    released: the lock is free when the ttl has passed.

    The end of a ``with`` block gives the lock back without waiting for the store's answer where the
    lease can be relied on up to then: the lease was valid to the end. This client finds the lock
    free at once, another one a moment later. On a quorum and an SQLite file it waits all the same,
    and where it ends the turns of a process in which others wait. A program that exits right after
    it may leave the lock to its ttl, but not where it closed the client. Where the lease cannot be
    relied on any more, the block waits for the answer and ends with `Lost` if the lock was not
    ours to the end. What the answer alone could tell is that the key was deleted by hand, or lost
    with the store's data, since the last renewal; then, and if no answer comes, `Client.events()`
    has an event of the kind ``RELEASED_LATE``, and `Client.counters()` counts it. A block that has
    to know calls `release()` as its last step.

    >>> with lock.acquire() as lease:
    ...     lease.valid
    True
    >>> lease.valid
    False
    """

    __slots__ = ("fence", "_client", "_lock_handle", "_handle", "_rooms", "_on_lost", "__weakref__")

    #: Larger than that of every turn on the name before it, from 1 to 2**53 - 1: 16 digits, for which a
    #: BIGINT is enough. Give it to the resource with each write, and let the resource refuse a smaller
    #: one.
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

    def __init__(self) -> None:
        raise TypeError("a lease comes from a lock")

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._lock_handle.name

    @property
    def token(self) -> str:
        """What marks the grant in the store: 32 hexadecimal digits. A program that has it can
        release the lock. Not to be had any more when the lease is over."""
        if not self._rooms:
            raise self._ended()
        return str(_abi.lease_token(self._handle).decode())

    @property
    def remaining(self) -> float:
        """For how many seconds the lease may still be relied on, without asking anybody; 0 when
        it is over or lost."""
        return _abi.lease_remaining_ms(self._handle) / 1000 if self._rooms else 0.0

    @property
    def valid(self) -> bool:
        """Whether the lease may be relied on at this moment, without asking anybody."""
        return bool(self._rooms and _abi.lease_is_valid(self._handle))

    def extend(self, ttl: Optional[Seconds] = None) -> None:
        """Makes the lease valid for its ttl, or for another one, from now on. Renewed leases do
        not need it. It never goes beyond ``max_hold``, and never makes a lease shorter.

        Raises `Lost` when it was not ours any more. After any other error, the store has not
        confirmed it, and the lease is valid for as long as it was.
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
        """Gives the lock back. The lease is over at once and whatever comes of it.

        Raises `Lost` when it was lost before, or ended before; `Unknown` when the store did
        not confirm it: then it is given back in the background, or by its ttl.
        """
        self._give(_abi.WAIT, False)

    def let_expire(self, after: Optional[Seconds] = None) -> None:
        """Ends the lease without giving the lock back: it stays taken until its ttl runs out, or
        for `after` from now. For "once per interval". What it raises says that the store did not
        confirm it: the lock may then be free before that, when the claim window is over if it was
        handed over a moment ago.

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
        """Ends the lease here for another process to go on with it: see `Lock.attach()`. The lock
        stays taken for a ttl from now, and nobody holds it until then. When the store did not
        confirm it, perhaps nobody can attach it."""
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
        """Calls `callback` with an `Event` if this lease is lost; at once if it was lost before.
        None takes back what was registered, and another callback takes its place.

        It is called once at most, and not when the lease was ended, by the end of its block for
        example, or its client was closed. (A call that is under way goes on.) A forked child
        never calls it. All callbacks of a client are called in one thread that does nothing else,
        one after the other: a slow one holds up the others, and no renewal. What one raises is
        logged. In a program of `asyncio`, use `leasehold.aio.on_lost()`.

        It returns `callback`, so that it can be used as a decorator.

        >>> with lock as lease:
        ...     @lease.on_lost
        ...     def stop(event: leasehold.Event) -> None:
        ...         print("lost:", event.reason)
        """
        self._client._watcher.register(self, callback, here)
        return callback

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
