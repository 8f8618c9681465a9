"""The waits of event loops: any number of them, and no thread of Python's for any."""

import asyncio
import itertools
import os
import weakref
from ctypes import byref, c_uint64, c_void_p
from typing import Callable, Optional, Protocol

from . import _abi
from ._errors import OK, failure
from ._handles import LockHandle, WaitsHandle
from ._lease import Lease
from ._time import Seconds, milliseconds

_numbers = itertools.count(1)


class _Waits:
    """The waits of one event loop, which alone keeps this: when the loop is closed, they stop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.handle, error = WaitsHandle(), c_void_p()
        status = _abi.waits_open(byref(self.handle), byref(error))
        if status != OK:
            raise failure(status, error)
        #: Those that have not ended, by their numbers.
        self.ends: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(_abi.waits_descriptor(self.handle), self._read)

    def _read(self) -> None:
        number = c_uint64()
        while _abi.waits_next_within(self.handle, 0, byref(number), None) == OK:
            end = self.ends.pop(number.value, None)
            if end is not None and not end.done():
                end.set_result(None)


_by_loop: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Waits]]"
_by_loop = weakref.WeakKeyDictionary()
# A child makes its own: the parent's are not for it.
os.register_at_fork(after_in_child=_by_loop.clear)


def _of(loop: asyncio.AbstractEventLoop) -> _Waits:
    known = _by_loop.get(loop)
    waits = None if known is None else known()
    if waits is None:
        waits = _Waits(loop)
        _by_loop[loop] = weakref.ref(waits)
    return waits


class Waited(Protocol):
    """A lock, as far as its waits know it."""

    _handle: LockHandle

    @property
    def name(self) -> str: ...

    def _ask(self, function: Callable[..., int]) -> Optional[Lease]: ...

    async def _wait(self, wait: Optional[Seconds]) -> Lease: ...


async def acquire(lock: Waited, wait: Optional[Seconds]) -> Lease:
    """Takes the lock, waiting for as long as it says, or for another time. A task that does not get
    to the end of this leaves no lock behind."""
    loop = asyncio.get_running_loop()
    waits = _of(loop)
    # A task that is never ended shall not keep the waits of its loop.
    handle, ends, number = waits.handle.value, waits.ends, next(_numbers)
    del waits
    end = ends[number] = loop.create_future()
    try:
        error = c_void_p()
        if wait is None:
            status = _abi.waits_start(handle, lock._handle, number, byref(error))
        else:
            wait_ms = milliseconds("wait", wait)
            status = _abi.waits_start_within(handle, lock._handle, wait_ms, number, byref(error))
        if status != OK:
            raise failure(status, error, lock.name)
        await end
        lease = lock._ask(lambda _, *outputs: int(_abi.waits_take(handle, number, *outputs)))
        assert lease is not None, "what was told has ended"
        return lease
    except BaseException:
        ends.pop(number, None)
        _abi.waits_stop(handle, number, None)
        raise
