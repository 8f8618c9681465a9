"""Leader election: one leader among the candidates for a name."""

import contextlib
import enum
import inspect
import threading
import time
import weakref
from ctypes import byref, c_void_p
from threading import get_ident
from types import TracebackType
from typing import Any, Callable, NamedTuple, Optional

from . import _abi, _interrupts
from ._errors import OK, Error, Interrupted, Lost, failure
from ._events import LossReason, loss_reason
from ._handles import ElectionHandle, LockStateHandle, TermHandle
from ._interrupts import NOTHING, SignalWatch
from ._lock import LockState, read_state
from ._time import FOREVER_MS, Seconds, milliseconds
from ._watcher import Owner

#: How long a wait in the main thread goes on before Python's signal handlers may run.
_SLICE_MS = 100
#: How often the thread that tells of the end asks whether the program still has the term.
_LOOK_MS = 200
#: For how long C waits to be told why a lease is over.
_REASON_S = 1.1


class ElectionState(enum.Enum):
    """What a candidate does at this moment."""

    #: It does not stand: it has not begun, its work has ended, or it was stopped.
    IDLE = 0
    #: It waits to be elected, or rests first.
    STANDBY = 1
    #: It leads.
    LEADING = 2
    #: Its leadership has ended and the work was told to stop. No other candidate can be elected yet.
    STOPPING = 3
    #: Its lease is over, and the work has still not stopped: another candidate may lead beside it.
    OVERDUE = 4


class TermEnd(enum.Enum):
    """Why a term has ended."""

    #: The candidate resigned, or its election was stopped.
    RESIGNED = 1
    #: The lease could not be renewed, and only what the work needs to stop in is left.
    AT_RISK = 2
    #: The lease was lost. `Term.loss` says how.
    LOST = 3


class Leadership(NamedTuple):
    """What has become of a candidate: the argument of `on_change`."""

    #: The fence of its term.
    fence: int
    #: None if it was elected. Else its term has ended, and this is the reason.
    end: Optional[TermEnd]
    #: How the lease was lost, if `end` is ``TermEnd.LOST``.
    loss: LossReason


OnChange = Callable[[Leadership], object]


class Term:
    """The time for which a candidate leads, from `Election.stand()` or in the hands of the work.

    It ends before its lease does: when only as much validity is left as the work needs to stop (`grace`).
    A term that has ended does not begin again. The lock stays held until the term is resigned, which the
    end of a ``with`` block does. A term that is garbage-collected is resigned too, a
    moment later. A function in `on_change` that refers to its term keeps the term alive.
    """

    __slots__ = ("fence", "_handle", "_election", "_on_change", "_untold", "__weakref__")

    #: The fencing token: larger than that of every earlier leader. Send it with each write, and let the
    #: resource reject a smaller one.
    fence: int

    def __init__(self, handle: TermHandle, election: "Election") -> None:
        if type(handle) is not TermHandle:
            raise TypeError("a term comes from an election: election.run_as_leader(work)")
        self._handle = handle
        # One that nobody has any more is stopped, and its term with it.
        self._election = election
        on_change = election._on_change
        self.fence = int(_abi.term_fence(handle))
        self._on_change = on_change
        #: Popping from it is a single step for other threads: the one that succeeds tells of the end.
        self._untold = [True]
        if on_change is not None:
            on_change(Leadership(self.fence, None, LossReason.NONE))
            watch = (weakref.ref(self), handle, self._untold, self.fence, on_change)
            threading.Thread(
                target=_tell_of_end, args=watch, name="leasehold-term", daemon=True
            ).start()

    @property
    def is_leader(self) -> bool:
        """Whether the work may go on. It does not contact the store."""
        return bool(_abi.term_is_leader(self._handle))

    @property
    def remaining(self) -> float:
        """For how many seconds no other candidate can be elected, by this lease; 0 once it is over."""
        return float(_abi.term_remaining_ms(self._handle) / 1000)

    @property
    def end(self) -> Optional[TermEnd]:
        """Why the term has ended; None while it lasts."""
        return _end(self._handle)[0]

    @property
    def loss(self) -> LossReason:
        """How the lease was lost; ``NONE`` while `end` is not ``TermEnd.LOST``."""
        return _end(self._handle)[1]

    def ended_within(self, limit: Seconds) -> bool:
        """Sleeps until the term ends, for `limit` at most, and returns whether it has ended.

        So work that does something at intervals stops at once when it has to. Ctrl-C ends the sleep.
        """
        left = milliseconds("limit", limit)
        most = _SLICE_MS if get_ident() == _interrupts.main_thread else FOREVER_MS
        while True:
            part = min(left, most)
            if not _abi.term_leads_after_ms(self._handle, part):
                return True
            left -= part
            if left == 0:
                return False

    def resign(self) -> None:
        """Ends the term: releases the lock, and waits until the store confirms it. Another candidate is
        elected then, so call it when the work has stopped. Resigning twice does no harm.

        Raises `Lost` if another candidate may have led before.
        """
        lasted = self.is_leader or self.end is TermEnd.RESIGNED
        error = c_void_p()
        status = _abi.term_resign(self._handle, byref(error))
        if lasted and self._on_change is not None:
            _tell(self._untold, self._on_change, self.fence, (TermEnd.RESIGNED, LossReason.NONE))
        if status != OK:
            raise failure(status, error, self._election.name)

    def _let_go(self) -> None:
        """Resigns where something else is raised."""
        with contextlib.suppress(Error):  # The client's log says it.
            self.resign()

    def __enter__(self) -> "Term":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.resign()
        else:
            self._let_go()

    def __reduce__(self) -> str:
        raise TypeError("a term stays in its process")

    def __repr__(self) -> str:
        return f"<leasehold.Term of {self._election.name!r}, fence {self.fence}>"


def _end(handle: TermHandle) -> tuple[Optional[TermEnd], LossReason]:
    reason = _abi.term_end_reason(handle)
    return (TermEnd(reason) if reason else None), loss_reason(_abi.term_loss(handle))


def _tell(
    untold: list[bool],
    on_change: OnChange,
    fence: int,
    end: tuple[Optional[TermEnd], LossReason],
) -> None:
    """Once."""
    try:
        untold.pop()
    except IndexError:
        return
    on_change(Leadership(fence, *end))


def _tell_of_end(
    term: "weakref.ref[Term]",
    handle: TermHandle,
    untold: list[bool],
    fence: int,
    on_change: OnChange,
) -> None:
    """In a thread of its own: threads of the library may not call Python when the interpreter ends."""
    # This thread has the handle too, so it has to notice that the program has lost the term.
    while term() is not None and _abi.term_leads_after_ms(handle, _LOOK_MS):
        pass
    known = time.monotonic() + _REASON_S
    # The event of the loss may say more, and comes a moment later.
    while (end := _end(handle)) == (TermEnd.LOST, LossReason.EXPIRED) and time.monotonic() < known:
        time.sleep(0.05)
    if term() is None:
        _abi.term_free(handle)  # It resigns.
    if end[0] is None:
        end = (TermEnd.RESIGNED, LossReason.NONE)
    _tell(untold, on_change, fence, end)


class Election:
    """One candidate for the leadership of a name, from `Client.election()`. One thread stands, and others
    resign, stop it, or ask whether it leads.

    >>> election = client.election("collector", ttl=15)
    >>> def work(term: leasehold.Term) -> None:
    ...     while not term.ended_within(0.01):
    ...         collect(term.fence)                 # the database rejects a smaller fence
    ...         election.stop()                     # as another thread would
    >>> election.run_as_leader(work)
    """

    __slots__ = ("name", "_client", "_handle", "_on_change", "_stand_again", "__weakref__")

    #: The name as text. Bytes that are not UTF-8 become lone surrogates.
    name: str

    def __init__(
        self,
        client: Owner,
        handle: ElectionHandle,
        name: str,
        stand_again: bool,
        on_change: Optional[OnChange],
    ) -> None:
        if type(handle) is not ElectionHandle:
            raise TypeError("an election comes from a client: client.election(name)")
        self._client = client  # A client that nobody has any more is closed.
        self._handle = handle
        self.name = name
        self._stand_again = stand_again
        self._on_change = on_change

    def run_as_leader(self, work: Callable[[Term], object]) -> None:
        """Stands by, calls `work(term)` when elected, and stands again when the leadership was lost, until
        `stop()`. The work runs in this thread. It has to ask whether it may go on: `Term.is_leader`, or
        `Term.ended_within()`, which sleeps.

        - If the work returns after its term has ended, the lock is released and the candidate stands again.
        - If it returns while it leads, the lock is released, and so does this method. With
          `stand_again=True`, the candidate stands again instead.
        - If it raises, the lock is released and this method raises the same.
        - If it does not stop when its term has ended, the lock stays held and is renewed if that is
          possible. Else another candidate is elected when validity ends, with a larger fence, and
          `healthy` is False.

        It waits through outages of the store. It raises what waiting does not mend, such as `Auth` and
        `Closed`; `Lost` if the work returned while it seemed to lead and the lock was lost before;
        `WouldDeadlock` if this thread leads already. Ctrl-C ends the standing.
        """
        if not callable(work):
            raise TypeError(f"{work!r} cannot be called with a term")
        if inspect.iscoroutinefunction(work):
            raise TypeError("the work is a coroutine: await leasehold_lock.aio.run_as_leader()")
        while (term := self._elected()) is not None:
            try:
                work(term)
            except BaseException:
                term._let_go()
                raise
            if self._is_done(term):
                return

    def _elected(self) -> Optional[Term]:
        """None if the election was stopped."""
        try:
            return self.stand()
        except Interrupted:
            return None

    def _is_done(self, term: Term) -> bool:
        """Ends a term whose work has returned. Whether the candidate does not stand again."""
        is_last = term.is_leader and not self._stand_again
        try:
            term.resign()
        except Lost:
            if is_last:
                raise
        except Error:
            pass  # Free by its ttl; the work has done what it had to do.
        return is_last

    def stand(self) -> Term:
        """Waits until this candidate is elected, without limit, also through outages of the store. After a
        term of its own it rests for about a second first, so that others can be elected.

        Use it in a ``with`` statement, whose end resigns. It raises as `run_as_leader()` does, and
        `Interrupted` if the election was stopped.

        >>> with client.election("once").stand() as term:
        ...     term.is_leader
        True
        """
        return self._stand(FOREVER_MS)

    def stand_within(self, limit: Seconds) -> Term:
        """Stands as `stand()` does, for `limit` at most. Raises `Timeout`, or what was wrong with the store
        to the end."""
        return self._stand(milliseconds("limit", limit))

    def _stand(self, limit_ms: int, interrupt: Any = None) -> Term:
        if self._client._unwatched:
            self._client._watch_again()
        handle, error = TermHandle(), c_void_p()
        watch = SignalWatch() if get_ident() == _interrupts.main_thread else None
        if interrupt is None:
            interrupt = watch.function if watch else NOTHING
        try:
            status = _abi.election_stand_within(
                self._handle, limit_ms, interrupt, None, byref(handle), byref(error)
            )
            if watch and watch.caught:
                raise watch.caught.pop()
            if status != OK:
                raise failure(status, error, self.name)
            return Term(handle, self)
        except BaseException:
            # After a Ctrl-C, nobody will ever see the term that may have begun.
            _abi.term_free(handle)
            raise

    def leader(self) -> Optional[LockState]:
        """Asks the store who leads; None when nobody does. `LockState.fence` is the leader's, and
        `LockState.who` its host and process.

        >>> client.election("vacant").leader() is None
        True
        """
        state, error = LockStateHandle(), c_void_p()
        status = _abi.election_leader(self._handle, byref(state), byref(error))
        if status != OK:
            raise failure(status, error)
        read = read_state(state)
        return read if read.held else None

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads at this moment. It does not contact the store."""
        return self.state is ElectionState.LEADING

    @property
    def fence(self) -> Optional[int]:
        """The fence of the term in which this candidate leads; None while it does not."""
        return _abi.election_fence(self._handle) or None

    @property
    def state(self) -> ElectionState:
        """What this candidate does at this moment. It does not contact the store."""
        return ElectionState(_abi.election_state(self._handle))

    @property
    def healthy(self) -> bool:
        """The answer to ``/healthz``: False while the work still runs after its lease has ended, and nothing
        but the end of the process stops it. A standby is healthy. It does not contact the store."""
        return bool(_abi.election_is_healthy(self._handle))

    def resign(self) -> None:
        """Tells the work to stop, if this candidate leads; the lock is released when it has stopped. Other
        candidates are elected first: this one rests for about a second before it stands again."""
        self._do(_abi.election_resign)

    def stop(self) -> None:
        """Ends the election for this candidate, for good. It resigns, `stand()` raises `Interrupted`, and
        `run_as_leader()` returns when the work has stopped."""
        self._do(_abi.election_stop)

    def _do(self, call: Callable[..., int]) -> None:
        error = c_void_p()
        status = call(self._handle, byref(error))
        if status != OK:
            raise failure(status, error)

    def __reduce__(self) -> str:
        raise TypeError("an election stays in its process; make one of this name there")

    def __repr__(self) -> str:
        return f"<leasehold.Election {self.name!r}: {self.state.name.lower()}>"
