"""Settings of PostgreSQL's drivers: libpq's parameters, as text or one by one, and asyncpg's."""

import os
import re
from collections.abc import Mapping
from typing import Any, Optional

from ._words import Parameters, credentials, place, quoted, with_parameters

INSTEAD = "leasehold.connect('postgres://user:password@host/database')"

_PAIR = re.compile(
    r"\s*([A-Za-z_]\w*)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)(?:[^\s\\]|\\.)*))(?=\s|$)",
    re.DOTALL,
)

#: Our URLs have them too, with the same meaning.
_SAME = (
    "channel_binding",
    "application_name",
    "fallback_application_name",
    "connect_timeout",
    "gssencmode",
    "synchronous_commit",
)
#: Of libpq's sockets, and of what its callers make of results.
_OF_THE_DRIVER = (
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "client_encoding",
    "load_balance_hosts",
    "autocommit",
    "context",
    "row_factory",
    "cursor_factory",
    "prepare_threshold",
    "async",
    "async_",
    # SQLAlchemy's.
    "use_native_hstore",
)
_OF_ASYNCPG = (
    "loop",
    "timeout",
    "command_timeout",
    "statement_cache_size",
    "max_cached_statement_lifetime",
    "max_cacheable_statement_size",
    "record_class",
    # SQLAlchemy's.
    "prepared_statement_cache_size",
    "prepared_statement_name_func",
)


def from_conninfo(text: str) -> str:
    """The URL for a connection string of libpq."""
    return from_libpq(_parsed(text), "the connection string")


def _parsed(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    end = 0
    for pair in _PAIR.finditer(text):
        if pair.start() != end:
            break
        name, in_quotes, plain = pair.groups()
        found[name] = re.sub(
            r"\\(.)", r"\1", in_quotes if plain is None else plain, flags=re.DOTALL
        )
        end = pair.end()
    if text[end:].strip():
        raise Parameters({}, "the connection string", INSTEAD).refused(
            "it is no list of name=value (a value with spaces stands in single quotes)"
        )
    return found


def from_libpq(given: Mapping[str, Any], whose: str, role: Optional[str] = None) -> str:
    """The URL for parameters of libpq, as psycopg and psycopg2 are called with them. `role` is what the
    driver's caller sets for each session."""
    known = Parameters(given, whose, INSTEAD)
    dsn = known.text("dsn", "conninfo")
    if dsn:
        return from_libpq({**_parsed(dsn), **given, "dsn": None, "conninfo": None}, whose, role)
    hosts, ports = known.text("host"), known.take("port")
    user, password, name = (
        known.text("user"),
        known.text("password"),
        known.text("dbname", "database"),
    )
    pairs = [*_tls(known), *((one, _plain(known, one)) for one in _SAME)]
    options = [_plain(known, "options"), None if role is None else f"-c role={_escaped(role)}"]
    pairs.append(("options", " ".join(filter(None, options)) or None))
    target = known.text("target_session_attrs")
    pairs.append(("target_session_attrs", None if target == "any" else target))
    known.drop(_OF_THE_DRIVER)
    known.finish()
    places = _places(known, hosts, ports)
    if not user:
        raise known.refused("it names no user, and libpq's defaults are not read")
    base = f"postgres://{credentials(user, password)}{places}/{quoted(name or '')}"
    return with_parameters(base, pairs)


def _plain(known: Parameters, name: str) -> Optional[str]:
    value = known.take(name)
    return None if value is None or value == "" else str(value)


def _places(known: Parameters, hosts: Optional[str], ports: Any) -> str:
    if not hosts:
        raise known.refused("it names no host, and libpq's defaults are not read")
    each = hosts.split(",")
    numbers = [number or "5432" for number in str(ports or "5432").split(",")]
    if len(numbers) == 1:
        numbers *= len(each)
    if len(numbers) != len(each) or not all(each):
        raise known.refused("it has not one port for each host")
    if any(host.startswith("@") for host in each):
        raise known.refused("it names a socket without a file")
    return ",".join(place(host, number) for host, number in zip(each, numbers))


def _tls(known: Parameters) -> list[tuple[str, Optional[str]]]:
    names = ("sslrootcert", "sslcert", "sslkey")
    mode, files = known.text("sslmode"), {name: known.text(name) or None for name in names}
    if mode in ("require", "verify-ca", "verify-full"):
        # Where libpq and asyncpg look for those that nobody names.
        for name, usual in zip(names, ("root.crt", "postgresql.crt", "postgresql.key")):
            path = os.path.expanduser(f"~/.postgresql/{usual}")
            if files[name] is None and os.path.exists(path):
                files[name] = path
    return [("sslmode", mode or None), *files.items()]


def _escaped(value: object) -> str:
    """A value in `options`, which is split at spaces."""
    return re.sub(r"([\\\s])", r"\\\1", str(value))


def from_asyncpg(given: Mapping[str, Any], whose: str) -> str:
    """The URL for what `asyncpg.connect()` is called with."""
    known = Parameters(given, whose, INSTEAD)
    libpq: dict[str, Any] = {name: known.take(name) for name in ("user", "password")}
    libpq["dbname"] = known.take("database")
    for name in ("host", "port"):
        value = known.take(name)
        several = isinstance(value, (list, tuple))
        libpq[name] = ",".join(str(one) for one in value) if several else value
    libpq["sslmode"] = _asyncpg_tls(known, known.take("ssl"))
    settings = dict(known.take("server_settings") or {})
    libpq["application_name"] = settings.pop("application_name", None)
    options = [f"-c {name}={_escaped(value)}" for name, value in settings.items()]
    libpq["options"] = " ".join(options) or None
    target = known.take("target_session_attrs")
    libpq["target_session_attrs"] = getattr(target, "value", target)
    known.drop(_OF_ASYNCPG)
    known.finish()
    return from_libpq(libpq, whose)


def _asyncpg_tls(known: Parameters, tls: Any) -> Optional[str]:
    """As one word."""
    if tls is None or isinstance(tls, str):
        return tls
    if isinstance(tls, bool):
        return "verify-full" if tls else "disable"
    raise known.refused(f"its TLS is set up by hand (in an object of type {type(tls).__name__})")
