"""A client of Leasehold for whatever a program of redis-py has."""

import importlib
import weakref
from typing import Any

from .._borrowed import _redis
from .._client import Client, connect
from .._errors import BadArgument
from .._names import encode_name

#: One client for each connection pool of redis-py, or client of a Cluster, shared by all locks.
_by_source: "weakref.WeakKeyDictionary[Any, Client]" = weakref.WeakKeyDictionary()


def client_of(given: Any, in_loop: bool = False) -> Client:
    """The client itself, or one of the servers that a client of redis-py is for; one for asyncio, if
    the lock is."""
    if isinstance(given, Client):
        return given
    kind = type(given)
    if _redis.is_pipeline(given):
        raise TypeError("a pipeline only collects commands; give Lock the client that made it")
    # A Cluster's client has a pool for each server.
    source = given if hasattr(given, "nodes_manager") else getattr(given, "connection_pool", None)
    if source is None:
        raise TypeError(f"a client of Leasehold or a redis.Redis, not {kind.__name__}")
    if hasattr(kind, "__aenter__") and not in_loop:
        raise TypeError(
            f"{kind.__module__}.{kind.__name__} is a client for asyncio, and this lock is not; "
            f"there, use leasehold_lock.compat.aio.Lock"
        )
    if in_loop and not hasattr(kind, "__aenter__"):
        raise TypeError(
            f"{kind.__module__}.{kind.__name__} is no client for asyncio, and this lock is for one; "
            f"use leasehold_lock.compat.Lock"
        )
    if in_loop and hasattr(given, "nodes_manager"):
        raise TypeError(
            "this lock cannot follow a RedisCluster for asyncio; give Lock a client of leasehold.connect()"
        )
    client = _by_source.get(source)
    if client is None:
        try:
            url = _redis.url_of_source(source, "redis.asyncio" if in_loop else "redis")
        except BadArgument as error:
            raise TypeError(f"{error}, and give Lock that client") from None
        client = _by_source[source] = connect(url)
    return client


def key_of(given: Any, name: Any) -> bytes:
    """The key that redis-py has for a name, by the client's own encoding where it has one."""
    if isinstance(given, Client):
        numeric = isinstance(name, (int, float)) and not isinstance(name, bool)
        name = repr(name) if numeric else name
        return bytes(name) if isinstance(name, (bytearray, memoryview)) else encode_name(name)
    if isinstance(name, str) and _is_packed_by_hiredis(given):
        return name.encode()
    return bytes(given.get_encoder().encode(name))


def _is_packed_by_hiredis(given: Any) -> bool:
    """Whether redis-py sends text as UTF-8, whatever encoding the client has."""
    theirs: Any = importlib.import_module("redis.connection")
    options = getattr(getattr(given, "connection_pool", None), "connection_kwargs", {})
    is_there = getattr(theirs, "HIREDIS_AVAILABLE", False) and hasattr(
        theirs, "HiredisRespSerializer"
    )
    return is_there and not hasattr(given, "__aenter__") and not options.get("command_packer")
