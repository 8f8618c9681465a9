"""Settings of Django: an alias of DATABASES or CACHES."""

import importlib
from typing import Any, Optional

from . import _mysql, _postgres, _redis, _sqlite
from ._words import refused

_INSTEAD = "the URL, as in leasehold.connect('redis://user:password@host/0')"
_BOTH = ("DATABASES", "CACHES")


def url_of(alias: str) -> str:
    """The URL for what an alias names: 'default', or, where both have one, 'DATABASES.default' or
    'CACHES.default'."""
    if not isinstance(alias, str):
        raise TypeError(f"django is an alias, such as 'default', not {type(alias).__name__}")
    try:
        exceptions = importlib.import_module("django.core.exceptions")
    except ImportError:
        raise refused(f"django={alias!r} needs Django, which is not installed", _INSTEAD) from None
    try:
        return _url_of(alias)
    except exceptions.ImproperlyConfigured as error:
        raise refused(
            f"Django's settings cannot be used ({_first_sentence(error)})", _INSTEAD
        ) from error


def _first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0].partition("\n")[0].rstrip(".")


def _url_of(alias: str) -> str:
    setting, name = _split(alias)
    found = {one: _backend(one, name) for one in _BOTH if setting in (None, one)}
    stores = [one for one, backend in found.items() if backend and not _is_none(backend)]
    if len(stores) == 2:
        raise refused(
            f"both DATABASES and CACHES have {name!r}",
            f"django='DATABASES.{name}' or django='CACHES.{name}'",
        )
    if not stores:
        backend = next((backend for backend in found.values() if backend), None)
        where = f"{' and '.join(found)} of Django's settings"
        if backend is not None:
            raise refused(f"{name!r} in {where} uses {backend}, which keeps no locks", _INSTEAD)
        raise refused(f"{where} have no {name!r}", "an alias that is there, or " + _INSTEAD)
    return _of_database(name) if stores == ["DATABASES"] else _of_cache(name)


def _split(alias: str) -> tuple[Optional[str], str]:
    setting, dot, name = alias.partition(".")
    return (setting, name) if dot and setting in _BOTH else (None, alias)


def _backend(setting: str, name: str) -> Optional[str]:
    found = getattr(importlib.import_module("django.conf").settings, setting).get(name) or {}
    backend = found.get("ENGINE" if setting == "DATABASES" else "BACKEND")
    return str(backend) if backend else None


def _is_none(backend: str) -> bool:
    """Whether it keeps no locks, so that an alias cannot mean it: Django's caches but one, and no database."""
    if backend.startswith("django.core.cache.backends."):
        return ".redis." not in backend
    return backend == "django.db.backends.dummy"


def _of_database(name: str) -> str:
    # It connects to nothing yet. Its settings are those that Django uses, also while it tests.
    wrapper: Any = importlib.import_module("django.db").connections[name]
    whose = f"DATABASES[{name!r}]"
    for method in ("get_connection_params", "get_new_connection"):
        if not getattr(type(wrapper), method).__module__.startswith("django."):
            raise refused(f"the ENGINE of {whose} connects in a way of its own", _INSTEAD)
    parameters = dict(wrapper.get_connection_params())
    if wrapper.vendor == "postgresql":
        role = wrapper.settings_dict["OPTIONS"].get("assume_role")
        return _postgres.from_libpq(parameters, whose, role)
    if wrapper.vendor == "mysql":
        return _mysql.from_parameters(parameters, whose, checks_host=False)
    if wrapper.vendor == "sqlite":
        return _sqlite.beside(parameters["database"], f"the database of {whose}")
    raise refused(f"{whose} is for {wrapper.vendor}, of which Leasehold has no store", _INSTEAD)


def _of_cache(name: str) -> str:
    cache: Any = importlib.import_module("django.core.cache").caches[name]
    kind = type(cache)
    if kind.__module__.startswith("django.") and hasattr(cache, "_class"):
        return _redis.url_of(cache._cache.get_client(None, write=True))
    client: Any = getattr(cache, "client", None)
    if kind.__module__.startswith("django_redis.") and hasattr(client, "get_client"):
        if hasattr(client, "_ring"):
            raise refused(f"CACHES[{name!r}] spreads its keys over several servers", _INSTEAD)
        return _redis.url_of(client.get_client(write=True))
    raise refused(
        f"CACHES[{name!r}] uses {kind.__module__}.{kind.__name__}, which Leasehold does not know",
        _INSTEAD,
    )
