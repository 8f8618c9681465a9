"""Settings of redis-py: of its clients for one server, behind Sentinels or for a Cluster, for asyncio too."""

import importlib
import inspect
import os
from typing import Any, Optional

from .._errors import BadArgument
from ._words import Pairs, credentials, place, quoted, refused, with_parameters

INSTEAD = "leasehold.connect('redis://user:password@host:6379/0')"

#: What our URLs call the files that TLS needs.
_TLS = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
#: What we do in any case, and some versions of redis-py do not by default; 2 is ssl.CERT_REQUIRED.
_AS_WE_DO = {"ssl_cert_reqs": ("required", 2), "ssl_check_hostname": (True,)}
#: What connects in a way of its own, where somebody has set it.
_OWN_WAYS = ("credential_provider", "redis_connect_func")


def url_of(given: Any, service_name: Optional[str] = None) -> str:
    """The URL for a client, or for what Sentinels call `service_name`."""
    kind = type(given)
    is_async = any(one.__module__.startswith("redis.asyncio") for one in kind.__mro__)
    package = "redis.asyncio" if is_async else "redis"
    if isinstance(given, importlib.import_module(f"{package}.sentinel").Sentinel):
        if not isinstance(service_name, str) or not service_name:
            raise TypeError(
                "Sentinels know several masters: write connect(sentinel, service_name='mymaster')"
            )
        given = given.master_for(service_name)
    elif service_name is not None:
        raise TypeError(
            f"service_name goes with a Sentinel of redis-py, not with a {kind.__name__}"
        )
    theirs: Any = importlib.import_module(package)
    if is_pipeline(given):
        raise TypeError(
            "a pipeline only collects commands: write connect() with the client that made it"
        )
    if isinstance(given, theirs.RedisCluster):
        return url_of_source(given, package)
    if isinstance(given, theirs.Redis):
        return url_of_source(given.connection_pool, package)
    raise TypeError(
        f"connect() takes a Redis, a RedisCluster or a Sentinel of redis-py, not a {kind.__name__}"
    )


def is_pipeline(given: Any) -> bool:
    """Whether it keeps commands back. Its SET would be sent when the program executes it, if ever."""
    return hasattr(given, "command_stack") or type(given).__name__.endswith("Pipeline")


def url_of_source(source: Any, package: str = "redis") -> str:
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
        raise _own_way(kind.__name__)
    tls = kind is theirs.SSLConnection
    if kind is not theirs.UnixDomainSocketConnection:
        base = f"redis://{_credentials(options)}{_place(options)}/{options.get('db') or 0}"
        return _with(base, theirs, options, tls)
    parameters = [*_user(options, "user", "password"), ("db", str(options.get("db") or 0))]
    return _with("unix://" + _path(options.get("path", "")), theirs, options, tls, parameters)


def _cluster(cluster: Any, theirs: Any) -> str:
    nodes, options = cluster.nodes_manager, dict(cluster.nodes_manager.connection_kwargs)
    if getattr(nodes, "address_remap", None) is not None:
        raise _own_way("address_remap")
    # The client's own, which every server of a Cluster is to be told.
    if options.get("redis_connect_func") == getattr(cluster, "on_connect", None):
        options["redis_connect_func"] = getattr(cluster, "user_on_connect_func", None)
    kind = options.get("connection_class", theirs.Connection)
    if kind not in (theirs.Connection, theirs.SSLConnection):
        raise _own_way(kind.__name__)
    # One for asyncio has none before its first command.
    known = list(cluster.get_nodes()) or list(nodes.startup_nodes.values())
    places = [_place({"host": node.host, "port": node.port}) for node in known]
    tls = bool(options.get("ssl")) or kind is theirs.SSLConnection
    base = f"redis+cluster://{_credentials(options)}{','.join(places)}"
    return _with(base, theirs, options, tls)


def _sentinels(pool: Any, theirs: Any, package: str) -> str:
    manager, options = pool.sentinel_manager, pool.connection_kwargs
    if not pool.is_master:
        raise refused(
            "a lock is kept on the master, and this client is for replicas",
            "what master_for() returns",
        )
    for option in ("min_other_sentinels", "_force_master_ip"):
        if getattr(manager, option, None):
            raise _not_done(option.strip("_"))
    known = importlib.import_module(f"{package}.sentinel")
    if pool.connection_class not in (
        known.SentinelManagedConnection,
        known.SentinelManagedSSLConnection,
    ):
        raise _own_way(pool.connection_class.__name__)
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
        raise refused("its Sentinels want different credentials or certificates", INSTEAD)
    sentinel_tls, _, _, *files = told.pop()
    if tls and sentinel_tls and files != [options.get(name) for name in _TLS]:
        raise refused("its Sentinels and its servers want different certificates", INSTEAD)
    for one in pools:
        # Refuses what cannot be followed.
        url_of_source(one, package)
    places = ",".join(_place(one.connection_kwargs) for one in pools)
    user = _user(pools[0].connection_kwargs, "sentinel_user", "sentinel_password")
    base = f"redis+sentinel://{_credentials(options)}{places}"
    base += f"/{quoted(pool.service_name)}/{options.get('db') or 0}"
    if sentinel_tls and not tls:
        raise refused("its Sentinels speak TLS and its servers do not", INSTEAD)
    if tls and not sentinel_tls:
        user.append(("sentinel_tls", "no"))
    return _with(base, theirs, options, tls, user)


def _place(options: dict[str, Any]) -> str:
    return place(options.get("host", "localhost"), options.get("port", 6379))


def _path(path: str) -> str:
    return "/".join(quoted(part) for part in path.split("/"))


def _user(options: dict[str, Any], user: str, password: str) -> list[tuple[str, Optional[str]]]:
    name, secret = _text(options, "username"), _text(options, "password")
    # A user without a password is sent with an empty one.
    return [(user, name), (password, secret or ("" if name else None))]


def _credentials(options: dict[str, Any]) -> str:
    (_, user), (_, password) = _user(options, "", "")
    return credentials(user, password)


def _text(options: dict[str, Any], name: str) -> Optional[str]:
    value = options.get(name)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if value is not None and not isinstance(value, str):
        raise refused(f"its {name} is no text but a value of type {type(value).__name__}", INSTEAD)
    return value


def _with(
    base: str, theirs: Any, options: dict[str, Any], tls: bool, parameters: Pairs = ()
) -> str:
    """The URL with its parameters, or a refusal of what cannot be followed."""
    for option in _OWN_WAYS:
        if options.get(option) is not None:
            raise _own_way(option)
    base = base.replace("redis", "rediss", 1) if tls else base
    files = _tls(theirs.SSLConnection, options, _TLS if tls else {})
    return with_parameters(base, [*parameters, *files])


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
            raise _not_done(name)
    # A file with both can stand for the two.
    key = options.get("ssl_keyfile") or options.get("ssl_certfile")
    files = {**options, "ssl_keyfile": key}
    given = {ours: files.get(theirs) for theirs, ours in followed.items()}
    return [(ours, None if file is None else os.fspath(file)) for ours, file in given.items()]


def _own_way(what: str) -> BadArgument:
    return refused(f"{what} connects in a way of its own", INSTEAD)


def _not_done(option: str) -> BadArgument:
    return refused(f"Leasehold cannot do what {option} asks for", INSTEAD)
