"""A lock: a name, options, and the ways to acquire it."""

import threading
from ctypes import byref, c_uint64, c_void_p
from threading import get_ident
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Callable,
    Literal,
    NamedTuple,
    NoReturn,
    Optional,
    get_args,
)

from . import _abi, _errors, _interrupts, _rooms
from ._errors import BUSY, OK, BadArgument, Lost, failure, nested
from ._habits import no_lock_attribute, refuse, refuse_positional
from ._handles import LockHandle, LockStateHandle
from ._interrupts import NOTHING
from ._lease import Lease, begun, new
from ._rooms import Room
from ._time import Seconds, milliseconds
from ._watcher import Owner

if TYPE_CHECKING:
    from ._tasks import TaskLeases

#: How waiters wait for a lock; see `Client.lock()`.
WaitMode = Literal["auto", "spin"]
#: In the order of their numbers in C.
WAIT_MODES = get_args(WaitMode)


class Backoff(NamedTuple):
    """How long a wait with ``wait_mode="spin"`` pauses between tries. Pauses have random lengths.
    The first is at most `first`. The limit doubles with each try, up to `longest`, whose default
    depends on the store."""

    first: Seconds = 0.001
    longest: Seconds = float("inf")


class Run(NamedTuple):
    """A command that ``leasehold run --once-per`` has run, with times by the clock of its machine. The
    lock stays held after the command has ended."""

    #: When it was started, in seconds since 1970.
    began: float
    #: When it ended. None while it runs, or if its machine died before it ended.
    ended: Optional[float]
    #: Its exit status: 128 + n if signal n ended it.
    exit_status: Optional[int]


class ClientInfo(NamedTuple):
    """What a client has written to the store about itself. No text contains control characters that a
    terminal would obey."""

    #: 12 hexadecimal digits, different in each process.
    id: str
    #: The machine's name.
    host: str
    #: The process ID.
    pid: int
    #: The program that runs there.
    program: str
    #: The language of its binding.
    language: str
    #: Its version of this library.
    version: str
    #: Its `label`; see `connect()`.
    label: Optional[str]
    #: When it was opened, in seconds since 1970 by its machine's clock.
    started: Optional[float]
    #: The command that it has run with ``leasehold run --once-per``.
    run: Optional[Run] = None


class Waiter(NamedTuple):
    """A process that waited for a lock when `Lock.inspect()` asked."""

    #: Which process it is, and since when it waits: "web-1 (java orders.jar, pid 88) since 3 s".
    who: str
    #: The first digits of its token.
    token_prefix: str
    #: For how many seconds it has waited; None if that is not known.
    waited: Optional[float]
    #: Its client; None if that is not known.
    client: Optional[ClientInfo]


class LockState(NamedTuple):
    """Who held a lock, and who waited for it, when `Lock.inspect()` asked."""

    held: bool
    #: The first digits of the holder's token; empty if the lock was free.
    token_prefix: str
    #: In how many seconds the lock would be free without another renewal.
    ttl: float
    #: The holder's fence. None if the lock was free, or if another library holds it without a fence.
    fence: Optional[int]
    #: The last fence of this name; None if the store no longer knows it.
    last_fence: Optional[int]
    #: Its holder and since when: "web-3 (python worker.py, pid 4711) since 12 s"; empty if it was free.
    who: str = ""
    #: For how many seconds it has been held, by the store's clock; None if that is not known.
    held_for: Optional[float] = None
    #: The holder's client; None if that is not known.
    client: Optional[ClientInfo] = None
    #: The first 100 waiters of the store's queue, in its order.
    waiters: tuple[Waiter, ...] = ()
    #: How many waiters there are beyond those.
    more_waiters: int = 0


# The numbers of facts in C.
_WHO, _TOKEN_PREFIX, _SINCE_MS, _CLIENT, _HOST, _PID = range(6)
_PROGRAM, _LANGUAGE, _VERSION, _LABEL, _STARTED_MS = range(6, 11)
_RUN_BEGAN_MS, _RUN_ENDED_MS, _RUN_EXIT_STATUS = range(11, 14)


def _fact(state: LockStateHandle, place: int, what: int) -> str:
    return str(_abi.lock_state_fact(state, place, what).decode("utf-8", "replace"))


def _seconds(state: LockStateHandle, place: int, what: int) -> Optional[float]:
    said = _fact(state, place, what)
    return int(said) / 1000 if said else None


def _client_info(state: LockStateHandle, place: int) -> Optional[ClientInfo]:
    def said(what: int) -> str:
        return _fact(state, place, what)

    if not said(_CLIENT):
        return None
    return ClientInfo(
        id=said(_CLIENT),
        host=said(_HOST),
        pid=int(said(_PID)),
        program=said(_PROGRAM),
        language=said(_LANGUAGE),
        version=said(_VERSION),
        label=said(_LABEL) or None,
        started=_seconds(state, place, _STARTED_MS),
        run=_run(state, place),
    )


def _run(state: LockStateHandle, place: int) -> Optional[Run]:
    began = _seconds(state, place, _RUN_BEGAN_MS)
    if began is None:
        return None
    status = _fact(state, place, _RUN_EXIT_STATUS)
    ended = _seconds(state, place, _RUN_ENDED_MS)
    return Run(began, ended, int(status) if status else None)


def read_state(state: LockStateHandle) -> LockState:
    """What C has read of a lock."""
    return LockState(
        held=_abi.lock_state_is_held(state),
        token_prefix=_abi.lock_state_token_prefix(state).decode(),
        ttl=_abi.lock_state_ttl_ms(state) / 1000,
        fence=_abi.lock_state_fence(state) or None,
        last_fence=_abi.lock_state_last_fence(state) or None,
        who=_fact(state, 0, _WHO),
        held_for=_seconds(state, 0, _SINCE_MS),
        client=_client_info(state, 0),
        waiters=tuple(
            Waiter(
                who=_fact(state, place, _WHO),
                token_prefix=_fact(state, place, _TOKEN_PREFIX),
                waited=_seconds(state, place, _SINCE_MS),
                client=_client_info(state, place),
            )
            for place in range(1, _abi.lock_state_waiters(state) + 1)
        ),
        more_waiters=_abi.lock_state_more_waiters(state),
    )


class _Held(threading.local):
    """The lease of a ``with`` statement on one lock, for each thread. It goes when the lock goes:
    an end that a Ctrl-C has skipped leaves a lease of which nobody knows, and the ttl frees it."""

    lease: Optional[Lease] = None
    #: By how many forks this process came about when the block began.
    forks = 0
    #: That of the parent, in whose block this thread was forked.
    inherited: Optional[Lease] = None


class Lock:
    """A name and options, from `Client.lock()`. It holds nothing itself; each time you acquire it, you
    get a `Lease`. Any number of threads may use it at once.

    >>> with lock as lease:                        # waits up to the lock's `wait`
    ...     lease.fence > 0
    True
    >>> if (lease := lock.try_acquire()) is None:  # does not wait for the holder
    ...     print("another client holds it")
    ... else:
    ...     lease.release()
    >>> with lock.acquire_within(0.5) as lease:    # waits up to 0.5 s instead
    ...     lease.valid
    True

    A ``with`` statement keeps its lease for the thread, an ``async with`` for the task. It raises
    `Lost` at its end if the lease was lost, unless the block has raised something itself. If the
    lease was valid to the end, it does not wait for the store's answer: see `Lease`.
    """

    __slots__ = ("_client", "_handle", "_held", "_tasks", "__weakref__")

    def __init__(self, client: Owner, handle: LockHandle, **theirs: NoReturn) -> None:
        if theirs or type(handle) is not LockHandle:
            raise TypeError("a lock comes from a client: client.lock(name, ttl=10)")
        self._client = client
        self._handle = handle
        # Nothing before it is needed, and one from then on. Appending is a single step for other
        # threads, so two that come first together find the same one.
        self._held: list[_Held] = []
        self._tasks: Optional[TaskLeases] = None

    @property
    def name(self) -> str:
        """The name as text. Bytes that are not UTF-8 become lone surrogates."""
        return self._handle.name

    def try_acquire(self) -> Optional[Lease]:
        """Acquires the lock if it is free. Returns None if another client holds it.

        It never waits for the holder. It does wait for the store's answer, up to the lock's
        `io_timeout` (see `Client.lock()`) or else the client's (1 s). Then it raises `Unknown` or
        `NoAnswer`; in both cases you do not hold the lock.

        >>> with lock:
        ...     print(other_client.lock(lock.name).try_acquire())
        None
        """
        return self._ask(_abi.lock_try_acquire)

    def acquire(self, *values: NoReturn, **theirs: NoReturn) -> Lease:
        """Acquires the lock, and waits for it up to its `wait`.

        Raises `Timeout` if the wait runs out. Ctrl-C ends the wait. While the store does not answer,
        a wait of 0, or of less than `io_timeout`, takes `io_timeout`: see `try_acquire()`.
        """
        if values:
            refuse_positional("acquire", values)
        if theirs:
            refuse("acquire", theirs, ())
        return self._take()

    def acquire_within(self, wait: Seconds) -> Lease:
        """Acquires the lock as `acquire()` does, and waits up to `wait` instead of the lock's own: 0
        tries once, `math.inf` has no limit.

        >>> with lock:
        ...     try:
        ...         other_client.lock(lock.name).acquire_within(0.05)
        ...     except leasehold.Timeout:
        ...         print("still taken")
        still taken
        """
        lease = self._ask(_abi.lock_acquire_within, milliseconds("wait", wait), waits=True)
        assert lease is not None, "a wait that finds the lock taken is a timeout"
        return lease

    def _take(self) -> Lease:
        """The everyday way: waits for as long as the lock says. `_rooms.take()` and `begun()` stand
        in here once more, since each call of a function takes as long as what it does."""
        if self._client._unwatched:
            self._client._watch_again()
        home = _rooms.in_main if get_ident() == _interrupts.main_thread else _rooms.elsewhere
        try:
            room = home.pop()
        except IndexError:
            room = _rooms.take()
        try:
            status = _abi.prepared_take(
                self._handle.argument, room.interrupt, None, room.turn_at, room.error_at
            )
            if room.caught:
                raise room.caught.pop()
            if status == OK:
                lease: Lease = new(Lease)
                turn = room.turn
                lease.fence, lease._handle = turn.fence, turn.lease
                lease._client, lease._lock_handle = self._client, self._handle
                lease._rooms = [room]
                return lease
        except BaseException:
            # After a Ctrl-C, nobody will ever see the lease that may have come.
            room.release()
            del room  # See _failed().
            raise
        try:
            raise _failed(status, room, self.name)
        finally:
            del room

    async def _wait(self, wait: Optional[Seconds]) -> Lease:
        """The way of a task, for as long as the lock says, or for another time."""
        from . import _waits

        return await _waits.acquire(self, wait)

    def _ask(
        self, function: Callable[..., int], *arguments: object, waits: bool = False
    ) -> Optional[Lease]:
        """The other ways; None where the lock is busy."""
        if self._client._unwatched:
            self._client._watch_again()
        room = _rooms.take()
        try:
            if waits:
                arguments += (room.watch.function if room.watch else NOTHING, None)
            status = function(self._handle, *arguments, room.turn_at, room.error_at)
            if room.caught:
                raise room.caught.pop()
            if status == OK:
                room.turn.fence = _abi.lease_fence(room.turn.lease)
                return begun(self._client, self._handle, room)
        except BaseException:
            room.release()
            del room
            raise
        if status == BUSY:
            room.home.append(room)
            return None
        try:
            raise _failed(status, room, self.name)
        finally:
            del room

    def attach(self, token: str, fence: int) -> Lease:
        """Continues a lease that another process has acquired and handed over with `Lease.detach()`.

        It does not contact the store. Rely on the lease only after its first successful
        `Lease.extend()`. If several processes attach the same lease, the `extend()` of only one
        succeeds. With a wrong token or fence, none does.

        >>> token, fence = lock.acquire().detach()
        >>> # ... and in the other process:
        >>> with lock.attach(token, fence) as lease:
        ...     lease.extend()
        """
        if not isinstance(token, str) or not isinstance(fence, int):
            raise TypeError("attach() needs a token, a str, and a fence, an int")
        text = token.encode()
        lease = self._ask(_abi.lock_attach, text, len(text), fence)
        assert lease is not None, "nobody is asked"
        return lease

    def inspect(self) -> LockState:
        """Asks the store who holds the lock and who waits for it. It changes nothing.

        >>> lock.inspect().held
        False
        """
        state, error = LockStateHandle(), c_void_p()
        status = _abi.lock_inspect(self._handle, byref(state), byref(error))
        if status != OK:
            raise failure(status, error)
        return read_state(state)

    def break_held(self, by: str, if_fence: Optional[int] = None) -> Optional[int]:
        """Frees a lock whose holder does not release it. It is for operators, not for programs.

        The store hands the lock to the first waiter at once, with a larger fence. The holder learns of
        it at its next renewal: its lease is lost, and its event, error and log name `by`.

        Returns the fence of the lease that it ended, or None if the lock was free. With `if_fence`, it
        ends only the lease with that fence, and returns None if another lease holds the lock. Without
        `if_fence`, it ends the lease of any holder. The fence in what `inspect()` returns for a free
        lock is None too, so check `held` first.

        >>> lock.break_held("root@web-3") is None
        True
        """
        if if_fence is not None and if_fence < 1:
            raise BadArgument(f"{if_fence} is no fence")
        text, fence, error = by.encode(errors="replace"), c_uint64(), c_void_p()
        status = _abi.lock_break(
            self._handle, if_fence or 0, text, len(text), byref(fence), byref(error)
        )
        if status == OK:
            return fence.value
        if status == BUSY:
            return None
        problem = failure(status, error)
        if isinstance(problem, Lost):
            return None
        raise problem

    if not TYPE_CHECKING:  # Else every attribute would seem to be there.

        def __getattr__(self, name: str) -> NoReturn:
            raise no_lock_attribute(name)

    def __enter__(self) -> Lease:
        if not self._held:
            self._held.append(_Held())
        held = self._held[0]
        if held.lease is not None:
            if held.forks == _interrupts.forks:
                raise nested(self.name, "this thread")
            held.inherited, held.lease = held.lease, None
        held.forks = _interrupts.forks
        try:
            lease = held.lease = self._take()
            return lease
        except BaseException:
            left, held.lease, held.inherited = held.lease, held.inherited, None
            if left is not None:
                left._end()
            raise

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        lease = self._held[0].lease if self._held else None
        if lease is None:
            raise RuntimeError(f"this thread is not in a with statement on lock {self.name!r}")
        try:
            if lease._rooms:
                lease._give(_abi.DO_NOT_WAIT, kind is not None)
        finally:
            self._held[0].lease, self._held[0].inherited = self._held[0].inherited, None
            if lease._rooms:
                lease._end()  # A Ctrl-C came before it was released.

    async def __aenter__(self) -> Lease:
        if self._tasks is None:
            # Not before it is needed: asyncio takes longer to import than all the rest.
            from ._tasks import TaskLeases

            self._tasks = TaskLeases()
        return await self._tasks.enter(self)

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._tasks is None:
            raise RuntimeError(f"no task is in an async with on lock {self.name!r}")
        await self._tasks.leave(self, kind is not None)

    def __reduce__(self) -> str:
        raise TypeError("a lock stays in its process; connect there, and make one of this name")

    def __repr__(self) -> str:
        return f"<leasehold.Lock {self.name!r} in {self._client.store}>"


def _failed(status: int, room: Room, name: str) -> _errors.Error:
    """The exception; the room is for the next lease. The caller lets go of it: who keeps the
    exception keeps the frames that it came through, and the room has to go with its lease."""
    error = failure(status, room.error, name)
    room.home.append(room)
    return error
