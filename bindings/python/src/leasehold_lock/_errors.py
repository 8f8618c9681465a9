"""An exception for each status of the C interface.

Two statuses raise nothing: "ok", and "busy", for which a call returns None. Statuses above 0 are
outcomes, those below 0 are errors. Later versions may add more of both; a status that this package
does not know is an `Error` with its number in `status`.
"""

from ctypes import c_void_p
from typing import Optional, TypeVar

from . import _abi

OK = 0
BUSY = 1
TIMEOUT = 2
INTERRUPTED = 3


class Error(Exception):
    """The base class of every exception of this package.

    >>> import leasehold_lock as leasehold
    >>> try:
    ...     leasehold.connect("redis://localhost?colour=green")
    ... except leasehold.Error as error:
    ...     print(error.name, error.retriable)
    bad_argument False
    """

    #: The status of the C interface.
    status: int = 0
    #: What is particular to this failure, without the general text; may be empty.
    detail: str = ""

    @property
    def name(self) -> str:
        """The short, stable name of the status, such as ``"bad_argument"``."""
        return str(_abi.status_name(self.status).decode())

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later, with nothing changed."""
        return bool(_abi.status_is_retriable(self.status))


_by_status: dict[int, type[Error]] = {}
_E = TypeVar("_E", bound=type[Error])


def _of_status(kind: _E) -> _E:
    _by_status[kind.status] = kind
    return kind


@_of_status
class Timeout(Error, TimeoutError):
    """The wait ran out while another client held the lock."""

    status = TIMEOUT


@_of_status
class Interrupted(Error):
    """The wait was interrupted. You do not hold the lock."""

    status = INTERRUPTED


@_of_status
class Lost(Error):
    """You no longer hold the lock: the lease expired, was deleted, had ended before, or another client
    holds the lock now. Since then, another client may have worked on the resource too. A resource that
    compares fences has rejected your late writes."""

    status = 4


@_of_status
class Unknown(Error):
    """The store did not answer, so the outcome is not known. A lock that you did not hold before counts
    as not held. If the store did grant it, the client releases it in the background."""

    status = 5


@_of_status
class BadArgument(Error, ValueError):
    """An argument that can never work: a bad name, option or URL."""

    status = -1


@_of_status
class BadHandle(Error):
    """A defect of this package: it used something that was freed."""

    status = -2


@_of_status
class Closed(Error):
    """The client is closed."""

    status = -3


@_of_status
class Forked(Error):
    """The object was made before this process was forked. Open a new client in the child."""

    status = -4


@_of_status
class Sealed(Error):
    """A client was opened with this configuration, so it can no longer change."""

    status = -5


@_of_status
class Panic(Error):
    """A defect of the library: the call was abandoned."""

    status = -6


@_of_status
class WouldDeadlock(Error):
    """This thread holds the lock and would wait for itself."""

    status = -7


@_of_status
class Refused(Error, ConnectionError):
    """The store cannot be reached."""

    status = -8


@_of_status
class NoAnswer(Error, ConnectionError):
    """The store did not answer in time. No lock was requested or changed."""

    status = -9


@_of_status
class Auth(Error):
    """The store did not accept the user or the password."""

    status = -10


@_of_status
class Tls(Error):
    """The TLS connection could not be made."""

    status = -11


@_of_status
class Permission(Error):
    """The store forbids a command or a key that a lock needs."""

    status = -12


@_of_status
class WrongType(Error):
    """The name is in use by something that is not a lease."""

    status = -13


@_of_status
class ReadOnly(Error):
    """The store is read-only."""

    status = -14


@_of_status
class OutOfMemory(Error):
    """The store is out of memory."""

    status = -15


@_of_status
class Unavailable(Error):
    """The store is up but cannot serve at the moment: it is loading, busy, or failing over."""

    status = -16


@_of_status
class Exhausted(Error):
    """This process has run out of connections, descriptors or threads."""

    status = -17


@_of_status
class Storage(Error):
    """The file of an embedded store cannot be used."""

    status = -18


@_of_status
class Protocol(Error):
    """The store answered something that this library does not understand."""

    status = -19


@_of_status
class NotReplicated(Error):
    """Too few replicas acknowledged the grant. The lock was released."""

    status = -20


@_of_status
class NoQuorum(Error, ConnectionError):
    """Too few servers of the quorum answered. You do not hold the lock."""

    status = -21


@_of_status
class DiskFull(Error):
    """The disk that the store writes to is full, or a quota there is used up."""

    status = -22


def failure(status: int, cell: Optional[c_void_p] = None, lock: str = "") -> Error:
    """The exception for a status. `cell` is where the call wrote the particulars, or nothing;
    they are freed. `lock` is the name of the lock, which they have where there are any."""
    handle = cell.value if cell is not None else None
    if handle:
        message = _abi.error_message(handle).decode()
        detail = _abi.error_detail(handle).decode()
        _abi.error_free(handle)
        return error(status, message, detail)
    what, advice = _abi.status_message(status).decode(), _abi.status_advice(status).decode()
    detail = repr(lock) if lock else ""
    if status == TIMEOUT:
        # Who has it, as this thread's wait has found out.
        detail = _abi.timeout_detail().decode("utf-8", "replace") or detail
    message = what + (f": {detail}" if detail else "") + (f"; {advice}" if advice else "")
    return error(status, message, detail)


def nested(name: str, holder: str) -> Error:
    """Whoever holds a lock would wait for itself."""
    return error(WouldDeadlock.status, f"{holder} is in a with statement on lock {name!r} already")


def error(status: int, message: str, detail: str = "") -> Error:
    """An exception with our own words."""
    made = _by_status.get(status, Error)(message)
    made.detail = detail
    if type(made) is Error:
        made.status = status
    return made


def bad_argument(detail: str) -> BadArgument:
    """An argument that is refused before C is asked."""
    made = BadArgument(f"{detail}")
    made.detail = detail
    return made
