"""Tokens that a program chooses itself.

Leasehold marks a grant with 128 random bits that are never used again; its promises rest on that.
A lock with another token is no grant of its, so redis-py takes and gives it back itself.
"""

import importlib
import re
from typing import TYPE_CHECKING, Any, Optional

from .._client import Client

if TYPE_CHECKING:
    from ._lock import Lock

_OURS = re.compile(rb"[0-9a-f]{32}")


def is_foreign(token: bytes) -> bool:
    """Whether Leasehold can have no grant with this token."""
    return _OURS.fullmatch(token) is None


def theirs_of(lock: "Lock", token: Optional[bytes] = None) -> Any:
    """redis-py's lock of the same name and options, which owns what the token marks."""
    if isinstance(lock.redis, Client):
        raise TypeError("a token of one's own needs a redis.Redis as the client of the lock")
    # Whoever has a redis.Redis has this.
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
    return theirs
