"""Brings the library's log to `logging`, under the name "leasehold".

A thread of Python's reads it from a socket. The library's own threads never call Python: they would
wait for the interpreter, which may be busy, and renew no lease meanwhile; and at its end they would be
stopped in the midst of a call.
"""

import atexit
import logging
import os
import select
import threading
from ctypes import byref, c_int
from typing import Optional

from . import _abi
from ._errors import OK

_log = logging.getLogger("leasehold")

#: By their numbers in C.
_LEVELS = [
    logging.NOTSET,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.DEBUG,
    logging.DEBUG,
]
#: LEASEHOLD_LOG_DEBUG: the logger says which records it wants.
_LEAST = 4
#: A record is no longer.
_RECORD = 4096

#: In seconds: no handler keeps the program from its end for longer.
_LONGEST_HANDLER = 5

_mutex = threading.Lock()
#: Held from reading a record until it is handed on, so that the end waits for that one too.
_reading = threading.RLock()
#: The socket of this process.
_descriptor: Optional[int] = None


def start() -> None:
    """Has the log read, if that is not done yet in this process. A program that has no descriptor
    left has other worries."""
    global _descriptor
    with _mutex:
        made = c_int()
        if _descriptor is not None or _abi.log_socket(_LEAST, byref(made), None) != OK:
            return
        _descriptor = made.value
        threading.Thread(
            target=_read_on, args=(_descriptor,), name="leasehold-log", daemon=True
        ).start()


def _read_on(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while _read(descriptor):
        poll.poll()


def _read(descriptor: int) -> bool:
    """Hands on what there is; false where no more will come."""
    while True:
        with _reading:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                return True
            if not record:
                return False
            level, message = _LEVELS[int(record[:1])], record[1:].decode(errors="replace")
            _log.log(level, "%s", message)


def _end() -> None:
    """What was logged last. `logging` itself ends after this, since it was imported before."""
    if _descriptor is not None and _reading.acquire(timeout=_LONGEST_HANDLER):
        try:
            _read(_descriptor)
        finally:
            _reading.release()


def _forked() -> None:
    """In a child, where the thread is missing, and the mutexes may be held by one that is."""
    global _mutex, _reading, _descriptor
    _mutex, _reading = threading.Lock(), threading.RLock()
    _descriptor = None


atexit.register(_end)
os.register_at_fork(after_in_child=_forked)
