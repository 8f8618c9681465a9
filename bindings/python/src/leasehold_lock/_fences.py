"""The comparison that lets a database refuse a late writer."""

import sys
from typing import Any

from ._errors import BadArgument, Lost

#: The largest fence that a lease has: a BIGINT holds it, and so does a float.
LARGEST = 2**53 - 1

# Begins the row or raises its fence in one statement: two transactions that begin one at once would
# fail otherwise, or each lock the gap that the other one fills.
_RAISE = (
    "INSERT INTO leasehold_fences (name, fence, writes) VALUES (?, ?, 1) ON CONFLICT (name) DO UPDATE"
    " SET fence = excluded.fence, writes = leasehold_fences.writes + 1"
    " WHERE leasehold_fences.fence <= excluded.fence"
)
_RAISE_IN_MYSQL = (
    "INSERT INTO leasehold_fences (name, fence, writes) VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE"
    " writes = writes + (fence <= VALUES(fence)), fence = GREATEST(fence, VALUES(fence))"
)
# How many rows that has changed, MySQL's drivers count in different ways.
_SEE_IN_MYSQL = "SELECT fence FROM leasehold_fences WHERE name = ? FOR UPDATE"
_MYSQL = ("MySQLdb", "pymysql", "mysql", "mariadb")


def check_fence(cursor: Any, name: str, fence: int) -> None:
    """Raises `Lost` if a later holder of the lock has already written. Make it the first call of a
    transaction that writes what the lock protects.

    ``cursor`` belongs to a DB-API connection to PostgreSQL, MySQL, MariaDB or SQLite, or to Django's,
    and is in the transaction of the writes. Until that transaction ends, no other one gets past this
    call with the same name. With auto-commit there is no transaction: then it raises `BadArgument`, if
    the driver tells. The files in ``examples/fences`` create the table.

    >>> import sqlite3
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE leasehold_fences (name TEXT PRIMARY KEY, fence, writes)")
    >>> check_fence(connection.cursor(), "stock", 41)
    >>> check_fence(connection.cursor(), "stock", 42)
    >>> check_fence(connection.cursor(), "stock", 41)
    Traceback (most recent call last):
      ...
    leasehold_lock._errors.Lost: the fence 41 of 'stock' is late: a later holder was here
    """
    if not 1 <= fence <= LARGEST:
        raise BadArgument(f"{fence} is no fence")
    mark, is_mysql = _mark(cursor), _is_mysql(cursor)
    cursor.execute((_RAISE_IN_MYSQL if is_mysql else _RAISE).replace("?", mark), (name, fence))
    passed = cursor.rowcount > 0
    if _is_alone(getattr(cursor, "connection", None)):
        raise BadArgument(
            "the connection has auto-commit: the fence was compared in a transaction of its own"
        )
    if is_mysql:
        cursor.execute(_SEE_IN_MYSQL.replace("?", mark), (name,))
        row = cursor.fetchone()
        seen = next(iter(row.values())) if isinstance(row, dict) else row[0]
        passed = int(seen) == fence
    if not passed:
        raise Lost(f"the fence {fence} of {name!r} is late: a later holder was here")


def _is_mysql(cursor: Any) -> bool:
    """Whether it is a driver's own cursor, or Django's, for MySQL or MariaDB."""
    vendor = getattr(getattr(cursor, "db", None), "vendor", None)
    if vendor is not None:
        return bool(vendor == "mysql")
    for part in (cursor, getattr(cursor, "connection", None)):
        for kind in type(part).__mro__:
            if kind.__module__.partition(".")[0] in _MYSQL:
                return True
    return False


def _mark(cursor: Any) -> str:
    """How its driver marks a value: most as Django does, for every database."""
    driver = sys.modules.get(type(cursor).__module__.partition(".")[0])
    return "?" if getattr(driver, "paramstyle", "format") == "qmark" else "%s"


def _is_alone(connection: Any) -> bool:
    """Whether the statement before has ended its transaction, as far as the driver tells."""
    within = getattr(connection, "in_transaction", None)
    if isinstance(within, bool):
        return not within  # sqlite3
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is not None:
        return int(status) == 0  # psycopg: idle
    commits = getattr(connection, "get_autocommit", None)
    if commits is None:
        return getattr(connection, "autocommit", None) is True
    # PyMySQL knows of a transaction that BEGIN has begun, by the flag SERVER_STATUS_IN_TRANS.
    return bool(commits()) and not getattr(connection, "server_status", 0) & 1
