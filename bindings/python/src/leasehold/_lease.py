"""One holder's turn."""

import logging
from ctypes import byref, c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Type

from . import _abi, _errors, _rooms
from ._errors import OK, Error, LeaseLost, failure
from ._rooms import Room
from ._time import Seconds, milliseconds

if TYPE_CHECKING:
    from ._client import Client

_log = logging.getLogger("leasehold")


class Handover(NamedTuple):
    """What another process needs to go on with a lease."""

    token: str
    fence: int


class Lease:
    """The proof that a lock is yours, for as long as it says so; from a `Lock`.

    It is renewed in the background unless that was switched off. End it with `release()`, or use
    it in a ``with`` statement. One that is dropped instead stops being renewed and is *not*
    released: the lock is free when the ttl has passed.

    >>> with lock.acquire() as lease:
    ...     lease.valid
    True
    >>> lease.valid
    False
    """

    __slots__ = ("fence", "_lock_name", "_handle", "_room", "_over", "_client", "__weakref__")

    #: Larger than that of every turn on the name before it. Give it to the resource with each
    #: write, and let the resource refuse a smaller one.
    fence: int

    def __init__(self, client: "Client", lock_name: str, room: Room) -> None:
        handle = room.cell.value
        self._client = client  # A client that nobody has any more is closed.
        self._lock_name = lock_name
        self._handle = handle
        self._room: List[Room] = [room]
        self._over = False
        self.fence = _abi.lease_fence(handle)

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._lock_name

    @property
    def token(self) -> str:
        """What marks the grant in the store: 32 hexadecimal digits. A program that has it can
        release the lock. Not to be had any more when the lease is over."""
        if self._over:
            raise self._ended()
        return str(_abi.lease_token(self._handle).decode())

    @property
    def remaining(self) -> float:
        """For how many seconds the lease may still be relied on, without asking anybody; 0 when
        it is over or lost."""
        return 0.0 if self._over else _abi.lease_remaining_ms(self._handle) / 1000

    @property
    def valid(self) -> bool:
        """Whether the lease may be relied on at this moment, without asking anybody."""
        return not self._over and bool(_abi.lease_is_valid(self._handle))

    def extend(self, ttl: Optional[Seconds] = None) -> None:
        """Makes the lease valid for its ttl, or for another one, from now on. Renewed leases do
        not need it. It never goes beyond ``max_hold``, and never makes a lease shorter.

        Raises `LeaseLost` when it was not ours any more. After any other error, the store has not
        confirmed it, and the lease is valid for as long as it was.
        """
        if self._over:
            raise self._ended()
        error = c_void_p()
        if ttl is None:
            status = _abi.lease_extend(self._handle, byref(error))
        else:
            ttl_ms = milliseconds("ttl", ttl)
            status = _abi.lease_extend_for_ms(self._handle, ttl_ms, byref(error))
        self._check(status, error)

    def release(self) -> None:
        """Gives the lock back. The lease is over at once and whatever comes of it.

        Raises `LeaseLost` when it was lost before, or ended before; `Unknown` when the store did
        not confirm it: then it is given back in the background, or by its ttl.
        """
        if self._over:
            raise self._ended()
        try:
            error = c_void_p()
            status = _abi.lease_release(self._handle, byref(error))
        finally:
            self._end()
        self._check(status, error)

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
        if self._over:
            raise self._ended()
        error = c_void_p()
        if after is None:
            status = _abi.lease_let_expire(self._handle, byref(error))
        else:
            after_ms = milliseconds("after", after)
            status = _abi.lease_let_expire_in_ms(self._handle, after_ms, byref(error))
        if status != _errors.BadArgument.status:  # Then the lease goes on.
            self._end()
        self._check(status, error)

    def detach(self) -> Handover:
        """Ends the lease here for another process to go on with it: see `Lock.attach()`. The lock
        stays taken for a ttl from now, and nobody holds it until then. When the store did not
        confirm it, perhaps nobody can attach it."""
        if self._over:
            raise self._ended()
        handed = Handover(self.token, self.fence)
        error = c_void_p()
        status = _abi.lease_detach(self._handle, byref(error))
        self._end()
        self._check(status, error)
        return handed

    def _check(self, status: int, error: c_void_p) -> None:
        if status == _errors.BadHandle.status:  # Another thread was faster to end it.
            raise self._ended()
        if status != OK:
            raise failure(status, error)

    def _ended(self) -> Error:
        name = self._lock_name
        return _errors.error(
            LeaseLost.status, f"the lease on {name!r} was ended before: released, left to expire, or detached"
        )

    def _end(self) -> None:
        """Frees the handle, if that was not done; that releases what is still held, after a
        Ctrl-C in the midst of a call. Of several threads that get here, one returns the room."""
        if not self._room:
            return
        self._over = True
        _abi.lease_free(self._handle)
        try:
            room = self._room.pop()
        except IndexError:
            return
        room.cell.value = None
        _rooms.give_back(room)

    def _leave(self, raised: bool) -> None:
        """The end of a ``with`` block. What it raised comes before what we could say."""
        if self._over:
            return
        try:
            self.release()
        except Error as error:
            if not raised:
                raise
            _log.warning("the lock %r was not released: %s", self._lock_name, error)

    def __enter__(self) -> "Lease":
        if self._over:
            raise self._ended()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            self._leave(kind is not None)
        finally:
            self._end()  # A Ctrl-C may have come before it was released.

    def __reduce__(self) -> str:
        raise TypeError(
            "a lease stays in its process; hand on what detach() gives, and attach() it there"
        )

    def __repr__(self) -> str:
        state = "valid" if self.valid else "over"
        return f"<leasehold.Lease {self._lock_name!r}, fence {self.fence}, {state}>"
