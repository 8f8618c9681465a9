"""What can end a wait for a lock: a signal in the main thread.

C asks its interrupt function at least every 100 ms, on the thread that waits.
"""

import threading
from collections.abc import Generator

from . import _abi


class SignalWatch:
    """Lets Python's signal handlers run during a wait, and keeps what they raise.

    Python runs signal handlers at certain places of Python code, and the entry of a function is
    one. A plain function as a callback would lose a KeyboardInterrupt: it is raised there, before
    any `try` of the function, and ctypes prints and forgets what leaves a callback. A generator
    that has been started goes on where it stopped, inside of its `try`. So the callback is the
    `send` of a generator. It costs ten times what asking it costs, so it is used again: one for a
    room (see `_rooms.py`), since the handler of a signal may wait for a lock itself.
    """

    __slots__ = ("caught", "function")

    def __init__(self) -> None:
        #: One exception at most. The code that raises it takes it out: the exception leads to the
        #: frame of the generator, and must not be led to from there.
        self.caught: list[BaseException] = []
        answers = _answers(self.caught)
        next(answers)
        self.function = _abi.INTERRUPT(answers.send)


def _answers(caught: list[BaseException]) -> Generator[int, object, None]:
    try:
        while True:
            yield 0
    except GeneratorExit:
        return
    except BaseException as raised:
        caught.append(raised)
    yield 1


#: No interrupt function.
NOTHING = _abi.INTERRUPT()


#: The thread in which Python runs signal handlers.
main_thread = threading.main_thread().ident


#: How many forks lie between the first process and this one.
forks = 0


def forked() -> None:
    """In a child, the thread that forked is the main one; `threading` has been told before us."""
    global main_thread, forks
    forks += 1
    main_thread = threading.main_thread().ident
