"""What people write who come from another library: each message names our word for it."""

import difflib
import warnings
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NoReturn

from ._time import Seconds


class UnitWarning(UserWarning):
    """A ttl over 3600 s: it may have been meant as milliseconds. Durations are seconds."""


#: A longer ttl is said to be one, once: a ttl is for how long a lock stays taken after a crash.
LONG_TTL = 3600

_TTL = "ttl=10 (renewed while it is held; renew=False: the lease ends after it)"
_WAIT = "wait=5, or acquire_within(5)"
_TRY = "try_acquire(), which returns None if another client holds the lock"
_NO_SLEEP = (
    "leave it out: the store hands the lock to waiters; to poll, use wait_mode='spin' and backoff="
)
_NO_THREAD = "leave it out: any thread may use a Lease"
_NO_ERROR = "leave it out, and catch leasehold.Lost where the block ends"

#: Of redis-py's Lock, and of other locks in Python.
_ARGUMENTS = {
    "timeout": _TTL,
    "expire": _TTL,
    "ex": _TTL,
    "px": _TTL,
    "lock_timeout": _TTL,
    "auto_release_time": _TTL,
    "blocking_timeout": _WAIT,
    "acquire_timeout": _WAIT,
    "blocking": _TRY,
    "sleep": _NO_SLEEP,
    "thread_local": _NO_THREAD,
    "raise_on_release_error": _NO_ERROR,
    "auto_renewal": "renew=, which is True by default",
    "lock_class": "leasehold_lock.compat.Lock, the drop-in for redis-py's",
}
#: Of a call that takes a lock, a timeout is what the wait has.
_OF_TAKING = {
    **_ARGUMENTS,
    "timeout": _WAIT,
    "token": "nothing: each lease has a new token of its own",
}
_OF_TAKING["wait"] = "acquire_within(5)"

_LEASE = "the Lease that acquire() returns has"
_OF_LOCK = {
    "release": f"{_LEASE} release(); or write 'with lock as lease:'",
    "extend": f"{_LEASE} extend(), which a renewed lease does not need",
    "reacquire": f"{_LEASE} extend(), which a renewed lease does not need",
    "owned": f"{_LEASE} valid",
    "locked": "write lock.inspect().held",
    "local": f"{_LEASE} token",
    "token": f"{_LEASE} token",
    "blocking_acquire": "write lock.acquire()",
    "timeout": "a lock does not keep the arguments of Client.lock()",
}
_OF_LEASE = {
    "owned": "write lease.valid",
    "locked": "write lease.valid, or lock.inspect().held for any holder",
    "reacquire": "write lease.extend(), which a renewed lease does not need",
    "acquire": "a lease is held already; the Lock has acquire()",
    "local": "write lease.token",
    "is_valid": "write lease.valid",
}


def refuse(call: str, given: Iterable[str], known: Iterable[str]) -> NoReturn:
    """An argument that a call does not have."""
    name = next(iter(given))
    theirs = _ARGUMENTS if call in ("lock", "locked") else _OF_TAKING
    if name in theirs:
        raise TypeError(
            f"{call}() has no {name!r}: write {theirs[name]}".replace("write leave", "leave")
        )
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TypeError(f"{call}() has no argument {name!r}{hint}")


def refuse_positional(call: str, given: Iterable[Any]) -> NoReturn:
    """An argument without a name, as `acquire(False)` of other locks has it."""
    first = next(iter(given))
    ours = _TRY if first is False else _WAIT
    raise TypeError(f"{call}() takes no {first!r}: write {ours}")


def no_lock_attribute(name: str) -> AttributeError:
    """For what a lock does not have."""
    return _missing("Lock", name, _OF_LOCK)


def no_lease_attribute(name: str) -> AttributeError:
    """For what a lease does not have."""
    return _missing("Lease", name, _OF_LEASE)


def _missing(kind: str, name: str, theirs: dict[str, str]) -> AttributeError:
    hint = f": {theirs[name]}" if name in theirs else ""
    return AttributeError(f"a leasehold.{kind} has no {name!r}{hint}")


def warn_of_long(ttl: Seconds, stacklevel: int) -> None:
    """Says that a ttl may be meant as milliseconds. A `timedelta` says its unit."""
    if isinstance(ttl, timedelta) or not LONG_TTL < ttl < float("inf"):
        return
    warnings.warn(
        f"ttl={ttl} is {timedelta(seconds=int(ttl))} h: durations are seconds. Write ttl={ttl / 1000:g} if "
        f"these are milliseconds, and timedelta(seconds={ttl}) if the lock is to stay taken for so long "
        f"after a crash",
        UnitWarning,
        stacklevel=stacklevel + 1,
    )
