"""Tells the callbacks of leases that were lost, in a thread of its own."""

import logging
import threading
import weakref
from collections.abc import Sequence
from typing import Callable, Optional, Protocol

from ._errors import Closed, Error
from ._events import Event, EventKind, Events

_log = logging.getLogger("leasehold")

Callback = Callable[[Event], object]
#: Has a callback called, where it is to be called.
Run = Callable[[Callback, Event], object]


class Call:
    """What is called once when a lease is lost, and not when the lease was ended before."""

    __slots__ = ("callback", "run", "_rooms")

    def __init__(self, callback: Callback, run: Run, rooms: Sequence[object]) -> None:
        self.callback: Optional[Callback] = callback
        self.run = run
        self._rooms = rooms  # Of the lease: empty when that was ended.

    def call(self, event: Event) -> None:
        """Once at most."""
        callback, self.callback = self.callback, None
        if callback is not None and self._rooms:
            callback(event)


class OnLost:
    """All that is called when one lease is lost. The lease alone keeps it: a callback may refer to the
    lease, and both can be forgotten together."""

    __slots__ = ("own", "scopes", "__weakref__")

    def __init__(self) -> None:
        #: What the program has registered.
        self.own: Optional[Call] = None
        #: What the blocks have that end with the lease.
        self.scopes: list[Call] = []

    def calls(self) -> list[Call]:
        return [*([] if self.own is None else [self.own]), *self.scopes]


class Watched(Protocol):
    """A lease, as far as it is watched."""

    _on_lost: OnLost

    @property
    def _rooms(self) -> Sequence[object]: ...

    def _watch(self, events: Events) -> int: ...


class Watcher:
    """Who is called for the leases of one client, and the thread that calls: there is none before
    the first callback, and it ends with the client. It is a daemon, so that it keeps no program
    from ending."""

    def __init__(self, subscribe: Callable[[], Events]) -> None:
        self._subscribe = subscribe
        self.forked()

    def forked(self) -> None:
        """In a child, which has no leases yet, and not the thread."""
        self._mutex = threading.Lock()
        self._events: Optional[Events] = None
        self._by_lease: weakref.WeakValueDictionary[int, OnLost] = weakref.WeakValueDictionary()

    def register(self, lease: Watched, callback: Optional[Callback], run: Run) -> None:
        """From now on, in place of what was registered for this lease; None for nothing."""
        former: Optional[OnLost] = getattr(lease, "_on_lost", None)
        replaced = None if former is None else former.own
        if callback is not None:
            if not callable(callback):
                raise TypeError(f"{callback!r} cannot be called when the lease is lost")
            with self._mutex:
                self._watched(lease).own = Call(callback, run, lease._rooms)
        elif former is not None:
            former.own = None
        if replaced is not None:
            replaced.callback = None

    def add(self, lease: Watched, callback: Callback, run: Run) -> Call:
        """Beside all that is registered, until `remove()`."""
        call = Call(callback, run, lease._rooms)
        with self._mutex:
            self._watched(lease).scopes.append(call)
        return call

    def remove(self, lease: Watched, call: Call) -> None:
        """Nobody is called any more, also not by what is under way in an event loop."""
        call.callback = None
        with self._mutex:
            lease._on_lost.scopes.remove(call)

    def _watched(self, lease: Watched) -> OnLost:
        """With the mutex, since the thread may read of a loss before the lease's number is known here. A lease
        that was lost before is told of again, for what is registered now."""
        on_lost: OnLost = getattr(lease, "_on_lost", None) or OnLost()
        number = lease._watch(self._subscription())
        lease._on_lost = self._by_lease[number] = on_lost
        return on_lost

    def _subscription(self) -> Events:
        if self._events is None:
            events = self._subscribe()
            name = "leasehold-events"
            threading.Thread(target=self._tell, args=(events,), name=name, daemon=True).start()
            self._events = events
        return self._events

    def _tell(self, events: Events) -> None:
        try:
            while True:
                event, number = events._next_with_lease()
                if event.kind is not EventKind.LOST:
                    continue
                # In a function, which forgets the lease that a callback may refer to.
                self._tell_of(number, event)
        except Closed:
            pass
        except Error as error:
            _log.error("nobody is told of lost leases any more: %s", error)

    def _tell_of(self, number: int, event: Event) -> None:
        with self._mutex:
            on_lost = self._by_lease.pop(number, None)
            calls = [] if on_lost is None else on_lost.calls()
        for call in calls:
            _call(call, event)


def _call(one: Call, event: Event) -> None:
    try:
        one.run(one.call, event)
    except BaseException:  # One that exits ends nobody else's calls either.
        _log.exception("the callback for the loss of %r failed", event.name)


def here(callback: Callback, event: Event) -> None:
    """Calls it in the thread that tells."""
    callback(event)


class Owner(Protocol):
    """A client, as far as its locks and leases know it."""

    _watcher: Watcher
    _unwatched: bool

    def _watch_again(self) -> None: ...

    @property
    def store(self) -> str: ...
