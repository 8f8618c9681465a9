"""Tokens and scripts that a program chooses itself.

Leasehold marks a grant with 128 random bits that are never used again; its promises rest on that.
A lock with another token is no grant of its, so redis-py takes and gives it back itself. It also
runs the script that a program has put in place of one of its own.
"""

import functools
import importlib.util
import re
from typing import Any, Optional, Protocol

from .._client import Client

_OURS = re.compile(rb"[0-9a-f]{32}")


class Likewise(Protocol):
    """A lock with the options of redis-py's, of either kind."""

    redis: Any
    name: Any
    timeout: Any
    sleep: Any
    blocking: Any
    blocking_timeout: Any
    _theirs: str


def is_foreign(token: bytes) -> bool:
    """Whether Leasehold can have no grant with this token."""
    return _OURS.fullmatch(token) is None


def has_script(lock: Likewise, what: str) -> bool:
    """Whether a program has put a script in place of redis-py's."""
    return any(script is not None for script in _scripts(lock, what))


def _scripts(lock: Likewise, what: str) -> tuple[Any, Optional[str]]:
    """As it can be called, and its text."""
    return getattr(lock, f"lua_{what}"), getattr(lock, f"LUA_{what.upper()}_SCRIPT")


@functools.cache
def class_of(module: str) -> Any:
    """redis-py's own class. It comes from a copy of the module that nobody else has: a program that
    has put our class, or a wrapper of it, in the place of redis-py's would find itself there."""
    # A program that has a client of redis-py has the module.
    spec: Any = importlib.util.find_spec(module)
    copy: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy.Lock


def theirs_of(lock: Likewise, token: Optional[bytes] = None) -> Any:
    """redis-py's lock of the same name, options and scripts, which owns what the token marks."""
    if isinstance(lock.redis, Client):
        raise TypeError(
            "a token or a script of one's own needs a redis.Redis as the client of the lock"
        )
    theirs: Any = class_of(lock._theirs)(
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
