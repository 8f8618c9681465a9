"""Leasehold: one lock for programs on many machines, or for the processes of one.

Take it, know how long you may rely on it, prove to the resource that you are the latest holder
(the fence), give it back. Locks are kept on Redis or Valkey (one server, a Sentinel group, a Cluster,
or a quorum of several), on PostgreSQL, on MySQL or MariaDB, on ZooKeeper, on etcd, or in an SQLite
file.

>>> import leasehold
>>> client = leasehold.connect()            # or connect("redis://127.0.0.1")
>>> with client.lock("stock:sku-17", ttl=10, wait=5) as lease:
...     charge(order, lease.fence)          # the database refuses a smaller fence

Durations are seconds, or a `timedelta`. Whatever goes wrong is a `leasehold.Error`. Calls may be
made by any thread; `leasehold.aio` has what a program of `asyncio` needs. `leasehold.compat.Lock`
takes the place of redis-py's ``Lock``.
"""

from . import _abi
from ._client import Client, Counters, connect
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
    "DiskFull",
    "Error",
    "Event",
    "EventKind",
    "Events",
    "Exhausted",
    "Forked",
    "Handover",
    "Interrupted",
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
