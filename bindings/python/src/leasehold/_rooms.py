"""Room for the handle of a lease: C writes it there, and there it stays until the lease is over.

A lease that is lost to garbage collection stops being renewed and is not released: code that still
works on what it protects, in a thread perhaps, has until the end of its ttl. Rooms see to that.
They are used again and not thrown away, so that in the normal course of things no finaliser that is
written in Python runs; `_handles.py` says why that matters.
"""

from ctypes import addressof, c_void_p
from typing import Any, Callable, List

from . import _abi


class Room:
    """A place for one lease, and for the error if none came."""

    __slots__ = ("cell", "error", "address", "error_address")

    def __init__(self) -> None:
        self.cell = c_void_p()
        self.error = c_void_p()
        # What C gets: passing a number costs the least.
        self.address = addressof(self.cell)
        self.error_address = addressof(self.error)

    def release(self) -> None:
        """Frees the handle, which releases the lease if it is still held."""
        handle = self.cell.value
        if handle:
            _abi.lease_free(handle)
            self.cell.value = None

    # The names of modules may be gone when the interpreter ends, default values are not.
    def __del__(self, abandon: Callable[..., Any] = _abi.lease_abandon) -> None:
        handle = self.cell.value
        if handle:
            abandon(handle)


# Appending to a list and popping from one are single steps for other threads.
_spare: List[Room] = []


def take() -> Room:
    """A room that nobody uses."""
    try:
        return _spare.pop()
    except IndexError:
        return Room()


def give_back(room: Room) -> None:
    """For the next lease; it must be empty."""
    _spare.append(room)
