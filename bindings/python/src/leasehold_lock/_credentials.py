"""Credentials that a program looks up while it runs, such as tokens of a cloud."""

import atexit
import itertools
import weakref
from ctypes import c_void_p
from datetime import datetime
from typing import Any, Callable, NamedTuple, Optional, Union

from . import _abi
from ._errors import OK


class Endpoint(NamedTuple):
    """The server that a login goes to."""

    #: The host as the URL or the cluster names it, or the path of a unix socket.
    host: str
    #: 0 for a unix socket.
    port: int
    #: The user in the URL, if it has one.
    user: Optional[str]


class Credentials(NamedTuple):
    """A secret, and how long it is good for."""

    #: Whose secret it is; None for the user in the URL.
    user: Optional[str]
    #: A password or a token.
    secret: str
    #: When it ends: seconds since 1970, or a `datetime` with a time zone. Without an end, it is asked for at
    #: each login.
    valid_until: Union[float, datetime, None] = None
    #: Whether connections to PostgreSQL and MySQL that logged in with earlier credentials make way for new
    #: ones.
    retire_connections: bool = False


#: `Credentials`, or a tuple of its first two or three.
Answer = Union[
    Credentials, tuple[Optional[str], str], tuple[Optional[str], str, Union[float, datetime, None]]
]
Provider = Callable[[Endpoint], Answer]


class _Asked:
    """A provider, and the strings that it returned last, which C reads when the call has ended."""

    __slots__ = ("provider", "kept")

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.kept: tuple[bytes, ...] = ()

    def ask(self, endpoint: Endpoint, answer: Any) -> None:
        user, secret, until, retires = _read(self.provider(endpoint))
        texts = [None if text is None else text.encode() for text in (user, secret)]
        answer.user, answer.secret = texts
        self.kept = tuple(text for text in texts if text is not None)
        answer.valid_until_ms = 0 if until is None else max(1, int(until * 1000))
        answer.retire_connections = retires


def _read(answer: Answer) -> tuple[Optional[str], str, Optional[float], bool]:
    if not isinstance(answer, tuple) or not 2 <= len(answer) <= 4:
        shape = "(user, secret, valid_until)"
        raise TypeError(f"it returned {type(answer).__name__}, and not a tuple {shape}")
    user, secret, until, retires = Credentials(*answer)
    if not (user is None or isinstance(user, str)) or not isinstance(secret, str):
        raise TypeError("the user and the secret that it returned are no str")
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise ValueError("valid_until is a datetime without a time zone")
        until = until.timestamp()
    if until is not None and (isinstance(until, bool) or not isinstance(until, (int, float))):
        raise TypeError("valid_until is seconds since 1970, a datetime, or None")
    return user, secret, until, bool(retires)


# By the numbers by which C knows them.
_asked: dict[int, _Asked] = {}
_numbers = itertools.count(1)


def _ask(number: int, host: bytes, port: int, user: Optional[bytes], answer: Any) -> int:
    """Runs in a thread of the library, which has no place for an exception."""
    asked = _asked[number]
    try:
        to = Endpoint(host.decode(), port, None if user is None else user.decode())
        asked.ask(to, answer.contents)
        return 0
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".encode("utf-8", "replace").replace(b"\0", b" ")
        asked.kept = (text,)
        answer.contents.failure = text
        return 1


def _drop(number: int) -> None:
    _asked.pop(number, None)


_ASK, _DROP = _abi.ASK(_ask), _abi.DROP(_drop)


def set_provider(config: c_void_p, provider: Provider) -> int:
    """Returns the status of C."""
    if not callable(provider):
        raise TypeError(f"credentials is {provider!r}; it is a function of an Endpoint")
    number = next(_numbers)
    _asked[number] = _Asked(provider)
    return int(_abi.config_set_credentials(config, _ASK, number, _DROP))


_open: "weakref.WeakSet[Any]" = weakref.WeakSet()


def end_with_interpreter(client: Any) -> None:
    """No thread of the library may call Python any more when the interpreter goes."""
    if not _open:
        atexit.unregister(_end)
        atexit.register(_end)
    _open.add(client)


def _end() -> None:
    for client in list(_open):
        # In no time, which sends nothing; and then it waits for a call that is under way.
        if _abi.client_close_within(client._handle, 0, None) == OK:
            _abi.client_close_within(client._handle, 2000, None)
