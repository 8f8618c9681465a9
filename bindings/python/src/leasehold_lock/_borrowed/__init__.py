"""Settings that a program has already, as URLs: what `leasehold.connect()` takes beside those.

Borrowed are addresses, database, user, password, and the files and checks of TLS; never a connection.
What cannot be done in the same way is refused. A library is imported only if an object of its is given,
or a text that only it reads.
"""

import re
from collections.abc import Mapping
from typing import Any, Optional, Protocol, Union

#: Of a text that is no URL: a word and '='.
_CONNINFO = re.compile(r"\s*[A-Za-z_]\w*\s*=")
#: What a URL of SQLAlchemy begins with, if it is for one of our stores and names a driver.
_SQLALCHEMY = ("postgresql+", "postgres+", "mysql+", "mariadb+", "sqlite+")


class RedisClient(Protocol):
    """A ``redis.Redis`` or a ``redis.asyncio.Redis``."""

    @property
    def connection_pool(self) -> Any: ...


class RedisCluster(Protocol):
    """A ``RedisCluster``, for asyncio too."""

    @property
    def nodes_manager(self) -> Any: ...


class RedisSentinel(Protocol):
    """A ``Sentinel``, for asyncio too."""

    @property
    def sentinels(self) -> Any: ...


class SqlEngine(Protocol):
    """SQLAlchemy's ``Engine`` or ``AsyncEngine``."""

    @property
    def dialect(self) -> Any: ...


class SqlUrl(Protocol):
    """SQLAlchemy's ``URL``."""

    @property
    def drivername(self) -> Any: ...


Borrowed = Union[RedisClient, RedisCluster, RedisSentinel, SqlEngine, SqlUrl, Mapping[str, Any]]


# A reader is imported when something comes that it reads: few programs need more than one.


def url_of(given: object, service_name: Optional[str] = None) -> str:
    """The URL for an object of another library, or for the parameters of a MySQL driver."""
    packages = [kind.__module__.partition(".")[0] for kind in type(given).__mro__]
    if "redis" in packages:
        from . import _redis

        return _redis.url_of(given, service_name)
    if service_name is not None:
        raise TypeError("service_name goes with a Sentinel of redis-py")
    if "sqlalchemy" in packages:
        from . import _sqlalchemy

        return _sqlalchemy.url_of(given)
    if isinstance(given, Mapping):
        from . import _mysql

        return _mysql.from_mapping(given)
    kind = type(given)
    if packages[0] == "django":
        raise TypeError(f"not a {kind.__name__} of Django, but its alias: write django='default'")
    raise TypeError(
        f"connect() cannot read settings from a {kind.__module__}.{kind.__qualname__}: write a URL, as in "
        f"leasehold.connect('redis://host')"
    )


def url_of_text(text: str) -> str:
    """A URL as it is, or the one for a connection string of libpq or a URL of SQLAlchemy."""
    if _CONNINFO.match(text):
        from . import _postgres

        return _postgres.from_conninfo(text)
    if text.startswith(_SQLALCHEMY):
        from . import _sqlalchemy

        return _sqlalchemy.url_of_text(text)
    return text


def url_of_alias(alias: str) -> str:
    """The URL for an alias of Django's DATABASES or CACHES."""
    from . import _django

    return _django.url_of(alias)
