"""Threads for calls that wait for the store's answer, so that `asyncio` does not.

There are as many as there are such calls at once: with an upper bound, calls would wait for one
another while the store is silent, longer than each may take. They are daemons, so that a store that
does not answer keeps no program from ending.
"""

import os
import queue
import threading
from concurrent.futures import Future
from typing import Callable, TypeVar

_T = TypeVar("_T")
_Task = Callable[[], None]

#: How long a thread with nothing to do is kept.
_IDLE_SECONDS = 10.0


class Workers:
    """As many threads as are needed."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Task]] = []

    def submit(self, call: Callable[[], _T]) -> "Future[_T]":
        """Makes a call in a thread that has nothing else to do."""
        future: Future[_T] = Future()
        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = queue.SimpleQueue()
            name = "leasehold-worker"
            threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()
        inbox.put(lambda: settle(future, call))
        return future

    def _work(self, inbox: "queue.SimpleQueue[_Task]") -> None:
        while True:
            try:
                task = inbox.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                try:
                    self._idle.remove(inbox)
                except ValueError:
                    continue  # Somebody has just taken it, and is about to put something in.
                return
            task()
            del task  # And with it what its caller gave and got.
            self._idle.append(inbox)

    def forked(self) -> None:
        """In a child, where none of the threads is."""
        self._idle = []


def settle(future: "Future[_T]", call: Callable[[], _T]) -> None:
    """Makes the call, and puts into the future what it came to."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


WORKERS = Workers()
os.register_at_fork(after_in_child=WORKERS.forked)
