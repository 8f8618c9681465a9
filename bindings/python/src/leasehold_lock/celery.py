"""A base class for tasks of Celery, of which one runs at a time.

::

    class OneAtATime(leasehold_lock.celery.LockedTask):
        lock_client = client                    # one for the process
        lock_options = {"ttl": 10}

    @app.task(base=OneAtATime, bind=True, lock_name="report:{shop}")
    def report(self, shop):
        write(shop, self.lease.fence)
"""

import inspect
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Optional

from celery import Task  # type: ignore[import-untyped]
from celery.exceptions import Retry  # type: ignore[import-untyped]

from ._client import Client
from ._errors import Error, Lost, Timeout, bad_argument
from ._lease import Lease
from ._locked import Formatter

__all__ = ["LockedTask"]

_log = logging.getLogger("leasehold")

_WHEN_BUSY = ("retry", "skip", "fail")
_WHEN_LOST = ("fail", "retry")


class _Leases(threading.local):
    """Of the runs that a thread is in; a task may call another one."""

    def __init__(self) -> None:
        self.all: list[Lease] = []


_leases = _Leases()


class LockedTask(Task):  # type: ignore[misc]
    """A task that runs with a lock held. All of these are set in a class, or where a task is made.

    A task that is called as a function acquires the lock too. There, and with ``task_always_eager``, "retry"
    fails, since nothing runs it later.
    """

    abstract = True

    #: Whose locks they are: a client, which every task needs.
    lock_client: Optional[Client] = None
    #: The name of the lock, with arguments of the task in braces: ``"report:{shop}"``. By default it is the
    #: name of the task, so that one run at a time is made of all.
    lock_name: Optional[str] = None
    #: The options of `Client.lock()`. The wait is 0 by default, so that a worker does not wait idly.
    lock_options: Mapping[str, Any] = {}
    #: What happens if another run has the lock. "retry" runs the task later, which does not count as one of
    #: Celery's retries; it does so too while the store does not answer. "skip" does nothing, and the result
    #: is None. "fail" raises `Timeout`.
    when_busy: str = "retry"
    #: After how many seconds "retry" runs the task again.
    busy_delay: float = 1
    #: What happens if the lease was lost when the run ends: "fail" raises `Lost`, "retry" runs the task again.
    when_lost: str = "fail"

    def __init__(self) -> None:
        super().__init__()
        if not isinstance(self.lock_client, Client):
            raise TypeError(
                f"the task {self.name} has the lock_client {self.lock_client!r}; it is a leasehold.Client"
            )
        for what, value, allowed in [
            ("when_busy", self.when_busy, _WHEN_BUSY),
            ("when_lost", self.when_lost, _WHEN_LOST),
        ]:
            if value not in allowed:
                raise bad_argument(
                    f"{what} of the task {self.name} is {value!r}; it is one of {', '.join(allowed)}"
                )
        self._parameters = inspect.signature(self.run)
        self._formatter = Formatter(
            self.name if self.lock_name is None else self.lock_name,
            self._parameters,
            self.name,
            None,
        )
        # An option that is out of range raises here.
        self.lock_client.lock("checked", **{"wait": 0, **self.lock_options})

    @property
    def lease(self) -> Lease:
        """The lease of this run: `fence`, `valid` and `raise_if_lost()` are what a task needs."""
        if not _leases.all:
            raise RuntimeError("no task of this thread holds a lock at this moment")
        return _leases.all[-1]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        name = self._formatter.name(self._parameters.bind(*arguments, **named))
        assert self.lock_client is not None, "it was refused"
        lock = self.lock_client.lock(name, **{"wait": 0, **self.lock_options})
        try:
            lease = lock.acquire()
        except Error as error:
            if isinstance(error, Timeout) and self.when_busy == "skip":
                _log.info("%s was skipped: %s", self.name, error)
                return None
            if self.when_busy == "retry" and (isinstance(error, Timeout) or error.retriable):
                self._again(error, arguments, named)
            raise
        _leases.all.append(lease)
        try:
            with lease:
                return self.run(*arguments, **named)
        except Lost as error:
            if self.when_lost == "retry" and not lease.valid:
                self._again(error, arguments, named)
            raise
        finally:
            _leases.all.pop()

    def _again(
        self, error: Error, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Optional[NoReturn]:
        """Runs the task later, as `Task.retry()` does, but without counting it: the task has not failed."""
        request = self.request
        if request.called_directly or request.is_eager:
            return None
        later = self.signature_from_request(
            request, arguments, named, countdown=self.busy_delay, retries=request.retries
        )
        later.apply_async()
        raise Retry(exc=error, when=self.busy_delay, sig=later) from error
