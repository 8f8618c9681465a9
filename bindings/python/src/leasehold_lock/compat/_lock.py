"""The lock itself."""

import logging
import math
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Any, Optional, Union

from .._client import Client
from .._errors import Error, Lost, Timeout, WrongType
from .._lease import Lease
from .._lock import Backoff, LockState
from .._lock import Lock as OurLock
from ._clients import client_of, key_of
from ._exceptions import LockError, LockNotOwnedError, ResponseError, translated
from ._foreign import has_script, is_foreign, theirs_of

_log = logging.getLogger("leasehold")

Number = Union[int, float]
#: What redis-py takes for a key.
Key = Union[str, bytes, bytearray, memoryview, int, float]

#: A wait that is as good as one without limit. One that has none would be refused where the thread
#: holds the lock itself; redis-py's goes on until the lock expires, or another thread releases it.
LONG = 10 * 365 * 86400.0
#: The shortest pause between two tries.
SHORTEST_PAUSE = 0.001


class Owned:
    """What is known of the lock that is owned."""

    #: What marks it on the server. A program may hand it to another process and set it there.
    token: Optional[bytes] = None
    #: The grant that the token was got with, as bytes and a fence.
    grant: Optional[tuple[bytes, int]] = None
    #: The grant's lease, while nothing but time has changed it. It renews a lock without a timeout.
    lease: Optional[Lease] = None


class OwnedByThread(Owned, threading.local):
    pass


class Lock:
    """A drop-in for ``redis.lock.Lock``: every method and argument has the same meaning. The module's
    text has the one difference.

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

    A script that is put in place of one of redis-py's is run instead of what we do, by redis-py.
    """

    #: Whether it is given a client for asyncio.
    _in_loop = False
    #: Where redis-py has the class that this one takes the place of.
    _theirs = "redis.lock"
    #: Scripts of a program's own, as redis-py registers them, and their texts.
    lua_release: Any = None
    lua_extend: Any = None
    lua_reacquire: Any = None
    LUA_RELEASE_SCRIPT: Optional[str] = None
    LUA_EXTEND_SCRIPT: Optional[str] = None
    LUA_REACQUIRE_SCRIPT: Optional[str] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("do_acquire", "do_release", "do_extend", "do_reacquire", "register_scripts"):
            if getattr(cls, name) is not getattr(Lock, name):
                raise TypeError(f"{cls.__name__}.{name}() would never be called by this lock")

    def __init__(
        self,
        redis: Any,
        name: Key,
        timeout: Optional[Number] = None,
        sleep: Number = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[Number] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Owned = OwnedByThread() if self.thread_local else Owned()
        self._made: Optional[tuple[tuple[object, ...], OurLock]] = None
        client_of(redis, self._in_loop)

    def __enter__(self) -> "Lock":
        if self.acquire():
            return self
        raise self._error(LockError, "Unable to acquire lock within the time specified")

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]],
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
        """Acquires the lock. Returns False if another client held it to the end of the wait.

        `sleep` is the longest pause between two tries; with ``blocking=False`` there is one try.
        `blocking_timeout` limits the wait, which otherwise has no limit. `token` is what marks the
        lock on the server instead of a random one; that needs a ``redis.Redis`` as the client.
        """
        sleep = self.sleep if sleep is None else sleep
        blocking = self.blocking if blocking is None else blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        local = self.local
        if token is not None:
            theirs = theirs_of(self)
            taken = bool(theirs.acquire(sleep, blocking, blocking_timeout, token))
            if taken:
                local.token, local.grant, local.lease = theirs.local.token, None, None
            return taken
        pause = max(sleep, SHORTEST_PAUSE)
        try:
            lease = self._take(self._lock(pause), pause, blocking, blocking_timeout)
        except Error as error:
            raise translated(error) from error
        if lease is None:
            return False
        text = lease.token.encode()
        local.token, local.grant, local.lease = text, (text, lease.fence), lease
        return True

    def _take(
        self, lock: OurLock, pause: Number, blocking: bool, limit: Optional[Number]
    ) -> Optional[Lease]:
        end = time.monotonic() + (LONG if limit is None else max(limit, 0))
        while True:
            try:
                if not blocking:
                    return lock.try_acquire()
                return lock.acquire_within(max(end - time.monotonic(), 0))
            except Timeout:
                return None
            except WrongType:
                # Taken by redis-py, which has set no ttl: busy, for as long as that may last.
                if not blocking or time.monotonic() + pause > end:
                    return None
                time.sleep(pause)

    def _lock(self, pause: Number = 0.1) -> OurLock:
        """Leasehold's lock, by what the attributes say now."""
        client, name = client_of(self.redis, self._in_loop), key_of(self.redis, self.name)
        wanted = (client, name, self.timeout, pause)
        if self._made is None or self._made[0] != wanted:
            self._made = (wanted, _make(client, name, self.timeout, pause))
        return self._made[1]

    def do_acquire(self, token: Union[str, bytes]) -> bool:
        """One try with a token of the program's own, which `local` does not get."""
        return bool(theirs_of(self).do_acquire(key_of(self.redis, token)))

    def register_scripts(self) -> None:
        """Nothing to do: our scripts need no registering."""

    def locked(self) -> bool:
        """Whether any client holds the lock."""
        state = self._inspect()
        return state is None or state.held

    def owned(self) -> bool:
        """Asks the server whether this object holds the lock."""
        token, grant = self._token(), self.local.grant
        if token is None:
            return False
        if is_foreign(token):
            return bool(theirs_of(self, token).owned())
        state = self._inspect()
        seen = state.token_prefix.encode() if state is not None else b""
        if state is None or not seen or not token.startswith(seen):
            return False
        # The fence of a token from another process is not known here.
        return grant is None or grant[0] != token or grant[1] == state.fence

    def _inspect(self) -> Optional[LockState]:
        """What is to be seen; None for a key that redis-py has set without a ttl."""
        try:
            return self._lock().inspect()
        except WrongType:
            return None
        except Error as error:
            raise translated(error) from error

    def release(self) -> None:
        """Releases the lock."""
        local = self.local
        if local.token is None:
            raise self._error(
                LockError, "Cannot release a lock that's not owned or is already unlocked."
            )
        try:
            self.do_release(local.token)
        finally:
            local.token = local.grant = local.lease = None

    def do_release(self, expected_token: Any) -> None:
        """Releases what a token marks, also one of another object or process."""
        token: bytes = key_of(self.redis, expected_token)
        try:
            if self._is_theirs(token, "release"):
                theirs_of(self, token).release()
            else:
                self._own(token, self.local.lease).release()
        except Lost:
            raise self._error(
                LockNotOwnedError, "Cannot release a lock that's no longer owned"
            ) from None
        except Error as error:
            raise translated(error) from error

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Adds to the time that is left of the lock, or replaces it."""
        if self.local.token is None:
            raise self._error(LockError, "Cannot extend an unlocked lock")
        if not self.timeout:
            raise self._error(LockError, "Cannot extend a lock with no timeout")
        return self.do_extend(additional_time, replace_ttl)

    def do_extend(self, additional_time: Number, replace_ttl: bool) -> bool:
        """`extend()` without its looking first."""
        token = self._marked()
        if self._is_theirs(token, "extend"):
            self.local.lease = None
            return bool(theirs_of(self, token).extend(additional_time, replace_ttl))
        ttl = _cut(additional_time)
        if not replace_ttl:
            state = self._inspect()
            ttl += state.ttl if state is not None else 0
        return self._set_ttl(token, ttl, "Cannot extend a lock that's no longer owned")

    def reacquire(self) -> bool:
        """Sets the time that is left of the lock to its timeout."""
        if self.local.token is None:
            raise self._error(LockError, "Cannot reacquire an unlocked lock")
        if not self.timeout:
            raise self._error(LockError, "Cannot reacquire a lock with no timeout")
        return self.do_reacquire()

    def do_reacquire(self) -> bool:
        """`reacquire()` without its looking first."""
        token = self._marked()
        if self._is_theirs(token, "reacquire"):
            self.local.lease = None
            return bool(theirs_of(self, token).reacquire())
        ttl = _cut(self.timeout or 0)
        return self._set_ttl(token, ttl, "Cannot reacquire a lock that's no longer owned")

    def _token(self) -> Optional[bytes]:
        """What marks the lock on the server, of whatever type a program has set it."""
        token: Any = self.local.token
        return None if token is None else key_of(self.redis, token)

    def _marked(self) -> bytes:
        """The token of a lock that is owned, as far as this object knows."""
        token = self._token()
        if token is None:
            raise self._error(LockError, "this object does not own the lock: it has no token")
        return token

    def _is_theirs(self, token: bytes, what: str) -> bool:
        """Whether redis-py does it."""
        return is_foreign(token) or has_script(self, what)

    def _set_ttl(self, token: bytes, ttl: float, otherwise: str) -> bool:
        try:
            lease = self._own(token, self.local.lease)
            if ttl <= 0:
                lease.release()  # As PEXPIRE frees it; the token stays, and owns nothing.
            else:
                # Extending a lease never shortens it, but redis-py's methods do. This sets the ttl
                # as it is, and ends only the handle: what is owned is known by its token from now
                # on.
                lease.let_expire(after=ttl)
        except Lost:
            raise self._error(LockNotOwnedError, otherwise) from None
        except Error as error:
            raise translated(error) from error
        self.local.lease = None
        return True

    def _own(self, token: bytes, lease: Optional[Lease]) -> Lease:
        """A handle for what is owned under a token. It is the server that says whether it is: a
        lease whose time is over by our clock, with its margin, is asked for like any other."""
        grant = self.local.grant
        known = grant is not None and grant[0] == token
        if known and lease is not None and lease.valid:
            return lease
        lock = self._lock()
        # The fence of a token from another process is to be seen on the server.
        fence = grant[1] if known and grant is not None else (lock.inspect().fence or 1)
        return lock.attach(token.decode(), fence)

    def _error(self, kind: type[LockError], message: str) -> LockError:
        name: Any = self.name  # As it is, whatever redis-py declares.
        return kind(message, lock_name=name)


def _make(client: Client, name: bytes, timeout: Optional[Number], pause: Number) -> OurLock:
    # A release by redis-py tells nobody: a waiter that shares a name with it asks again and again.
    backoff = Backoff(first=pause, longest=pause)
    if not timeout:
        return client.lock(name, max_hold=math.inf, wait_mode="spin", backoff=backoff)
    # As a `timedelta`, of whose unit nobody has to be warned: redis-py's programs know it.
    ttl = timedelta(seconds=_cut(timeout))
    return client.lock(name, ttl=ttl, renew=False, wait_mode="spin", backoff=backoff)


def _cut(seconds: Number) -> float:
    """Whole milliseconds, as redis-py cuts them."""
    if isinstance(seconds, (str, bytes)):
        # What the server says to redis-py, which would repeat the text a thousand times here.
        raise ResponseError("value is not an integer or out of range")
    return int(seconds * 1000) / 1000
