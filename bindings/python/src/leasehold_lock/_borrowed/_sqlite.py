"""An SQLite database of the program: the locks are kept in a file beside it."""

import os
from typing import Any

from ._words import quoted, refused

INSTEAD = "leasehold.connect('sqlite:/path/to/locks.db')"

#: What is added to the name. The database itself is not for locks: Leasehold's file has a mark, and a
#: transaction of the program would keep every lock waiting.
BESIDE = ".locks"


def beside(database: Any, whose: str) -> str:
    """The URL of the file beside a database."""
    path = os.fspath(database) if isinstance(database, (str, bytes, os.PathLike)) else ""
    text = os.fsdecode(path)
    if not text or text == ":memory:" or "mode=memory" in text:
        raise refused(f"{whose} is in memory, where no other process finds a lock", INSTEAD)
    if text.startswith("file:"):
        raise refused(f"{whose} is a URI of SQLite's own", INSTEAD)
    return "sqlite:" + "/".join(
        quoted(part) for part in (os.path.abspath(text) + BESIDE).split("/")
    )
