"""Tokens and scripts that a program chooses itself.

Leasehold marks a grant with 128 random bits that are never used again; its promises rest on that.
A lock with another token is no grant of its, so redis-py takes and gives it back itself. It also
runs the script that a program has put in place of one of its own.
"""

import importlib
import re
from typing import TYPE_CHECKING, Any, Optional, Tuple

from .._client import Client

if TYPE_CHECKING:
    from ._lock import Lock

_OURS = re.compile(rb"[0-9a-f]{32}")


def is_foreign(token: bytes) -> bool:
    """Whether Leasehold can have no grant with this token."""
    return _OURS.fullmatch(token) is None


def has_script(lock: "Lock", what: str) -> bool:
    """Whether a program has put a script in place of redis-py's."""
    return any(script is not None for script in _scripts(lock, what))


def _scripts(lock: "Lock", what: str) -> Tuple[Any, Optional[str]]:
    """As it can be called, and its text."""
    return getattr(lock, f"lua_{what}"), getattr(lock, f"LUA_{what.upper()}_SCRIPT")


def theirs_of(lock: "Lock", token: Optional[bytes] = None) -> Any:
    """redis-py's lock of the same name, options and scripts, which owns what the token marks."""
    if isinstance(lock.redis, Client):
        raise TypeError(
            "a token or a script of one's own needs a redis.Redis as the client of the lock"
        )
    # A program that has a redis.Redis has this.
    theirs: Any = importlib.import_module("redis.lock").Lock(
        lock.redis,
        lock.name,
        lock.timeout,
        lock.sleep,
        lock.blocking,
        lock.blocking_timeout,
        thread_local=False,
    )
    theirs.local.token = token
    for what in ("release", "extend", "reacquire"):
        script, text = _scripts(lock, what)
        if script is None and text is not None:
            script = lock.redis.register_script(text)
        if script is not None:
            setattr(theirs, f"lua_{what}", script)
    return theirs
