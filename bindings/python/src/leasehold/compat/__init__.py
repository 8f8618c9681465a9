"""redis-py's ``Lock``, on Leasehold: old code goes on with another import.

>>> from leasehold.compat import Lock, LockError
>>> with Lock(client, "orders:42", timeout=10, blocking_timeout=5) as lock:
...     lock.owned()
True

`client` is one of Leasehold, or what the code has already, whose servers and credentials are then
used: a ``redis.Redis``, also of a Sentinel's ``master_for()``, or a ``RedisCluster``. With a client for
asyncio, it is `leasehold.compat.aio.Lock`. So this needs no other change at all::

    r.lock("orders:42", timeout=10, lock_class=leasehold.compat.Lock)

The lock is the same key on the server, with a token of the same form and the same ttl, so programs
with the one and programs with the other exclude each other. Its exceptions are redis-py's own where
that is installed, and have its names where it is not.

One thing is different. With ``timeout=None``, redis-py sets no ttl: after a crash the lock stays
taken until somebody deletes it. Here it gets a ttl of 30 s that is renewed for as long as the
``Lock`` object lives, or with ``thread_local`` its thread.
"""

from ._exceptions import (
    AuthenticationError,
    ConnectionError,
    LockError,
    LockNotOwnedError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from ._lock import Lock

__all__ = [
    "AuthenticationError",
    "ConnectionError",
    "Lock",
    "LockError",
    "LockNotOwnedError",
    "RedisError",
    "ResponseError",
    "TimeoutError",
]
