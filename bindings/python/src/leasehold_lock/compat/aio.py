"""redis-py's ``Lock`` for asyncio, on Leasehold. All of `leasehold_lock.compat` is true here too.

>>> import leasehold_lock.compat.aio
>>> async def work() -> None:
...     async with leasehold_lock.compat.aio.Lock(client, "orders:42", timeout=10) as lock:
...         await lock.extend(5)
>>> asyncio.run(work())

`client` is a client of Leasehold, or a ``redis.asyncio.Redis``, also from a Sentinel's ``master_for()``; a
``RedisCluster`` for asyncio is rejected. A task that is cancelled while it waits holds no lock.
"""

import asyncio
import logging
import time
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar, Union

from .. import aio
from .._errors import Error, Timeout, WrongType
from .._lease import Lease
from .._lock import Lock as OurLock
from .._tasks import in_thread
from . import _lock
from ._clients import client_of, key_of
from ._exceptions import LockError, LockNotOwnedError, translated
from ._foreign import has_script, is_foreign, theirs_of
from ._lock import LONG, SHORTEST_PAUSE, Key, Number, Owned, OwnedByThread

_log = logging.getLogger("leasehold")
_T = TypeVar("_T")


class _Blocking(_lock.Lock):
    """What is done with Leasehold, for which a thread waits."""

    _in_loop = True


class Lock:
    """A drop-in for ``redis.asyncio.lock.Lock``: every method and argument has the same meaning.
    `leasehold_lock.compat` has the one difference."""

    _theirs = "redis.asyncio.lock"
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
            if hasattr(cls, name):
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
        client_of(redis, in_loop=True)

    async def __aenter__(self) -> "Lock":
        if await self.acquire():
            return self
        raise self._error(LockError, "Unable to acquire lock within the time specified")

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            _log.warning("Lock was unlocked or no longer owned when exiting context manager.")

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Union[str, bytes, None] = None,
    ) -> bool:
        """Acquires the lock. Returns False if another client held it to the end of the wait. See
        `leasehold_lock.compat.Lock.acquire()`."""
        blocking = self.blocking if blocking is None else blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        local = self.local
        if token is not None:
            theirs = theirs_of(self)
            taken = bool(await theirs.acquire(blocking, blocking_timeout, token))
            if taken:
                local.token, local.grant, local.lease = theirs.local.token, None, None
            return taken
        pause = max(self.sleep, SHORTEST_PAUSE)
        try:
            lease = await _take(self._blocking()._lock(pause), pause, blocking, blocking_timeout)
        except Error as error:
            raise translated(error) from error
        if lease is None:
            return False
        text = lease.token.encode()
        local.token, local.grant, local.lease = text, (text, lease.fence), lease
        return True

    async def locked(self) -> bool:
        """Whether any client holds the lock."""
        return await self._in_thread(lambda lock: lock.locked())

    async def owned(self) -> bool:
        """Asks the server whether this object holds the lock."""
        token = self._token()
        if token is not None and is_foreign(token):
            return bool(await theirs_of(self, token).owned())
        return await self._in_thread(lambda lock: lock.owned())

    async def release(self) -> None:
        """Releases the lock. As in redis-py's, the token stays if the server did not answer, and you can
        repeat the call."""
        local, token = self.local, self._token()
        if token is None:
            raise self._error(
                LockError, "Cannot release a lock that's not owned or is already unlocked."
            )
        try:
            if self._is_theirs(token, "release"):
                await theirs_of(self, token).release()
            else:
                await self._in_thread(lambda lock: lock.do_release(token))
        except LockNotOwnedError:
            local.token = local.grant = local.lease = None
            raise
        local.token = local.grant = local.lease = None

    async def extend(self, additional_time: Number, replace_ttl: bool = False) -> bool:
        """Adds to the time that is left, or replaces it."""
        token = self._token()
        if token is not None and self.timeout and self._is_theirs(token, "extend"):
            self.local.lease = None
            return bool(await theirs_of(self, token).extend(additional_time, replace_ttl))
        return await self._in_thread(lambda lock: lock.extend(additional_time, replace_ttl))

    async def reacquire(self) -> bool:
        """Sets the time that is left of the lock to its timeout."""
        token = self._token()
        if token is not None and self.timeout and self._is_theirs(token, "reacquire"):
            self.local.lease = None
            return bool(await theirs_of(self, token).reacquire())
        return await self._in_thread(lambda lock: lock.reacquire())

    def _token(self) -> Optional[bytes]:
        """What marks the lock on the server, of whatever type a program has set it."""
        token: Any = self.local.token
        return None if token is None else key_of(self.redis, token)

    def _is_theirs(self, token: bytes, what: str) -> bool:
        """Whether redis-py does it."""
        return is_foreign(token) or has_script(self, what)

    def _blocking(self) -> _Blocking:
        """A lock that may be used in another thread, which does not see what `local` has in this one."""
        made = _Blocking(self.redis, self.name, self.timeout, self.sleep, thread_local=False)
        for name in ("token", "grant", "lease"):
            setattr(made.local, name, getattr(self.local, name))
        return made

    async def _in_thread(self, call: Callable[[_Blocking], _T]) -> _T:
        """A task that is cancelled meanwhile waits for the end of the call all the same."""
        made = self._blocking()
        try:
            return await in_thread(lambda: call(made))
        finally:
            self.local.lease = made.local.lease

    def _error(self, kind: type[LockError], message: str) -> LockError:
        name: Any = self.name  # As it is, whatever redis-py declares.
        return kind(message, lock_name=name)


async def _take(
    lock: OurLock, pause: Number, blocking: bool, limit: Optional[Number]
) -> Optional[Lease]:
    end = time.monotonic() + (LONG if limit is None else max(limit, 0))
    while True:
        try:
            if not blocking:
                return await aio.try_acquire(lock)
            return await aio.acquire_within(lock, max(end - time.monotonic(), 0))
        except Timeout:
            return None
        except WrongType:
            # Taken by redis-py, which has set no ttl: busy, for as long as that may last.
            if not blocking or time.monotonic() + pause > end:
                return None
            await asyncio.sleep(pause)
