"""A client: an open store, its connections, and the thread that renews leases."""

import os
import sys
import weakref
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p, string_at
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, Optional, Union, cast

from . import _abi, _borrowed, _credentials, _interrupts, _log
from ._borrowed import Borrowed
from ._election import Election, OnChange
from ._errors import OK, bad_argument, failure
from ._events import Events
from ._habits import refuse, warn_of_long
from ._handles import ConfigHandle, ElectionHandle, EventsHandle, LockHandle, MetricsHandle
from ._lock import WAIT_MODES, Backoff, Lock, WaitMode
from ._names import Name, decode_name, encode_name
from ._time import Seconds, milliseconds
from ._watcher import Watcher

if TYPE_CHECKING:
    from ._locked import F

_MOST_U32 = 2**32 - 1
#: The named arguments of `Client.lock()`.
_LOCK_OPTIONS = (
    "ttl",
    "wait",
    "io_timeout",
    "attempts",
    "renew",
    "max_hold",
    "wait_mode",
    "backoff",
)
#: How many handles of locks a client keeps for the next time.
_MOST_LOCKS = 128


class Counters(NamedTuple):
    """What a client has counted since it was opened, for graphs."""

    #: Requests to the store for a lock, every try of a wait included.
    attempts: int
    #: Leases acquired.
    granted: int
    #: Tries that found the lock held by another client.
    busy: int
    #: Waits that timed out.
    timed_out: int
    #: Requests whose outcome stayed unknown.
    unknown: int
    #: Renewals that the store confirmed.
    renewed: int
    #: Leases that were lost while held.
    lost: int
    #: Releases that found the lease gone, or could not tell.
    released_late: int


class Client:
    """An open store, from `connect()`. Open one per process and share it between threads.

    You may open it before a fork, as Celery, ``gunicorn --preload`` and `multiprocessing` fork. The
    client and its locks work in the children too: each child reconnects when it first needs the
    store. Leases stay with the parent and raise `Forked` in a child.

    >>> client = leasehold.connect()
    >>> with client.lock("orders:42", ttl=10, wait=5) as lease:
    ...     lease.fence > 0
    True
    >>> client.close()
    """

    __slots__ = (
        "_handle",
        "_locks",
        "_lock_type",
        "_metrics_groups",
        "_watcher",
        "_unwatched",
        "__weakref__",
    )

    # Here, since what was never made has no end.
    def __new__(cls, handle: object = None, *_: object, **__: object) -> "Client":
        if not isinstance(handle, c_void_p):
            raise TypeError("a client comes from leasehold.connect(url)")
        return super().__new__(cls)

    def __init__(self, handle: c_void_p, metrics_groups: Sequence[str] = ()) -> None:
        self._handle = handle
        self._metrics_groups = tuple(metrics_groups)
        # Another one where a call is more than a call: see `leasehold_lock.otel`.
        self._lock_type: Callable[[Client, LockHandle], Lock] = Lock
        # A lock holds nothing, so those of one name and the same options share a handle: a
        # with statement on client.lock(...) does not make and free one each time.
        self._locks: dict[tuple[object, ...], LockHandle] = {}
        # In a child of a fork: nobody reads the log yet.
        self._unwatched = False
        # Weakly, or its thread would keep the client open for ever.
        myself = weakref.ref(self)
        self._watcher = Watcher(lambda: _subscribe(myself()))
        _clients.add(self)

    def lock(
        self,
        name: Name,
        *,
        ttl: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        io_timeout: Optional[Seconds] = None,
        attempts: Optional[int] = None,
        renew: Optional[bool] = None,
        max_hold: Optional[Seconds] = None,
        wait_mode: Optional[WaitMode] = None,
        backoff: Optional[Backoff] = None,
        **theirs: NoReturn,
    ) -> Lock:
        """Makes a lock on a name: text or bytes, at most 65536 bytes. It does not contact the store.

        - `ttl`: the lock is free this long after its holder died; 30 s by default. A renewed lease
          does not end with its ttl. A number over 3600 causes a warning, since it may be
          milliseconds.
        - `wait`: how long to wait for the lock; 60 s by default. 0 tries once, `math.inf` has no
          limit.
        - `io_timeout`: how long the store may take to answer when you acquire this lock. By default
          it is the client's, 1 s. While the store does not answer, a try and any shorter wait take
          this long: with 0.05, there is an answer or an exception within 50 ms.
        - `attempts`: how often a wait with `wait_mode="spin"` tries at most; no limit by default.
          Other modes reject it.
        - `renew`: whether leases are renewed in the background. By default they are if the ttl is
          at least 100 ms. Without renewal, a lease ends with its ttl.
        - `max_hold`: how long a living holder may keep a renewed lease; 1 h by default,
          `math.inf` has no limit.
        - `wait_mode`: how waiters wait. "auto", the default, queues them in the order of arrival
          where the store has a queue. If the server denies the right to subscribe to a channel,
          they poll. "spin" polls, in no order; it is for names shared with other libraries, whose
          releases notify no waiter.
        - `backoff`: how long a wait with `wait_mode="spin"` pauses between tries. By default it tries
          three more times at once, then pauses up to 1, 2, 4 ms and so on. Other modes reject it.

        An option that is out of range raises here. Options that contradict each other raise when you
        acquire the lock.
        """
        if theirs:
            refuse("lock", theirs, _LOCK_OPTIONS)
        options = (name, ttl, wait, io_timeout, attempts, renew, max_hold, wait_mode, backoff)
        try:
            return self._lock_type(self, self._locks[options])
        except (KeyError, TypeError):  # Options that have no hash are refused below.
            pass
        handle = self._make_lock(*options)
        if ttl is not None:
            warn_of_long(ttl, 2)
        if len(self._locks) >= _MOST_LOCKS:
            self._locks.clear()
        self._locks[options] = handle
        return self._lock_type(self, handle)

    def _make_lock(
        self,
        name: Name,
        ttl: Optional[Seconds],
        wait: Optional[Seconds],
        io_timeout: Optional[Seconds],
        attempts: Optional[int],
        renew: Optional[bool],
        max_hold: Optional[Seconds],
        wait_mode: Optional[WaitMode],
        backoff: Optional[Backoff],
    ) -> LockHandle:
        handle, error, text = LockHandle(), c_void_p(), encode_name(name)
        status = _abi.client_lock(self._handle, text, len(text), byref(handle), byref(error))
        if status != OK:
            raise failure(status, error)
        handle.name, handle.argument = decode_name(text), _abi.argument(handle.value)
        if ttl is not None:
            _set(_abi.lock_set_ttl_ms, handle, milliseconds("ttl", ttl))
        if wait is not None:
            _set(_abi.lock_set_wait_ms, handle, milliseconds("wait", wait))
        if io_timeout is not None:
            timeout_ms = milliseconds("io_timeout", io_timeout)
            _set(_abi.lock_set_io_timeout_ms, handle, timeout_ms)
        if attempts is not None:
            _set(_abi.lock_set_attempts, handle, _count("attempts", attempts))
        if renew is not None:
            _set(_abi.lock_set_renew, handle, _switch("renew", renew))
        if max_hold is not None:
            _set(_abi.lock_set_max_hold_ms, handle, milliseconds("max_hold", max_hold))
        if wait_mode is not None:
            _set(_abi.lock_set_wait_mode, handle, _wait_mode(wait_mode))
        if backoff is not None:
            if not isinstance(backoff, Backoff):
                raise TypeError(f"backoff is {backoff!r}; it is a leasehold.Backoff")
            first = milliseconds("backoff.first", backoff.first)
            longest = milliseconds("backoff.longest", backoff.longest)
            _set(_abi.lock_set_backoff_ms, handle, first, longest)
        return handle

    def locked(
        self,
        name: str,
        *,
        on_busy: Optional[Callable[..., Any]] = None,
        ttl: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        io_timeout: Optional[Seconds] = None,
        attempts: Optional[int] = None,
        renew: Optional[bool] = None,
        max_hold: Optional[Seconds] = None,
        wait_mode: Optional[WaitMode] = None,
        backoff: Optional[Backoff] = None,
        **theirs: NoReturn,
    ) -> "Callable[[F], F]":
        """A decorator: the function is called with the lock held. It is for functions, methods and coroutine
        functions.

        >>> @client.locked("orders:{order_id}", ttl=10, wait=5)
        ... def charge_order(order_id, lease):
        ...     charge(order_id, lease.fence)
        >>> charge_order(42)

        - `name`: text in which arguments of the function stand in braces, as in `str.format()`:
          ``"{order.id}"``, ``"{self.path}"``. An argument that the function does not have raises here. None in
          a call raises `BadArgument` there, since all of these calls would share a lock.
        - **The lease** is passed to the parameter that is annotated as a `Lease`, or is named ``lease`` and not
          annotated as anything else. Callers do not pass it. A function may do without.
        - **If another client holds the lock** to the end of `wait`, the call raises `Timeout`. With `on_busy`, it
          calls that instead, with the same arguments, and returns its result. `wait=0` tries once.
        - All other options are those of `lock()`, and the end of the call is the end of a ``with`` block: see
          `Lease`.

        A generator raises here: it would run after the lock was released.
        """
        # Not before it is needed: `inspect` takes long to import.
        from ._locked import decorator

        if theirs:
            refuse("locked", theirs, (*_LOCK_OPTIONS, "on_busy"))
        if callable(name):
            raise TypeError("locked() needs a name: write @client.locked('orders:{order_id}')")
        if not isinstance(name, str):
            raise TypeError(f"the name of locked() is a str, not {type(name).__name__}")
        if ttl is not None:
            milliseconds("ttl", ttl)
            warn_of_long(ttl, 2)
            # Of whose unit nobody has to be warned in each call.
            ttl = (
                ttl if isinstance(ttl, timedelta) else timedelta(milliseconds=min(ttl * 1000, 1e15))
            )

        def make_lock(made: Name) -> Lock:
            return self.lock(
                made,
                ttl=ttl,
                wait=wait,
                io_timeout=io_timeout,
                attempts=attempts,
                renew=renew,
                max_hold=max_hold,
                wait_mode=wait_mode,
                backoff=backoff,
            )

        make_lock(name)  # An option that is out of range raises here.
        return decorator(name, make_lock, on_busy)

    def election(
        self,
        name: Name,
        *,
        ttl: Optional[Seconds] = None,
        grace: Optional[Seconds] = None,
        stand_again: bool = False,
        on_change: Optional[OnChange] = None,
    ) -> Election:
        """Makes a candidate for the leadership of a name: one candidate leads, the others stand by. It is a
        lock of that name underneath, so ``leasehold show`` shows the leader. It does not contact the
        store.

        - `ttl`: how soon another candidate is elected after the leader died; 30 s by default, from 0.1 s.
        - `grace`: how long the work needs to stop; 10 s by default. If the lease cannot be renewed, the
          work is told to stop when that much validity is left and half a second more, or a third of the
          ttl if that is less.
        - `stand_again`: whether `Election.run_as_leader()` stands again when the work has returned by
          itself.
        - `on_change`: is called with a `Leadership` when this candidate is elected, in the thread that
          stands, and when its leadership ends, in that thread or another one. It must be quick.

        >>> client.election("collector", ttl=15).state
        <ElectionState.IDLE: 0>
        """
        if on_change is not None and not callable(on_change):
            raise TypeError(f"on_change is {on_change!r}; it is a function of a Leadership")
        handle, error, text = ElectionHandle(), c_void_p(), encode_name(name)
        status = _abi.client_election(self._handle, text, len(text), byref(handle), byref(error))
        if status != OK:
            raise failure(status, error)
        again = _switch("stand_again", stand_again)
        made = Election(self, handle, decode_name(text), again, on_change)
        if ttl is not None:
            _set(_abi.election_set_ttl_ms, handle, milliseconds("ttl", ttl))
            warn_of_long(ttl, 2)
        if grace is not None:
            _set(_abi.election_set_grace_ms, handle, milliseconds("grace", grace))
        return made

    def events(self) -> Events:
        """Subscribes to what happens to the leases of this client from now on. Each subscription
        gets every event."""
        return Events(_events(self._handle), self)

    def ping(self) -> None:
        """Connects to the store and logs in. Raises what is in the way. It touches no lock."""
        error = c_void_p()
        status = _abi.client_ping(self._handle, byref(error))
        if status != OK:
            raise failure(status, error)

    def initialize(self, force: bool = False) -> None:
        """Declares that the servers are new, so that they grant locks at once. It is for stores with
        `guard_data_loss`, which otherwise wait for older leases to expire.

        Call it once, before any client acquires a lock, and never at each start of a program.
        ``leasehold init`` does the same. It raises for servers that wait already or came back with
        data. With `force`, you declare that no client relies on a lease there."""
        error = c_void_p()
        status = _abi.client_initialize(self._handle, _switch("force", force), byref(error))
        if status != OK:
            raise failure(status, error)

    def counters(self) -> Counters:
        """What was counted since the client was opened.

        >>> client.counters().granted
        0
        """
        return Counters(*(self._counter(number) for number, _ in enumerate(Counters._fields, 1)))

    def _counter(self, number: int) -> int:
        count, error = c_uint64(), c_void_p()
        status = _abi.client_counter(self._handle, number, byref(count), byref(error))
        if status != OK:
            raise failure(status, error)
        return count.value

    def metrics_text(self) -> str:
        """All counts and measurements since the client was opened, in Prometheus's text format.
        Serve it with your program's own metrics, as ``text/plain; version=0.0.4``. Each process
        counts for itself.

        >>> print(client.metrics_text().splitlines()[2])
        leasehold_acquisitions_total{lock="*",outcome="granted"} 0
        """
        handle, error, length = MetricsHandle(), c_void_p(), c_size_t()
        status = _abi.client_metrics(self._handle, byref(handle), byref(error))
        if status != OK:
            raise failure(status, error)
        return string_at(_abi.metrics_text(handle, byref(length)), length.value).decode()

    def _watch_again(self) -> None:
        _log.start()
        self._unwatched = False

    @property
    def store(self) -> str:
        """The store's URL without user and password."""
        return str(_abi.client_store(self._handle).decode())

    def close(self) -> None:
        """Closes the client. Every lease becomes invalid at once and is released. Waits end with
        `Closed`, and the background thread ends. It takes at most `close_timeout`; a lock that was
        not released by then is free when its ttl has passed. Closing twice does no harm.

        A program may also exit without closing: it sends nothing, and its locks are free when their
        ttl has passed.
        """
        self._close(_abi.client_close)

    def close_within(self, limit: Seconds) -> None:
        """Closes the client as `close()` does, within `limit` instead of `close_timeout`."""
        self._close(_abi.client_close_within, milliseconds("limit", limit))

    def _close(self, close: Callable[..., int], *limit: int) -> None:
        error = c_void_p()
        self._locks.clear()
        status = close(self._handle, *limit, byref(error))
        if status != OK:
            raise failure(status, error)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    # The names of modules may be gone when the interpreter ends, default values are not. It closes in
    # no time, which releases nothing: the garbage collector may come here before it comes to a lease
    # of the same cycle, and that one has to be left to its ttl. What the end of a `with` block could
    # not send yet is left to the ttl, too. The end of the process does it all.
    def __del__(
        self,
        finalizing: Callable[[], bool] = sys.is_finalizing,
        close_within: Callable[..., object] = _abi.client_close_within,
        free: Callable[..., object] = _abi.client_free,
    ) -> None:
        if not finalizing():
            close_within(self._handle, 0, None)
            free(self._handle)

    def __reduce__(self) -> str:
        raise TypeError("a client stays in its process; connect again in the other one")

    def __repr__(self) -> str:
        return f"<leasehold.Client of {self.store}>"


def connect(
    url: Union[str, Sequence[str], Borrowed, None] = None,
    *,
    service_name: Optional[str] = None,
    django: Optional[str] = None,
    prefix: Optional[Name] = None,
    io_timeout: Optional[Seconds] = None,
    pool: Optional[int] = None,
    close_timeout: Optional[Seconds] = None,
    claim_window: Optional[Seconds] = None,
    max_ttl: Optional[Seconds] = None,
    guard_data_loss: Optional[bool] = None,
    label: Optional[str] = None,
    register: Optional[bool] = None,
    advise: Optional[bool] = None,
    metrics_groups: Sequence[str] = (),
    credentials: Optional[_credentials.Provider] = None,
) -> Client:
    """Opens the store that a URL names, or the quorum of several URLs.

    Without a URL, it reads the environment variable ``LEASEHOLD_URL``, then ``/etc/leasehold.conf``.
    If neither is set, it opens the embedded store, a file for this user on this machine only, and
    the log says so.

    ::

        redis://[user[:password]@]host[:port][/database]   one Redis or Valkey over TCP
        unix:///path/to/socket                             one Redis on a unix socket
        redis+sentinel://[user:password@]host,host2/master the Redis that Sentinels call the master
        redis+cluster://[user:password@]host,host2         a Redis Cluster, by some of its servers
        rediss://, rediss+sentinel://, rediss+cluster://   the same over TLS
        redis://a,redis://b,redis://c                      a quorum: an odd number of the above
        sqlite:///path/to/file                             an SQLite file
        memory:name                                        in memory, made by a test of this process
        postgres://user[:password]@host[:port][,host2][/database]
                                                           a table of a PostgreSQL
        mysql://user[:password]@host[:port][,host2]/database   tables of a MySQL or a MariaDB
        zookeeper://[user:password@]host[:port][,host2][/chroot]
                                                           nodes of a ZooKeeper
        etcd://[user:password@]host[:port][,host2], etcds://   an etcd, over TLS etcds

    A Redis store connects at its first use, so a client can be opened before its server.

    In place of a URL, `connect()` reads the settings that your program has already: addresses, database,
    user, password, TLS. It opens connections of its own. Give it

    - a ``Redis`` or a ``RedisCluster`` of redis-py, also of ``redis.asyncio``; what ``master_for()`` returns;
      or a ``Sentinel``, with `service_name`
    - an ``Engine``, an ``AsyncEngine`` or a ``URL`` of SQLAlchemy, for PostgreSQL, MySQL, MariaDB or SQLite. For
      an SQLite database, the locks are in a file beside it: ``app.db.locks``
    - a connection string of PostgreSQL, ``"host=db user=app dbname=app"``
    - the parameters of PyMySQL or mysqlclient, as a dict
    - ``django="default"``: an alias of Django's ``DATABASES`` or ``CACHES``. If both have it, write
      ``"DATABASES.default"`` or ``"CACHES.default"``

    What cannot be borrowed raises `BadArgument`, or `TypeError` for an object that it does not know. The error
    says what to write instead.

    - `prefix` is put before every name in the store.
    - `io_timeout`: how long the store may take to answer one request; 1 s by default.
    - `pool`: how many requests may be under way at once; 8 by default.
    - `close_timeout`: how long `Client.close()` keeps releasing leases; 1 s by default.
    - `claim_window`: if a waiter dies while the lock is handed to it, the next waiter gets the lock
      after this time; 1 s by default.
    - `max_ttl`: the longest ttl that a lock may have. It is 366 days by default, and 60 s with
      `guard_data_loss`. In a quorum it is at most 24 h.
    - `guard_data_loss`: whether a server that may have lost data grants no lock until `max_ttl` has
      passed. Off by default; in a quorum it is always on.
    - `label`: a word of your own. Other clients see it beside the program's name when they ask who
      holds a lock.
    - `register`: whether the client writes to the store who it is; True by default.
    - `advise`: whether the log warns if the store can lose grants and nothing guards against that;
      True by default.
    - `metrics_groups`: names that `Client.metrics_text()` counts separately, at most 32. Each is a
      name, or a prefix and a ``*``: ``["stock:*", "nightly"]``.

    The URL can hold them too: ``redis://cache?io_timeout=300ms&pool=16``.

    - `credentials`: a function that looks up the credentials of a server, such as tokens that end. It takes
      an `Endpoint` and returns `Credentials`, or a tuple ``(user, secret, valid_until)``. The URL then has no
      password. A background thread calls it, one call at a time: when the first connection needs
      credentials, and again before they end. What it raises becomes the text of an `Auth`.

    >>> with leasehold.connect(f"sqlite:{folder}/locks.db") as client:
    ...     client.lock("orders:42").try_acquire().release()
    """
    _log.start()
    config, error = ConfigHandle(), c_void_p()
    found = _url(url, service_name, django)
    if found is None:
        status = _abi.config_from_env(byref(config), byref(error))
    else:
        text = found.encode("utf-8", "surrogateescape")
        status = _abi.config_from_url(text, len(text), byref(config), byref(error))
    if status != OK:
        raise failure(status, error)
    if prefix is not None:
        before = encode_name(prefix)
        _set(_abi.config_set_prefix, config, before, len(before))
    if io_timeout is not None:
        _set(_abi.config_set_io_timeout_ms, config, milliseconds("io_timeout", io_timeout))
    if pool is not None:
        _set(_abi.config_set_pool, config, _count("pool", pool))
    if close_timeout is not None:
        close_ms = milliseconds("close_timeout", close_timeout)
        _set(_abi.config_set_close_timeout_ms, config, close_ms)
    if claim_window is not None:
        window_ms = milliseconds("claim_window", claim_window)
        _set(_abi.config_set_claim_window_ms, config, window_ms)
    if max_ttl is not None:
        _set(_abi.config_set_max_ttl_ms, config, milliseconds("max_ttl", max_ttl))
    if guard_data_loss is not None:
        _set(_abi.config_set_guard_data_loss, config, _switch("guard_data_loss", guard_data_loss))
    if label is not None:
        if not isinstance(label, str):
            raise TypeError(f"label is a str, not {type(label).__name__}")
        text = label.encode("utf-8", "replace")
        _set(_abi.config_set_label, config, text, len(text))
    if register is not None:
        _set(_abi.config_set_register, config, _switch("register", register))
    if advise is not None:
        _set(_abi.config_set_advise, config, _switch("advise", advise))
    _set(_abi.config_set_language, config, b"python", len(b"python"))
    program = _program().encode("utf-8", "replace")
    _set(_abi.config_set_program, config, program, len(program))
    if isinstance(metrics_groups, str):
        raise TypeError(f"metrics_groups is a list of str, not {metrics_groups!r}")
    for pattern in metrics_groups:
        group = encode_name(pattern)
        _set(_abi.config_add_metrics_group, config, group, len(group))
    if credentials is not None:
        status = _credentials.set_provider(config, credentials)
        if status != OK:
            raise failure(_abi.config_check(config, byref(error)) or status, error)
    handle = c_void_p()
    status = _abi.client_open_config(config, byref(handle), byref(error))
    if status != OK:
        raise failure(status, error)
    client = Client(handle, metrics_groups)
    if credentials is not None:
        _credentials.end_with_interpreter(client)
    status = _abi.client_reopen_after_fork(handle, byref(error))
    if status != OK:
        raise failure(status, error)
    return client


def _url(given: object, service_name: Optional[str], django: Optional[str]) -> Optional[str]:
    """The URL for whatever names a store; None for the environment's."""
    if django is not None:
        if given is not None or service_name is not None:
            raise TypeError("django= names the store, so connect() takes no other")
        return _borrowed.url_of_alias(django)
    if isinstance(given, str) and service_name is None:
        return _borrowed.url_of_text(given)
    # SQLAlchemy's URL is a tuple, too.
    if type(given) in (list, tuple) and service_name is None:
        return ",".join(cast(Sequence[str], given))
    if given is None and service_name is None:
        return None
    return _borrowed.url_of(given, service_name)


def _program() -> str:
    """The script, as others see it; empty where the library finds out what runs."""
    argv = getattr(sys, "argv", None) or [""]
    folder, name = os.path.split(str(argv[0]))
    return os.path.basename(folder) if name == "__main__.py" else name


def _set(setter: Callable[..., int], handle: c_void_p, *values: object) -> None:
    """Sets an option. What was refused for its value is told with the reason."""
    status = setter(handle, *values)
    if status != OK:
        error = c_void_p()
        checks = {LockHandle: _abi.lock_check, ElectionHandle: _abi.election_check}
        check = checks.get(type(handle), _abi.config_check)
        raise failure(check(handle, byref(error)) or status, error)


def _count(what: str, number: int) -> int:
    """ctypes would cut a number that is too large."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{what} is an int, not {type(number).__name__}")
    if not 0 <= number <= _MOST_U32:
        raise bad_argument(f"{what} is {number}")
    return number


def _switch(what: str, on: bool) -> bool:
    if not isinstance(on, bool):
        raise TypeError(f"{what} is {on!r}; it is True or False")
    return on


def _wait_mode(mode: str) -> int:
    """The number that stands for it in C."""
    if not isinstance(mode, str):
        raise TypeError(f"wait_mode is a str, not {type(mode).__name__}")
    if mode not in WAIT_MODES:
        raise bad_argument(f"wait_mode is {mode!r}; it is 'auto' or 'spin'")
    return WAIT_MODES.index(mode)


def _events(client: c_void_p) -> EventsHandle:
    handle, error = EventsHandle(), c_void_p()
    status = _abi.client_events(client, byref(handle), byref(error))
    if status != OK:
        raise failure(status, error)
    return handle


def _subscribe(client: Optional[Client]) -> Events:
    """For a thread that must not keep the client open."""
    assert client is not None, "the caller has the client"
    return Events(_events(client._handle), None)


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forked() -> None:
    """In a child: the C library knows by itself what is the parent's, and opens clients anew. What
    is left for us is not to count on threads that are not there."""
    _interrupts.forked()
    for client in list(_clients):
        client._watcher.forked()
        client._unwatched = True


os.register_at_fork(after_in_child=_forked)
