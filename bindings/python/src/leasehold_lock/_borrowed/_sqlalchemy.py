"""Settings of SQLAlchemy: an engine, for asyncio too, or a URL."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from . import _mysql, _postgres, _sqlite
from ._words import refused

#: The drivers whose parameters are known, of the dialects for which there is a store.
_DRIVERS = {
    "postgresql": ("psycopg", "psycopg_async", "psycopg2", "psycopg2cffi", "asyncpg"),
    "mysql": ("mysqldb", "pymysql", "aiomysql", "asyncmy"),
    "mariadb": ("mysqldb", "pymysql", "aiomysql", "asyncmy"),
    "sqlite": ("pysqlite", "aiosqlite"),
}
_INSTEAD = f"{_postgres.INSTEAD}, or mysql:// in its place"


def url_of_text(text: str) -> str:
    """The URL for a text that names a driver, as 'postgresql+psycopg://' does."""
    try:
        theirs: Any = importlib.import_module("sqlalchemy")
    except ImportError:
        scheme = text.partition("+")[0]
        raise refused(
            "the URL names a driver of SQLAlchemy, which is not installed", f"{scheme}://..."
        ) from None
    try:
        url = theirs.engine.make_url(text)
    except (theirs.exc.ArgumentError, ValueError):
        # Theirs repeats the URL, with its password.
        raise refused("SQLAlchemy cannot read the URL", _INSTEAD) from None
    return url_of(url)


def url_of(given: Any) -> str:
    """The URL for an engine, or for a URL of SQLAlchemy."""
    engine = getattr(given, "sync_engine", given)
    if hasattr(engine, "drivername"):
        dialect = _dialect(engine)
        _check_known(dialect, "the URL")
        arguments, parameters = dialect.create_connect_args(engine)
        return _of_driver(dialect, arguments, parameters, "the URL")
    if not hasattr(engine, "dialect") or not hasattr(engine, "pool"):
        kind = type(given)
        raise TypeError(
            f"connect() takes an Engine, an AsyncEngine or a URL of SQLAlchemy, not a {kind.__name__}"
        )
    _check_known(engine.dialect, "the engine")
    return _of_driver(engine.dialect, *_what_it_connects_with(engine), "the engine")


def _dialect(url: Any) -> Any:
    try:
        return url.get_dialect()()
    except importlib.import_module("sqlalchemy.exc").NoSuchModuleError:
        raise refused(
            f"SQLAlchemy has no dialect for the URL's {url.drivername}", _INSTEAD
        ) from None


def _what_it_connects_with(engine: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """What the driver is called with. `create_engine()` keeps it, `connect_args` included, in the function
    that the pool calls; who gives a function of his own has it in that."""
    creator = engine.pool._creator
    code = getattr(creator, "__code__", None)
    names = () if code is None else code.co_freevars
    if getattr(creator, "__module__", "") != "sqlalchemy.engine.create" or "cparams" not in names:
        raise refused(
            "the engine has a function of its own that connects (creator=, pool=)", _INSTEAD
        )
    if list(engine.dialect.dispatch.do_connect):
        raise refused(
            "the engine has a listener for 'do_connect', which connects as it likes", _INSTEAD
        )
    kept = dict(zip(names, (cell.cell_contents for cell in creator.__closure__)))
    return kept["cargs_tup"] if "cargs_tup" in kept else kept["cargs"], kept["cparams"]


def _check_known(dialect: Any, whose: str) -> None:
    name, driver = dialect.name, dialect.driver
    if name not in _DRIVERS:
        raise refused(f"{whose} is for {name}, of which Leasehold has no store", _INSTEAD)
    if driver not in _DRIVERS[name]:
        raise refused(f"{whose} is for the driver {driver}, whose settings are not known", _INSTEAD)


def _of_driver(
    dialect: Any, arguments: Sequence[Any], parameters: Mapping[str, Any], whose: str
) -> str:
    if dialect.name == "sqlite":
        return _sqlite.beside(arguments[0] if arguments else "", f"the database of {whose}")
    if dialect.name != "postgresql":
        checks_host = dialect.driver != "mysqldb"
        return _mysql.from_parameters(parameters, whose, checks_host)
    if dialect.driver == "asyncpg":
        return _postgres.from_asyncpg(parameters, whose)
    if arguments and arguments[0]:
        parameters = {**parameters, "dsn": arguments[0]}
    return _postgres.from_libpq(parameters, whose)
