"""Tells callbacks of leases that were lost, in a thread of its own."""

import logging
import threading
from typing import Callable, Dict, List, Optional

from ._errors import Error
from ._events import Event, EventKind, Events

_log = logging.getLogger("leasehold")

Callback = Callable[[Event], object]


class Callbacks:
    """Who wants to be told about which name."""

    def __init__(self) -> None:
        self._by_name: Dict[str, List[Callback]] = {}

    def add(self, name: str, callback: Callback) -> None:
        """From now on."""
        self._by_name.setdefault(name, []).append(callback)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def tell(self, event: Event) -> None:
        """Calls those that the event concerns. One that fails keeps nobody else from being told."""
        if event.kind is not EventKind.LOST:
            return
        for callback in list(self._by_name.get(event.name, ())):
            try:
                callback(event)
            except Exception:
                _log.exception("a callback for the loss of %r failed", event.name)


class Watcher:
    """The callbacks of one client, and the thread that calls them: there is none before the first
    callback, and it ends with the client. It is a daemon, so that it keeps no program from
    ending."""

    def __init__(self, subscribe: Callable[[], Events]) -> None:
        self._subscribe = subscribe
        self._callbacks = Callbacks()
        self._mutex = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def add(self, name: str, callback: Callback) -> None:
        """From now on: what happened before is not told."""
        with self._mutex:
            self._start()
            self._callbacks.add(name, callback)

    def _start(self) -> None:
        if self._thread is None:
            events = self._subscribe()
            self._thread = threading.Thread(
                target=_watch,
                args=(events, self._callbacks),
                name="leasehold-events",
                daemon=True,
            )
            self._thread.start()

    def forked(self) -> None:
        """In a child, where the thread is missing, and the mutex may be held by one that is."""
        self._mutex = threading.Lock()
        self._thread = None

    def watch_again(self) -> None:
        """In a child, before its first lease: calls what an ancestor has registered."""
        with self._mutex:
            if self._callbacks:
                self._start()


def _watch(events: Events, callbacks: Callbacks) -> None:
    try:
        for event in events:
            callbacks.tell(event)
    except Error as error:
        _log.error("nobody is told of lost leases any more: %s", error)
