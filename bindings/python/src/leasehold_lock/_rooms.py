"""Room for what a call that takes a lock writes: the lease, its fence, or the error if none came.

A lease that is lost to garbage collection stops being renewed and is not released: code that still
works on what it protects, in a thread perhaps, has until the end of its ttl. Rooms see to that: a
lease keeps its room until it is over.

They are used again and not thrown away, so that in the normal course of things no finaliser that is
written in Python runs; `_handles.py` says why that matters. So all that a call needs is made once:
what it passes to C is prepared, and what lets Ctrl-C end a wait comes with the room. A room may still
have the handle of a lease that is over. That harms nobody: no handle comes back.
"""

from ctypes import byref, c_void_p, cast
from threading import get_ident
from typing import Any, Callable, Optional

from . import _abi, _interrupts
from ._interrupts import SignalWatch


class Room:
    """A place for one lease. `home` is the list that it returns to when the lease is over, but not
    after something was caught: then it watches no more."""

    __slots__ = ("turn", "error", "turn_at", "error_at", "watch", "caught", "interrupt", "home")

    def __init__(self, home: "list[Room]", watch: Optional[SignalWatch]) -> None:
        self.turn = _abi.Turn()
        self.error = c_void_p()
        # What C gets.
        self.turn_at: Any = byref(self.turn)
        self.error_at: Any = byref(self.error)
        self.watch = watch
        self.caught: list[BaseException] = [] if watch is None else watch.caught
        #: The interrupt function, as an argument.
        self.interrupt: Any = None
        if watch is not None:
            self.interrupt = _abi.argument(cast(watch.function, c_void_p).value)
        self.home = home

    def release(self) -> None:
        """Frees the handle, which releases the lease if it is still held."""
        if self.turn.lease:
            _abi.lease_free(self.turn.lease)

    # The names of modules may be gone when the interpreter ends, default values are not.
    def __del__(self, abandon: Callable[..., Any] = _abi.lease_abandon) -> None:
        turn = getattr(self, "turn", None)  # A Ctrl-C may have come before there was one.
        if turn and turn.lease:
            abandon(turn.lease)


# Appending to a list and popping from one are single steps for other threads.
in_main: list[Room] = []
elsewhere: list[Room] = []


def take() -> Room:
    """A room that nobody uses. In the main thread, signal handlers run while it is waited in."""
    if get_ident() == _interrupts.main_thread:
        try:
            return in_main.pop()
        except IndexError:
            return Room(in_main, SignalWatch())
    try:
        return elsewhere.pop()
    except IndexError:
        return Room(elsewhere, None)
