"""Events: what happens to leases that their holders did not cause."""

import enum
import math
from collections.abc import Iterator
from ctypes import byref, c_size_t, c_void_p, string_at
from threading import get_ident
from types import TracebackType
from typing import NamedTuple, Optional

from . import _abi, _interrupts
from ._errors import OK, TIMEOUT, BadHandle, Closed, failure
from ._handles import EventHandle, EventsHandle
from ._names import decode_name
from ._time import FOREVER_MS, Seconds, milliseconds

#: How long a wait in the main thread goes on before Python's signal handlers may run.
_SLICE_MS = 100


class EventKind(enum.Enum):
    """What happened."""

    #: Renewals have failed for a while, or max_hold is near: finish soon.
    AT_RISK = 1
    #: The lease was lost. Its `valid` is False from now on.
    LOST = 2
    #: A release in the background, such as at the end of a block, found that the lease was lost, or
    #: got no answer from the store.
    RELEASED_LATE = 3
    #: A kind that this package does not know.
    OTHER = 0


class LossReason(enum.Enum):
    """Why a lease was lost."""

    #: The event is not about a loss.
    NONE = 0
    #: The store says that you do not hold the lock: the key was deleted or flushed, or another client
    #: holds it now.
    NOT_HELD = 1
    #: Its ttl passed: the store could not be reached, or renewal was off.
    EXPIRED = 2
    #: max_hold was reached.
    MAX_HOLD = 3
    #: The client's background thread has failed. The client is closed.
    NOT_RENEWED = 4
    #: An operator broke the lock, as `Lock.break_held()` does: the event's detail says who.
    BROKEN = 5
    #: A reason that this package does not know.
    OTHER = -1


class Event(NamedTuple):
    """Something that happened to a lease."""

    kind: EventKind
    #: The name of the lock, without the prefix of the URL.
    name: str
    #: The fence of the lease. Name and fence together identify it.
    fence: int
    reason: LossReason
    #: More in words: who broke the lock, and when.
    detail: str = ""


def _kind(number: int) -> EventKind:
    try:
        return EventKind(number)
    except ValueError:
        return EventKind.OTHER


def loss_reason(number: int) -> LossReason:
    try:
        return LossReason(number)
    except ValueError:
        return LossReason.OTHER


def _read(handle: EventHandle) -> Event:
    length = c_size_t()
    name = _abi.event_name(handle, byref(length))
    return Event(
        _kind(_abi.event_kind(handle)),
        decode_name(string_at(name, length.value)),
        _abi.event_fence(handle),
        loss_reason(_abi.event_reason(handle)),
        _abi.event_detail(handle).decode(),
    )


class Events:
    """A subscription to the events of a client's leases, from `Client.events()`.

    Iterating waits for the next event until you close the client or the subscription. A slow reader
    may miss ``AT_RISK`` (see `dropped`), but never ``LOST``. For an event loop of your own,
    `fileno()` returns a descriptor that is readable while there are unread events.

    >>> with client.events() as events:
    ...     print(events.try_next())
    None
    """

    __slots__ = ("_client", "_handle", "__weakref__")

    def __init__(self, handle: EventsHandle, client: object) -> None:
        self._handle = handle
        self._client = client  # A client that nobody has any more is closed.

    def next(self) -> Event:
        """Waits for the next event. Raises `Closed` when the client is closed and every event was
        read. Ctrl-C ends the wait."""
        while (event := self.next_within(math.inf)) is None:
            pass
        return event

    def try_next(self) -> Optional[Event]:
        """Returns an unread event, or None if there is none. Raises as `next()` does."""
        return self.next_within(0)

    def next_within(self, wait: Seconds) -> Optional[Event]:
        """Waits up to `wait` for the next event. Returns None if there was none. Raises as `next()`
        does."""
        handle = self._next(milliseconds("wait", wait))
        return None if handle is None else _read(handle)

    def _next_with_lease(self) -> tuple[Event, int]:
        """The next event, and the number of its lease."""
        while (handle := self._next(FOREVER_MS)) is None:
            pass
        return _read(handle), _abi.event_lease_id(handle)

    def _next(self, left: int) -> Optional[EventHandle]:
        event, error = EventHandle(), c_void_p()
        most = _SLICE_MS if get_ident() == _interrupts.main_thread else left
        while True:
            part = min(left, most)
            status = _abi.events_next_within(self._handle, part, byref(event), byref(error))
            left -= part
            if status != TIMEOUT or left == 0:
                break
        if status == TIMEOUT:
            return None
        if status == BadHandle.status:
            raise failure(Closed.status)
        if status != OK:
            raise failure(status, error)
        return event

    def fileno(self) -> int:
        """A descriptor for `select` and similar calls. It is readable while there are unread events,
        and when the client is closed. Only poll it: do not read from it."""
        return int(_abi.events_descriptor(self._handle))

    @property
    def dropped(self) -> int:
        """How many ``AT_RISK`` events this subscription has dropped because they were not read in time."""
        return int(_abi.events_dropped(self._handle))

    def close(self) -> None:
        """Ends the subscription. Closing twice does no harm."""
        handle, self._handle = self._handle, EventsHandle()
        _abi.events_free(handle)
        handle.value = None

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            return self.next()
        except Closed:
            raise StopIteration from None

    def __enter__(self) -> "Events":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError("a subscription stays in its process")
