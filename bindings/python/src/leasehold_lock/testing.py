"""A store in memory with controls, for the tests of programs that use locks.

A test gives its program a store that needs no server, and then has that store do what a server does on
a bad day:

>>> from leasehold_lock.testing import Memory
>>> memory = Memory()
>>> client = memory.client()                # or what your program does: connect(memory.url)
>>> lease = client.lock("orders:42").acquire()
>>> memory.assert_held("orders:42")
>>> memory.lose("orders:42")
>>> lease.valid                             # it was told
False
>>> with memory.busy("orders:42"):          # another client holds it
...     client.lock("orders:42").try_acquire() is None
True
>>> memory.fail_next(leasehold.Permission)
>>> client.lock("orders:42").acquire()
Traceback (most recent call last):
leasehold_lock._errors.Permission: ...
>>> memory.close()

With pytest, the fixture ``leasehold_memory`` is a fresh one for each test.

`Memory.advance()` moves the clock of the store. The client has a clock of its own, the machine's, which
no test can move: `Lease.remaining`, the next renewal, the end of a `wait` and `max_hold` count real
time. To test these, set short times.
"""

from ctypes import byref, c_size_t, c_void_p, string_at
from typing import Any, Callable, Optional

from . import _abi
from ._client import Client, connect
from ._errors import OK, Error, failure
from ._handles import EffectHandle, MemoryHandle, NamesHandle
from ._names import Name, decode_name, encode_name
from ._time import Seconds, milliseconds

__all__ = ["Effect", "Memory"]


class Effect:
    """What goes on in a store until `end()`, or until the end of a ``with`` statement: a lock that
    another client holds, or requests that fail. `Memory.busy()` and `Memory.failing()` make one."""

    __slots__ = ("_handle",)

    def __init__(self, handle: EffectHandle) -> None:
        self._handle: Optional[EffectHandle] = handle

    def end(self) -> None:
        """Releases the lock, or has requests succeed again. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _abi.testing_effect_free(handle)

    def __enter__(self) -> "Effect":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Memory:
    """A store in the memory of this process, and the controls of a test.

    All clients that open its `url` exclude each other, as on a server. Without a name, it is a store
    that no other test has. With one, it is the store of this name in this process: for a program whose
    URL stands in a file, such as ``memory:orders``.

    Locks are named as the store has them: with the `prefix` of the client, if that has one. A control
    that is called mistakenly raises `BadArgument`, such as `lose()` of a lock that no client holds.

    >>> with Memory() as memory, memory.client() as client, memory.client() as other:
    ...     with client.lock("orders:42"):
    ...         print(other.lock("orders:42").try_acquire(), memory.held())
    None ['orders:42']
    """

    __slots__ = ("_handle", "_effects", "_clients", "url")

    #: What a program opens, in this process. Options may follow, such as ``?io_timeout=50ms``.
    url: str

    def __init__(self, name: Optional[str] = None) -> None:
        self._handle = MemoryHandle()
        self._effects: list[Effect] = []
        self._clients: list[Client] = []
        text = None if name is None else name.encode("utf-8", "surrogateescape")
        self._call(_abi.testing_memory_open, text, len(text or b""), byref(self._handle))
        self.url = _abi.testing_memory_url(self._handle).decode()

    def client(self, **options: Any) -> Client:
        """Opens a client on this store, with the options of `leasehold.connect()`. `close()` closes it."""
        made = connect(self.url, **options)
        self._clients.append(made)
        return made

    def lose(self, name: Name) -> None:
        """Ends the lease of the holder, as if its ttl had run out. The lock is free, or the first
        waiter's.

        When this returns, the lease is invalid, and events and callbacks are on their way. A lease with
        ``renew=False`` learns it when it is extended or released, as on a server. While the store is
        paused, the holder learns it at its next renewal.
        """
        key = encode_name(name)
        self._call(_abi.testing_memory_lose, self._handle, key, len(key))

    def busy(self, name: Name) -> Effect:
        """Holds the lock as another client would, until the end of the effect. Then the store hands it
        to the first waiter. Neither real time nor `advance()` ends it."""
        key = encode_name(name)
        return self._effect(_abi.testing_memory_busy, key, len(key))

    def fail_next(self, kind: type[Error]) -> None:
        """Fails the next request of a call with this exception, as a store would that did not carry it
        out. With `Unknown` the store carries it out, and its reply is lost.

        Renewals and all else that a client does in the background do not count. Called several times,
        it fails as many requests, in that order.

        A call tries again after an error with `retriable`, so one failed request only delays it. To
        have the call itself fail, use `failing()`. `try_acquire()` alone raises `Refused` and
        `NotReplicated` at once.
        """
        self._call(_abi.testing_memory_fail_next, self._handle, _status(kind))

    def failing(self, kind: type[Error]) -> Effect:
        """Fails every request of a call, as `fail_next()` fails one, until the end of the effect. A call
        that tries again raises in the end, after `io_timeout` or its `wait`.

        >>> with Memory() as memory, memory.client(io_timeout=0.05) as client:
        ...     with memory.failing(leasehold.Unavailable):
        ...         client.lock("orders:42").try_acquire()
        Traceback (most recent call last):
        leasehold_lock._errors.Unavailable: ...
        """
        return self._effect(_abi.testing_memory_failing, _status(kind))

    def pause(self) -> None:
        """The store answers nothing, neither calls nor renewals, until `resume()`. A request that is
        waiting then is answered. One that has given up was not carried out. Leases expire meanwhile."""
        self._call(_abi.testing_memory_pause, self._handle)

    def resume(self) -> None:
        """The store answers again."""
        self._call(_abi.testing_memory_resume, self._handle)

    def advance(self, by: Seconds) -> None:
        """Moves the clock of the store forward. Leases expire there as if so much time had passed
        without a request, and a lock that this frees is handed to its first waiter. The holder of an
        ended lease has been told when this returns, as after `lose()`. The clock of the client stays."""
        self._call(_abi.testing_memory_advance_ms, self._handle, milliseconds("by", by))

    def held(self) -> list[str]:
        """The names of the locks that are held, in the order of their bytes, also by `busy()`."""
        names = NamesHandle()
        self._call(_abi.testing_memory_held, self._handle, byref(names))
        held, length = [], c_size_t()
        for place in range(_abi.testing_names_count(names)):
            start = _abi.testing_names_get(names, place, byref(length))
            held.append(decode_name(string_at(start, length.value)))
        return held

    def assert_held(self, name: Name) -> None:
        """Raises `AssertionError` if no client holds the lock."""
        __tracebackhide__ = True
        self._assert(decode_name(encode_name(name)) in self.held(), f"no client holds {name!r}")

    def assert_free(self, name: Name) -> None:
        """Raises `AssertionError` if a client holds the lock."""
        __tracebackhide__ = True
        self._assert(decode_name(encode_name(name)) not in self.held(), f"{name!r} is held")

    def assert_nothing_held(self) -> None:
        """Raises `AssertionError` if any lock is held."""
        __tracebackhide__ = True
        self._assert(not self.held(), "not every lock was released")

    def close(self) -> None:
        """Ends all effects, resumes the store, and closes the clients that `client()` opened."""
        for effect in self._effects:
            effect.end()
        self.resume()
        for client in self._clients:
            client.close()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<leasehold_lock.testing.Memory {self.url}>"

    def _assert(self, so: bool, otherwise: str) -> None:
        __tracebackhide__ = True  # Pytest shows the line of the test instead.
        if not so:
            held = ", ".join(map(repr, self.held())) or "none"
            raise AssertionError(f"{otherwise}; locks held in {self.url}: {held}")

    def _effect(self, make: Callable[..., int], *arguments: object) -> Effect:
        handle = EffectHandle()
        self._call(make, self._handle, *arguments, byref(handle))
        effect = Effect(handle)
        # Until it is ended: a test need not keep it in a variable.
        self._effects.append(effect)
        return effect

    @staticmethod
    def _call(function: Callable[..., int], *arguments: object) -> None:
        error = c_void_p()
        status = function(*arguments, byref(error))
        if status != OK:
            raise failure(status, error)


def _status(kind: type[Error]) -> int:
    if not isinstance(kind, type) or not issubclass(kind, Error) or kind is Error:
        raise TypeError(
            f"kind is an exception of leasehold's, such as leasehold.Refused, not {kind!r}"
        )
    return kind.status
