"""A client of Leasehold for whatever a program of redis-py has."""

import importlib
import inspect
import weakref
from collections.abc import Sequence
from typing import Any, Optional
from urllib.parse import quote

from .._client import Client, connect
from .._names import encode_name

#: One client for each connection pool of redis-py, or client of a Cluster, shared by all locks.
_by_source: "weakref.WeakKeyDictionary[Any, Client]" = weakref.WeakKeyDictionary()

#: What our URLs call the files that TLS needs.
_TLS = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
#: What we do in any case, and some versions of redis-py do not by default; 2 is ssl.CERT_REQUIRED.
_AS_WE_DO = {"ssl_cert_reqs": ("required", 2), "ssl_check_hostname": (True,)}
#: What connects in a way of its own, where somebody has set it.
_OWN_WAYS = ("credential_provider", "redis_connect_func")


def client_of(given: Any, in_loop: bool = False) -> Client:
    """The client itself, or one of the servers that a client of redis-py is for; one for asyncio, if
    the lock is."""
    if isinstance(given, Client):
        return given
    kind = type(given)
    if hasattr(given, "command_stack"):
        # Its SET would be sent when the program executes it, if ever, and "acquired" mean nothing.
        raise TypeError("a pipeline only collects commands; give Lock the client that made it")
    # A Cluster's client has a pool for each server.
    source = given if hasattr(given, "nodes_manager") else getattr(given, "connection_pool", None)
    if source is None:
        raise TypeError(f"a client of Leasehold or a redis.Redis, not {kind.__name__}")
    if hasattr(kind, "__aenter__") and not in_loop:
        raise TypeError(
            f"{kind.__module__}.{kind.__name__} is a client for asyncio, and this lock is not; "
            f"there, use leasehold.compat.aio.Lock"
        )
    if in_loop and not hasattr(kind, "__aenter__"):
        raise TypeError(
            f"{kind.__module__}.{kind.__name__} is no client for asyncio, and this lock is for one; "
            f"use leasehold.compat.Lock"
        )
    if in_loop and hasattr(given, "nodes_manager"):
        raise _not_to_be_followed("this lock cannot follow a RedisCluster for asyncio")
    client = _by_source.get(source)
    if client is None:
        client = _by_source[source] = connect(
            url_of(source, "redis.asyncio" if in_loop else "redis")
        )
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


def url_of(source: Any, package: str = "redis") -> str:
    """What a connection pool of redis-py, or a client of a Cluster, connects to."""
    # A program that has one of them has this.
    theirs: Any = importlib.import_module(f"{package}.connection")
    if hasattr(source, "nodes_manager"):
        return _cluster(source, theirs)
    if hasattr(source, "sentinel_manager"):
        return _sentinels(source, theirs, package)
    kind, options = source.connection_class, source.connection_kwargs
    # A subclass may connect to anything.
    if kind not in (theirs.Connection, theirs.SSLConnection, theirs.UnixDomainSocketConnection):
        raise _not_to_be_followed(f"{kind.__name__} connects in a way of its own")
    tls = kind is theirs.SSLConnection
    if kind is not theirs.UnixDomainSocketConnection:
        base = f"redis://{_credentials(options)}{_place(options)}/{options.get('db') or 0}"
        return _with(base, theirs, options, tls)
    parameters = [*_user(options, "user", "password"), ("db", str(options.get("db") or 0))]
    return _with("unix://" + quote(options.get("path", "")), theirs, options, tls, parameters)


def _cluster(cluster: Any, theirs: Any) -> str:
    nodes, options = cluster.nodes_manager, dict(cluster.nodes_manager.connection_kwargs)
    if getattr(nodes, "address_remap", None) is not None:
        raise _not_to_be_followed("address_remap connects in a way of its own")
    # The client's own, which every server of a Cluster is to be told.
    if options.get("redis_connect_func") == getattr(cluster, "on_connect", None):
        options["redis_connect_func"] = getattr(cluster, "user_on_connect_func", None)
    kind = options.get("connection_class", theirs.Connection)
    if kind not in (theirs.Connection, theirs.SSLConnection):
        raise _not_to_be_followed(f"{kind.__name__} connects in a way of its own")
    places = [_place({"host": node.host, "port": node.port}) for node in cluster.get_nodes()]
    tls = bool(options.get("ssl")) or kind is theirs.SSLConnection
    base = f"redis+cluster://{_credentials(options)}{','.join(places)}"
    return _with(base, theirs, options, tls)


def _sentinels(pool: Any, theirs: Any, package: str) -> str:
    manager, options = pool.sentinel_manager, pool.connection_kwargs
    if not pool.is_master:
        raise TypeError("a lock is kept on the master: give Lock what master_for() returns")
    for option in ("min_other_sentinels", "_force_master_ip"):
        if getattr(manager, option, None):
            raise _not_to_be_followed(f"this lock cannot do what {option.strip('_')} asks for")
    known = importlib.import_module(f"{package}.sentinel")
    if pool.connection_class not in (
        known.SentinelManagedConnection,
        known.SentinelManagedSSLConnection,
    ):
        raise _not_to_be_followed(f"{pool.connection_class.__name__} connects in a way of its own")
    tls = pool.connection_class is known.SentinelManagedSSLConnection
    pools = [sentinel.connection_pool for sentinel in manager.sentinels]
    # What they are told and how they are reached, which our URLs say once for all of them.
    told = {
        (
            one.connection_class is theirs.SSLConnection,
            *(one.connection_kwargs.get(name) for name in ("username", "password", *_TLS)),
        )
        for one in pools
    }
    if len(told) != 1:
        raise _not_to_be_followed("its Sentinels want different credentials or certificates")
    sentinel_tls, _, _, *files = told.pop()
    if tls and sentinel_tls and files != [options.get(name) for name in _TLS]:
        raise _not_to_be_followed("its Sentinels and its servers want different certificates")
    for one in pools:
        # Refuses what cannot be followed.
        url_of(one, package)
    places = ",".join(_place(one.connection_kwargs) for one in pools)
    user = _user(pools[0].connection_kwargs, "sentinel_user", "sentinel_password")
    base = f"redis+sentinel://{_credentials(options)}{places}"
    base += f"/{_quoted(pool.service_name)}/{options.get('db') or 0}"
    if sentinel_tls and not tls:
        raise _not_to_be_followed("its Sentinels speak TLS and its servers do not")
    if tls and not sentinel_tls:
        user.append(("sentinel_tls", "no"))
    return _with(base, theirs, options, tls, user)


def _place(options: dict[str, Any]) -> str:
    host = options.get("host", "localhost")
    return f"{f'[{host}]' if ':' in host else quote(host)}:{options.get('port', 6379)}"


def _user(options: dict[str, Any], user: str, password: str) -> list[tuple[str, Optional[str]]]:
    name = options.get("username")
    # A user without a password is sent with an empty one.
    return [(user, name), (password, options.get("password") or ("" if name else None))]


def _credentials(options: dict[str, Any]) -> str:
    (_, user), (_, password) = _user(options, "", "")
    return f"{_quoted(user or '')}:{_quoted(password or '')}@" if user or password else ""


def _with(
    base: str,
    theirs: Any,
    options: dict[str, Any],
    tls: bool,
    parameters: Sequence[tuple[str, Optional[str]]] = (),
) -> str:
    """The URL with its parameters, or a refusal of what cannot be followed."""
    for option in _OWN_WAYS:
        if options.get(option) is not None:
            raise _not_to_be_followed(f"{option} connects in a way of its own")
    parameters = [*parameters, *_tls(theirs.SSLConnection, options, _TLS if tls else {})]
    given = [f"{name}={_quoted(value)}" for name, value in parameters if value is not None]
    base = base.replace("redis", "rediss", 1) if tls else base
    return base + ("?" + "&".join(given) if given else "")


def _tls(
    kind: Any, options: dict[str, Any], followed: dict[str, str]
) -> list[tuple[str, Optional[str]]]:
    """The files that TLS needs. What asks for anything else is refused: we would trust more than
    the program does, or less."""
    for name, parameter in inspect.signature(kind).parameters.items():
        if not name.startswith("ssl_") or name in followed:
            continue
        harmless = (parameter.default, *_AS_WE_DO.get(name, ()))
        if options.get(name, parameter.default) not in harmless:
            raise _not_to_be_followed(f"this lock cannot do what {name} asks for")
    # A file with both can stand for the two.
    key = options.get("ssl_keyfile") or options.get("ssl_certfile")
    files = {**options, "ssl_keyfile": key}
    return [(ours, files.get(theirs)) for theirs, ours in followed.items()]


def _not_to_be_followed(why: str) -> TypeError:
    return TypeError(f"{why}; give Lock a client of leasehold.connect() instead")


def _quoted(text: str) -> str:
    return quote(text, safe="")
