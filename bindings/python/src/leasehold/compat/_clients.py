"""A client of Leasehold for whatever a program of redis-py has."""

import importlib
import inspect
import weakref
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote

from .._client import Client, connect
from .._names import encode_name

#: One client for each connection pool of redis-py, shared by all locks.
_by_pool: "weakref.WeakKeyDictionary[Any, Client]" = weakref.WeakKeyDictionary()

#: What our URLs call the files that TLS needs.
_TLS = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
#: What we do in any case, and some versions of redis-py do not by default; 2 is ssl.CERT_REQUIRED.
_AS_WE_DO = {"ssl_cert_reqs": ("required", 2), "ssl_check_hostname": (True,)}
#: What connects in a way of its own, where somebody has set it.
_OWN_WAYS = ("credential_provider", "redis_connect_func")


def client_of(given: Any) -> Client:
    """The client itself, or one of the server that a ``redis.Redis`` is for."""
    if isinstance(given, Client):
        return given
    kind = type(given)
    pool = getattr(given, "connection_pool", None)
    if pool is None:
        raise TypeError(f"a client of Leasehold or a redis.Redis, not {kind.__name__}")
    if hasattr(kind, "__aenter__"):
        raise TypeError(
            f"{kind.__module__}.{kind.__name__} is a client for asyncio, and this lock is not; "
            f"there, use 'async with' and a lock of leasehold.connect()"
        )
    client = _by_pool.get(pool)
    # redis-py connects anew in a forked child, and so do we.
    if client is None or client._forked:
        client = _by_pool[pool] = connect(url_of(pool))
    return client


def key_of(given: Any, name: Any) -> bytes:
    """The key that redis-py has for a name, by the client's own encoding where it has one."""
    if isinstance(given, Client):
        numeric = isinstance(name, (int, float)) and not isinstance(name, bool)
        name = repr(name) if numeric else name
        return bytes(name) if isinstance(name, (bytearray, memoryview)) else encode_name(name)
    return bytes(given.connection_pool.get_encoder().encode(name))


def url_of(pool: Any) -> str:
    """What a connection pool of redis-py connects to."""
    # A program that has a pool has this.
    theirs: Any = importlib.import_module("redis.connection")
    kind, options = pool.connection_class, pool.connection_kwargs
    # A subclass may connect to anything.
    if kind not in (theirs.Connection, theirs.SSLConnection, theirs.UnixDomainSocketConnection):
        raise _not_to_be_followed(f"{kind.__name__} connects in a way of its own")
    for option in _OWN_WAYS:
        if options.get(option) is not None:
            raise _not_to_be_followed(f"{option} connects in a way of its own")
    tls = kind is theirs.SSLConnection
    parameters: List[Tuple[str, Optional[str]]] = []
    # A user without a password is sent with an empty one.
    user: Any = options.get("username")
    password: Any = options.get("password") or ("" if user else None)
    if kind is theirs.UnixDomainSocketConnection:
        parameters += [("user", user), ("password", password), ("db", str(options.get("db") or 0))]
        base = "unix://" + quote(options.get("path", ""))
    else:
        host = options.get("host", "localhost")
        place = f"[{host}]" if ":" in host else quote(host)
        credentials = f"{_quoted(user or '')}:{_quoted(password)}@" if user or password else ""
        base = f"{'rediss' if tls else 'redis'}://{credentials}{place}:{options.get('port', 6379)}"
        base += f"/{options.get('db') or 0}"
    parameters += _tls(theirs.SSLConnection, options, _TLS if tls else {})
    given = [f"{name}={_quoted(value)}" for name, value in parameters if value is not None]
    return base + ("?" + "&".join(given) if given else "")


def _tls(
    kind: Any, options: Dict[str, Any], followed: Dict[str, str]
) -> List[Tuple[str, Optional[str]]]:
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
