"""A client of Leasehold for whatever a program of redis-py has."""

import weakref
from typing import Any, List, Optional, Tuple
from urllib.parse import quote

from .._client import Client, connect

#: One client for each connection pool of redis-py, shared by all locks.
_by_pool: "weakref.WeakKeyDictionary[Any, Client]" = weakref.WeakKeyDictionary()


def client_of(given: Any) -> Client:
    """The client itself, or one of the server that a ``redis.Redis`` is for."""
    if isinstance(given, Client):
        return given
    pool = getattr(given, "connection_pool", None)
    if pool is None:
        raise TypeError(f"a client of Leasehold or a redis.Redis, not {type(given).__name__}")
    client = _by_pool.get(pool)
    # redis-py connects anew in a forked child, and so do we.
    if client is None or client._forked:
        client = _by_pool[pool] = connect(url_of(pool))
    return client


def url_of(pool: Any) -> str:
    """What a connection pool of redis-py connects to."""
    options = pool.connection_kwargs
    if not ("host" in options or "path" in options) or options.get("credential_provider"):
        raise TypeError(
            f"{type(pool).__name__} says no server and password of its own; give Lock a client of "
            f"leasehold.connect() instead"
        )
    user, password = options.get("username"), options.get("password")
    parameters: List[Tuple[str, Optional[str]]] = []
    if "path" in options:
        parameters += [("user", user), ("password", password), ("db", str(options.get("db") or 0))]
        base = "unix://" + quote(options["path"])
    else:
        tls = "SSL" in pool.connection_class.__name__
        host = options["host"]
        place = f"[{host}]" if ":" in host else quote(host)
        credentials = f"{_quoted(user or '')}:{_quoted(password)}@" if password else ""
        base = f"{'rediss' if tls else 'redis'}://{credentials}{place}:{options.get('port', 6379)}"
        base += f"/{options.get('db') or 0}"
        if tls:
            for ours, theirs in _TLS:
                parameters.append((ours, options.get(theirs)))
    given = [f"{name}={_quoted(value)}" for name, value in parameters if value]
    return base + ("?" + "&".join(given) if given else "")


_TLS = [("ca", "ssl_ca_certs"), ("cert", "ssl_certfile"), ("key", "ssl_keyfile")]


def _quoted(text: str) -> str:
    return quote(text, safe="")
