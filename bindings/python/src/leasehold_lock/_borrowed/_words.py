"""What all readers of foreign settings share: taking parameters one by one, refusing, writing URLs.

No error made here repeats a value: it may be a password.
"""

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional
from urllib.parse import quote

from .._errors import BadArgument, bad_argument

#: Of a URL: a name and a value, which is left out where there is none.
Pairs = Sequence[tuple[str, Optional[str]]]


def refused(why: str, instead: str) -> BadArgument:
    """One sentence: what cannot be borrowed, and what to write."""
    return bad_argument(f"{why}: write {instead}")


def quoted(text: str) -> str:
    """A part of a URL."""
    return quote(text, safe="", errors="surrogateescape")


def credentials(user: Optional[str], password: Optional[str]) -> str:
    """What stands before the hosts."""
    if not user and not password:
        return ""
    return f"{quoted(user or '')}{'' if password is None else ':' + quoted(password)}@"


def place(host: str, port: object) -> str:
    """A host and its port."""
    return f"{f'[{host}]' if ':' in host else quoted(host)}:{port}"


def with_parameters(base: str, pairs: Pairs) -> str:
    """The URL with what stands behind its question mark."""
    given = [f"{name}={quoted(value)}" for name, value in pairs if value is not None]
    return base + ("?" + "&".join(given) if given else "")


class Parameters:
    """What a driver is called with, each to be taken once; what is left at the end was not known, and
    might have mattered."""

    def __init__(self, given: Mapping[str, Any], whose: str, instead: str) -> None:
        self._left = {name: value for name, value in given.items() if value is not None}
        self._known: list[str] = []
        self.whose = whose
        self.instead = instead

    def take(self, *names: str) -> Any:
        """The value under one of several names for it, or None."""
        self._known += names
        values = [self._left.pop(name) for name in names if name in self._left]
        return values[0] if values else None

    def text(self, *names: str) -> Optional[str]:
        """The same for a text. A callback that makes one, or an object that stands for one, is refused."""
        value = self.take(*names)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        if value is not None and not isinstance(value, str):
            raise self.refused(f"{names[0]} is no text but a value of type {type(value).__name__}")
        return value

    def drop(self, names: Iterable[str]) -> None:
        """What concerns the driver's own sockets and results, and nothing that is borrowed."""
        self._known += names
        for name in names:
            self._left.pop(name, None)

    def refused(self, why: str) -> BadArgument:
        """Something in them that cannot be borrowed."""
        return refused(f"{self.whose}: {why}", self.instead)

    def finish(self) -> None:
        """Refuses what is left."""
        for name in self._left:
            near = difflib.get_close_matches(str(name), self._known, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise self.refused(f"Leasehold cannot do what {name!r} asks for{hint}")
