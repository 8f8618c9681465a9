"""Leasehold: one lock for programs on many machines, or for the processes of one.

Acquire a lock, know how long you may rely on it, and release it. Its fencing token (`fence`) lets the
resource reject a late write. The store is Redis or Valkey (one server, a Sentinel group, a Cluster, or
a quorum of several), PostgreSQL, MySQL or MariaDB, ZooKeeper, etcd, or an SQLite file.

>>> import leasehold_lock as leasehold
>>> client = leasehold.connect()            # or connect("redis://127.0.0.1")
>>> with client.lock("stock:sku-17", ttl=10, wait=5) as lease:
...     charge(order, lease.fence)          # the database rejects a smaller fence

Durations are seconds, or a `timedelta`. Every failure is a `leasehold.Error`. Any thread may call
any function. Programs of `asyncio` use `leasehold_lock.aio`. `leasehold_lock.compat.Lock` replaces redis-py's
``Lock``.
"""

from . import _abi
from ._client import Client, Counters, connect
from ._credentials import Credentials, Endpoint
from ._election import Election, ElectionState, Leadership, Term, TermEnd
from ._errors import (
    Auth,
    BadArgument,
    BadHandle,
    Closed,
    DiskFull,
    Error,
    Exhausted,
    Forked,
    Interrupted,
    Lost,
    NoAnswer,
    NoQuorum,
    NotReplicated,
    OutOfMemory,
    Panic,
    Permission,
    Protocol,
    ReadOnly,
    Refused,
    Sealed,
    Storage,
    Timeout,
    Tls,
    Unavailable,
    Unknown,
    WouldDeadlock,
    WrongType,
)
from ._events import Event, EventKind, Events, LossReason
from ._fences import check_fence
from ._habits import UnitWarning
from ._lease import Handover, Lease
from ._lock import Backoff, ClientInfo, Lock, LockState, Run, Waiter, WaitMode

#: The version of the library, which the package shares.
__version__: str = _abi.version().decode()

__all__ = [
    "Auth",
    "Backoff",
    "BadArgument",
    "BadHandle",
    "Client",
    "ClientInfo",
    "Closed",
    "Counters",
    "Credentials",
    "DiskFull",
    "Election",
    "ElectionState",
    "Endpoint",
    "Error",
    "Event",
    "EventKind",
    "Events",
    "Exhausted",
    "Forked",
    "Handover",
    "Interrupted",
    "Leadership",
    "Lease",
    "Lock",
    "LossReason",
    "Lost",
    "NoAnswer",
    "NoQuorum",
    "NotReplicated",
    "OutOfMemory",
    "Panic",
    "Permission",
    "Protocol",
    "ReadOnly",
    "Refused",
    "Run",
    "Sealed",
    "LockState",
    "Storage",
    "Term",
    "TermEnd",
    "Timeout",
    "Tls",
    "WaitMode",
    "Waiter",
    "Unavailable",
    "UnitWarning",
    "Unknown",
    "WouldDeadlock",
    "WrongType",
    "check_fence",
    "connect",
]
