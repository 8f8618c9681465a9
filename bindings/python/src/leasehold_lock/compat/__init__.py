"""redis-py's ``Lock`` on Leasehold: to move existing code, change the import.

>>> from leasehold_lock.compat import Lock, LockError
>>> with Lock(client, "orders:42", timeout=10, blocking_timeout=5) as lock:
...     lock.owned()
True

`client` is a client of Leasehold, or one that the code has already: a ``redis.Redis``, also from a
Sentinel's ``master_for()``, or a ``RedisCluster``. Leasehold then uses its servers and credentials.
For asyncio there is `leasehold_lock.compat.aio.Lock`. This call needs no other change::

    r.lock("orders:42", timeout=10, lock_class=leasehold_lock.compat.Lock)

The lock is the same key on the server, with a token of the same form and the same ttl. So programs
that use redis-py's lock and programs that use this one exclude each other. The exceptions are
redis-py's own if it is installed; if not, they have the same names.

One thing is different. With ``timeout=None``, redis-py sets no ttl: after a crash the lock stays
held until somebody deletes the key. Here it gets a ttl of 30 s, which is renewed for as long as the
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
