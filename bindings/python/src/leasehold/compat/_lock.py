"""The lock itself. Its documentation is redis-py's."""

import logging
import math
import threading
import time
from types import TracebackType
from typing import Any, Optional, Type, Union

from .. import _lease, _lock
from .._errors import LeaseLost, Timeout, WrongType
from .._lock import Backoff
from ._clients import client_of
from ._exceptions import LockError, LockNotOwnedError, translated
from ._foreign import is_foreign, theirs_of

_log = logging.getLogger("leasehold")

Number = Union[int, float]

#: A wait that is as good as one without limit. One that has none would be refused where the thread
#: holds the lock itself; redis-py's goes on until the lock expires, or another thread releases it.
_LONG = 10 * 365 * 86400.0
#: The shortest pause between two tries.
_SHORTEST_PAUSE = 0.001


class _Owned:
    """What is known of the lock that is owned."""

    #: What marks it on the server. A program may hand it to another process and set it there.
    token: Optional[bytes] = None
    #: The grant that the token was got with.
    handover: Optional[_lease.Handover] = None
    #: Only for a lock without a timeout: what renews it.
    lease: Optional[_lease.Lease] = None


class _OwnedByThread(_Owned, threading.local):
    pass


class Lock:
    """A drop-in for ``redis.lock.Lock``: every method and argument, with the same meaning; see the
    module for the one difference.

    >>> lock = Lock(client, "orders:42", timeout=10)
    >>> lock.acquire(blocking=False)
    True
    >>> Lock(client, "orders:42").acquire(blocking_timeout=0.05)
    False
    >>> lock.extend(5), lock.reacquire()
    (True, True)
    >>> lock.release()
    >>> lock.locked()
    False
    """

    def __init__(
        self,
        client: Any,
        name: Union[str, bytes],
        timeout: Optional[Number] = None,
        sleep: Number = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[Number] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = client
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: _Owned = _OwnedByThread() if self.thread_local else _Owned()
        client_of(client)

    def __enter__(self) -> "Lock":
        if self.acquire():
            return self
        raise self._error(LockError, "Unable to acquire lock within the time specified")

    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            _log.warning("Lock was unlocked or no longer owned when exiting context manager.")

    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Union[str, bytes, None] = None,
    ) -> bool:
        """Takes the lock; False if it stayed taken.

        `sleep` is the longest pause between two tries; with ``blocking=False`` there is one try.
        `blocking_timeout` limits the wait, which otherwise has no limit. `token` is what marks the
        lock on the server instead of a random one; that needs a ``redis.Redis`` as the client.
        """
        sleep = self.sleep if sleep is None else sleep
        blocking = self.blocking if blocking is None else blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        if token is not None:
            theirs = theirs_of(self)
            taken = bool(theirs.acquire(sleep, blocking, blocking_timeout, token))
            if taken:
                self.local.lease = self.local.handover = None
                self.local.token = theirs.local.token
            return taken
        pause = max(sleep, _SHORTEST_PAUSE)
        with translated():
            lease = self._acquire(self._lock(pause), pause, blocking, blocking_timeout)
            if lease is None:
                return False
            local = self.local
            if self.timeout:
                # redis-py's lock is no more than its token, and belongs to whoever knows it.
                local.lease, local.handover = None, lease.detach()
            else:
                local.lease = lease
                local.handover = _lease.Handover(lease.token, lease.fence)
            local.token = local.handover.token.encode()
            return True

    def _acquire(
        self, lock: _lock.Lock, pause: Number, blocking: bool, limit: Optional[Number]
    ) -> Optional[_lease.Lease]:
        end = time.monotonic() + (_LONG if limit is None else max(limit, 0))
        while True:
            try:
                if not blocking:
                    return lock.try_acquire()
                return lock.acquire(max(end - time.monotonic(), 0))
            except Timeout:
                return None
            except WrongType:
                # Taken by redis-py, which has set no ttl: busy, for as long as that may last.
                if not blocking or time.monotonic() + pause > end:
                    return None
                time.sleep(pause)

    def _lock(self, pause: Number = 0.1) -> _lock.Lock:
        backoff = Backoff(spins=0, first=pause, longest=pause)
        client = client_of(self.redis)
        if not self.timeout:
            return client.lock(self.name, max_hold=math.inf, backoff=backoff)
        # As redis-py cuts it.
        ttl = int(self.timeout * 1000) / 1000
        return client.lock(self.name, ttl=ttl, renew=False, backoff=backoff)

    def locked(self) -> bool:
        """Whether anybody has the lock."""
        with translated():
            try:
                return self._lock().show().held
            except WrongType:  # By redis-py, without a ttl.
                return True

    def owned(self) -> bool:
        """Whether this object has the lock, as the server sees it."""
        token = self.local.token
        if token is None:
            return False
        if is_foreign(token):
            return bool(theirs_of(self, token).owned())
        with translated():
            try:
                shown = self._lock().show()
            except WrongType:
                return False
        if not shown.held or not token.decode().startswith(shown.token_prefix):
            return False
        handover = self._handover(token)
        return handover is None or handover.fence == shown.fence

    def _handover(self, token: bytes) -> Optional[_lease.Handover]:
        """What is known of a token; nothing if it came from another process."""
        handover = self.local.handover
        return handover if handover is not None and handover.token.encode() == token else None

    def release(self) -> None:
        """Gives the lock back."""
        local = self.local
        token, lease = local.token, local.lease
        if token is None:
            raise self._error(
                LockError, "Cannot release a lock that's not owned or is already unlocked."
            )
        try:
            if is_foreign(token):
                theirs_of(self, token).release()
                return
            with translated():
                self._own(token, lease).release()
        except LeaseLost:
            raise self._error(
                LockNotOwnedError, "Cannot release a lock that's no longer owned"
            ) from None
        finally:
            local.token = local.lease = local.handover = None

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Adds to the time that is left of the lock, or replaces it."""
        token = self.local.token
        if token is None:
            raise self._error(LockError, "Cannot extend an unlocked lock")
        if not self.timeout:
            raise self._error(LockError, "Cannot extend a lock with no timeout")
        if is_foreign(token):
            return bool(theirs_of(self, token).extend(additional_time, replace_ttl))
        ttl = int(additional_time * 1000) / 1000
        if not replace_ttl:
            with translated():
                ttl += self._lock().show().ttl
        self._set_ttl(token, ttl, "Cannot extend a lock that's no longer owned")
        return True

    def reacquire(self) -> bool:
        """Sets the time that is left of the lock to its timeout."""
        token = self.local.token
        if token is None:
            raise self._error(LockError, "Cannot reacquire an unlocked lock")
        if not self.timeout:
            raise self._error(LockError, "Cannot reacquire a lock with no timeout")
        if is_foreign(token):
            return bool(theirs_of(self, token).reacquire())
        ttl = int(self.timeout * 1000) / 1000
        self._set_ttl(token, ttl, "Cannot reacquire a lock that's no longer owned")
        return True

    def _set_ttl(self, token: bytes, ttl: float, otherwise: str) -> None:
        try:
            with translated():
                # Extending a lease never shortens it, but redis-py's methods do. This sets the
                # ttl as it is, and ends only the handle.
                self._own(token, None).let_expire(after=ttl)
        except LeaseLost:
            raise self._error(LockNotOwnedError, otherwise) from None

    def _own(self, token: bytes, lease: Optional[_lease.Lease]) -> _lease.Lease:
        """A handle for what is owned under a token."""
        if lease is not None and lease.token.encode() == token and not lease._client._forked:
            return lease
        lock = self._lock()
        handover = self._handover(token)
        # A token from another process: the fence is to be seen on the server.
        fence = handover.fence if handover is not None else (lock.show().fence or 1)
        return lock.attach(token.decode(), fence)

    def _error(self, kind: Type[LockError], message: str) -> LockError:
        name = self.name
        return kind(message, lock_name=name.decode() if isinstance(name, bytes) else name)
