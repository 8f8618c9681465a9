"""Settings that a program has already, in place of a URL: each is used against a real server, and what
cannot be borrowed is refused in one sentence."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable
from urllib.parse import urlsplit

import pymysql
import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
import sqlalchemy
import sqlalchemy.ext.asyncio
from conftest import Run
from server import Server, database

import leasehold_lock as leasehold
from leasehold_lock import _borrowed

#: It has no types for them.
sentinel_of: Any = redis.sentinel.Sentinel
async_sentinel_of: Any = redis.asyncio.sentinel.Sentinel


def connect(given: Any, **options: Any) -> leasehold.Client:
    """A busy machine may answer late."""
    return leasehold.connect(given, io_timeout=10, **options)


def exclude(borrowed: leasehold.Client, url: str, name: str) -> None:
    """Both clients have the same store, and the borrowed one works."""
    with borrowed, connect(url) as other:
        with borrowed.lock(name, ttl=10) as lease:
            assert lease.valid
            assert other.lock(name).try_acquire() is None
        with other.lock(name):
            assert borrowed.lock(name).try_acquire() is None


def refused(given: Any, why: str, instead: str = "write leasehold.connect") -> None:
    with pytest.raises(leasehold.BadArgument) as caught:
        leasehold.connect(given)
    told = str(caught.value)
    assert why in told and instead in told, told
    assert "secret" not in told and "\n" not in told


# ---- redis-py ----------------------------------------------------------------------------------


def test_a_client_of_redis_py(theirs: "redis.Redis", server: Server, name: str) -> None:
    exclude(connect(theirs), server.url, name)


def test_a_client_of_redis_py_for_asyncio(server: Server, name: str) -> None:
    exclude(connect(redis.asyncio.Redis(port=server.port)), server.url, name)


def test_database_user_and_password_of_redis_py(name: str) -> None:
    server = Server("--requirepass", "a @:/?#%")
    try:
        given = redis.Redis(port=server.port, db=3, username="default", password="a @:/?#%")
        exclude(
            connect(given),
            f"redis://default:a%20%40%3A%2F%3F%23%25@127.0.0.1:{server.port}/3",
            name,
        )
        with pytest.raises(leasehold.Auth):
            connect(redis.Redis(port=server.port)).ping()
    finally:
        server.stop()


def test_a_subclass_of_a_program(server: Server) -> None:
    class Mine(redis.Redis):
        pass

    connect(Mine(port=server.port)).ping()


def test_options_stand_beside_settings(
    theirs: "redis.Redis", server: Server, redis_client: leasehold.Client, name: str
) -> None:
    with leasehold.connect(theirs, prefix="shop:", io_timeout=10, label="mine") as client:
        with client.lock(name):
            assert server.get(f"shop:{name}") is not None
            assert redis_client.lock(f"shop:{name}").inspect().who


def test_a_unix_socket_of_redis_py(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a b.sock"
    server = Server("--unixsocket", str(path))
    try:
        exclude(connect(redis.Redis(unix_socket_path=str(path))), server.url, name)
    finally:
        server.stop()


def test_sentinels_and_the_name_of_a_master(sentinels: list[tuple[str, int]], name: str) -> None:
    places = ",".join(f"{host}:{port}" for host, port in sentinels)
    url = f"redis+sentinel://{places}/mymaster"
    for kind in (sentinel_of, async_sentinel_of):
        manager = kind(sentinels)
        exclude(connect(manager, service_name="mymaster"), url, name)
        exclude(connect(manager.master_for("mymaster")), url, name)
        refused(
            manager.slave_for("mymaster"), "kept on the master", "write what master_for() returns"
        )
        with pytest.raises(TypeError, match="write connect.sentinel, service_name='mymaster'.$"):
            leasehold.connect(manager)


def test_a_cluster(cluster_ports: list[int], name: str) -> None:
    place = ("127.0.0.1", cluster_ports[0])
    url = f"redis+cluster://127.0.0.1:{cluster_ports[0]}"
    with redis.RedisCluster(*place) as cluster:
        exclude(connect(cluster), url, name)
    # This one has not connected yet, and knows one server.
    exclude(connect(redis.asyncio.RedisCluster(*place)), url, name)
    # One server of it is no store: the error of the first lock says so.
    one = connect(redis.Redis(*place))
    with pytest.raises(leasehold.Error, match="redis\\+cluster://"):
        for number in range(20):
            one.lock(f"{name}:{number}").acquire().release()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and a certificate of its for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificates")
    subject = [
        "-subj",
        "/CN=test",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ]
    command = ["openssl", "req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", *subject]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    command = ["openssl", "req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-keyout", "key.pem"]
    command += ["-out", "cert.pem", "-addext", "subjectAltName=IP:127.0.0.1", *subject]
    command += ["-addext", "basicConstraints=critical,CA:false"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_tls_with_its_authority_and_certificates(certificates: Path, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    files = {one: str(certificates / f"{one}.pem") for one in ("ca", "cert", "key")}
    options = ["--tls-port", str(port), "--tls-ca-cert-file", files["ca"]]
    options += ["--tls-cert-file", files["cert"], "--tls-key-file", files["key"]]
    server = Server(*options)
    try:
        given = redis.Redis(
            "127.0.0.1",
            port,
            ssl=True,
            ssl_ca_certs=certificates / "ca.pem",  # type: ignore[arg-type]
            ssl_certfile=files["cert"],
            ssl_keyfile=files["key"],
        )
        assert given.ping()
        exclude(connect(given), server.url, name)
        # It is the given authority that is asked, and no other.
        with pytest.raises(leasehold.Tls):
            connect(redis.Redis("127.0.0.1", port, ssl=True)).ping()
    finally:
        server.stop()


@pytest.mark.parametrize(
    "options, why",
    [
        ({"ssl": True, "ssl_cert_reqs": "none"}, "ssl_cert_reqs"),
        ({"ssl": True, "ssl_ca_data": "secret"}, "ssl_ca_data"),
        ({"ssl": True, "ssl_password": "secret"}, "ssl_password"),
        ({"redis_connect_func": print}, "redis_connect_func"),
        (
            {"credential_provider": redis.UsernamePasswordCredentialProvider("u", "secret")},
            "credential_provider",
        ),
        ({"password": 5}, "its password is no text but a value of type int"),
    ],
)
def test_what_a_client_of_redis_py_does_in_a_way_of_its_own(
    options: dict[str, Any], why: str
) -> None:
    refused(redis.Redis(host="h", **options), why)
    # Some versions of the client for asyncio lack these.
    if not {"redis_connect_func", "ssl_password"} & options.keys():
        refused(redis.asyncio.Redis(host="h", **options), why)


def test_a_connection_class_of_ones_own() -> None:
    class Elsewhere(redis.Connection):
        pass

    pool: Any = redis.ConnectionPool(connection_class=Elsewhere)
    refused(redis.Redis(connection_pool=pool), "Elsewhere connects in a way of its own")


# ---- SQLAlchemy, and the drivers of databases --------------------------------------------------


def with_tables(kind: str) -> Iterator[str]:
    with database(kind) as url:
        environment = {**os.environ, "LEASEHOLD_URL": url}
        command = [sys.executable, "-m", "leasehold_lock", "init", "--apply"]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        yield url


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    yield from with_tables("postgres")


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    yield from with_tables("mysql")


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_an_engine_for_postgresql(postgres: str, driver: str, name: str) -> None:
    url = postgres.replace("postgres:", f"postgresql+{driver}:")
    made: Any
    if driver == "asyncpg":
        made = sqlalchemy.ext.asyncio.create_async_engine(url)
    elif driver == "psycopg":
        made = sqlalchemy.create_engine(url, connect_args={"application_name": "shop"})
        with made.connect() as connection:
            assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
    else:
        made = sqlalchemy.engine.make_url(url)
    exclude(connect(made), postgres, name)
    exclude(connect(url), postgres, name)


@pytest.mark.parametrize("driver", ["pymysql", "mysqldb", "aiomysql"])
def test_an_engine_for_mysql(mysql: str, driver: str, name: str) -> None:
    scheme = "mariadb" if driver == "mysqldb" else "mysql"
    url = mysql.replace("mysql:", f"{scheme}+{driver}:") + "?charset=utf8mb4"
    made: Any
    if driver == "aiomysql":
        made = sqlalchemy.ext.asyncio.create_async_engine(url)
    elif driver == "mysqldb":
        # mysqlclient needs a C compiler; PyMySQL has the same module.
        made = sqlalchemy.create_engine(url, module=pymysql)
    else:
        made = sqlalchemy.create_engine(url, connect_args={"read_timeout": 5})
        with made.connect() as connection:
            assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
    exclude(connect(made), mysql, name)


def test_an_engine_for_a_file_has_its_locks_in_a_file_beside(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a b.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE stock (sku INTEGER)"))
        # While a transaction of the program writes.
        exclude(connect(engine), f"sqlite:{file}.locks", name)
    exclude(connect(f"sqlite+pysqlite:///{file}"), f"sqlite:{file}.locks", name)


def test_a_connection_string_of_postgresql(postgres: str, name: str) -> None:
    parts = urlsplit(postgres)
    conninfo = (
        f"host={parts.hostname} port={parts.port} user={parts.username} dbname={parts.path[1:]}"
    )
    exclude(connect(conninfo), postgres, name)
    exclude(connect(f"{conninfo} password='a \\' b' keepalives=1"), postgres, name)


def test_parameters_of_pymysql(mysql: str, name: str) -> None:
    parts = urlsplit(mysql)
    given = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    given["database"] = parts.path[1:]
    pymysql.connect(**given).close()  # type: ignore[call-overload]
    exclude(connect(given), mysql, name)


def url_of(given: Any) -> str:
    return _borrowed.url_of_text(given) if isinstance(given, str) else _borrowed.url_of(given)


def pg(connect_args: Any = None, **options: Any) -> Any:
    url = options.pop("url", "postgresql+psycopg2://u:secret@h/d")
    return sqlalchemy.create_engine(url, connect_args=connect_args or {}, **options)


@pytest.mark.parametrize(
    "given, expected",
    [
        ("host=h user=u password='' dbname=d", "postgres://u:@h:5432/d"),
        (r"host = h user=u  password = a\ b", "postgres://u:a%20b@h:5432/"),
        ("host=a,b port=1,2 user=u", "postgres://u@a:1,b:2/"),
        ("host=::1,b port=7 user=u", "postgres://u@[::1]:7,b:7/"),
        ("host=/run/pg user=u target_session_attrs=any", "postgres://u@%2Frun%2Fpg:5432/"),
        (
            "host=h user=u sslmode=verify-full sslrootcert=/ca",
            "postgres://u@h:5432/?sslmode=verify-full&sslrootcert=%2Fca",
        ),
        (
            "postgresql+psycopg2://u@/d?host=a:1&host=b:2&options=-c%20search_path%3Dx",
            "postgres://u@a:1,b:2/d?options=-c%20search_path%3Dx",
        ),
        (
            "mysql+pymysql://u:p@h/d?ssl_ca=/ca",
            "mysql://u:p@h:3306/d?ssl-mode=verify_identity&ssl-ca=%2Fca",
        ),
        (
            "mysql+pymysql://u:p@h/d?ssl_ca=/ca&ssl_check_hostname=false",
            "mysql://u:p@h:3306/d?ssl-mode=verify_ca&ssl-ca=%2Fca",
        ),
        ("mysql+mysqldb://u@/d?unix_socket=/s", "mysql://u@/d?socket=%2Fs"),
        (
            {
                "host": "h",
                "user": "u",
                "passwd": "p",
                "db": "d",
                "ssl_mode": "VERIFY_CA",
                "ssl_ca": "/c",
            },
            "mysql://u:p@h:3306/d?ssl-mode=verify_ca&ssl-ca=%2Fc",
        ),
        (
            {"host": "h", "user": "u", "db": "d", "ssl": {"verify_mode": "none", "ca": "/c"}},
            "mysql://u@h:3306/d?ssl-mode=required",
        ),
        (
            {"host": "h", "user": "u", "db": "d", "ssl": True},
            "mysql://u@h:3306/d?ssl-mode=required",
        ),
        (
            {"host": "h", "user": "u", "db": "d", "ssl": {"ca": Path("/c"), "cert": "/x"}},
            "mysql://u@h:3306/d?ssl-mode=verify_identity&ssl-ca=%2Fc&ssl-cert=%2Fx&ssl-key=%2Fx",
        ),
        (
            {"host": "h", "user": "u", "db": "d", "ssl_disabled": True},
            "mysql://u@h:3306/d?ssl-mode=disabled",
        ),
    ],
)
def test_the_url_of_settings(given: Any, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    assert url_of(given) == expected
    # It is one that Leasehold can read; of TLS, it looks for the files.
    with contextlib.suppress(leasehold.Tls):
        leasehold.connect(given).close()


def test_the_url_of_what_is_given_beside_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    tls = {"sslmode": "require", "sslrootcert": "/ca"}
    expected = "postgres://u:secret@h:5432/d?sslmode=require&sslrootcert=%2Fca"
    assert url_of(pg(tls)) == expected
    settings = {"application_name": "x", "search_path": "a, b"}
    made: Any = sqlalchemy.ext.asyncio.create_async_engine(
        "postgresql+asyncpg://u@h/d", connect_args={"server_settings": settings, "ssl": True}
    )
    assert url_of(made) == (
        "postgres://u@h:5432/d?sslmode=verify-full&application_name=x&options=-c%20search_path%3Da%2C%5C%20b"
    )


def test_files_for_tls_that_libpq_finds_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql/root.crt").touch()
    assert url_of("host=h user=u sslmode=verify-full").endswith("%2F.postgresql%2Froot.crt")
    assert url_of("host=h user=u") == "postgres://u@h:5432/"


def with_a_listener() -> Any:
    engine = pg()
    sqlalchemy.event.listen(engine, "do_connect", lambda *_: None)
    return engine


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: pg(creator=lambda: None), "a function of its own that connects"),
        (with_a_listener, "'do_connect'"),
        (lambda: pg({"sslcrl": "/crl"}), "'sslcrl'"),
        (
            lambda: pg({"password": lambda: "secret"}),
            "password is no text but a value of type function",
        ),
        (lambda: pg({"connection_class": object}), "'connection_class'"),
        (lambda: pg(url="postgresql+psycopg2://u:secret@/d"), "names no host"),
        (lambda: pg(url="postgresql+psycopg2://h/d"), "names no user"),
        (
            lambda: sqlalchemy.engine.make_url("postgresql+pg8000://u:secret@h/d"),
            "the driver pg8000",
        ),
        (lambda: sqlalchemy.engine.make_url("oracle+cx_oracle://u:secret@h/d"), "oracle, of which"),
        (lambda: sqlalchemy.engine.make_url("postgresql+nonsense://u:secret@h/d"), "no dialect"),
        (lambda: "postgresql+psycopg://u:secret@h:port/d", "cannot read the URL"),
        (lambda: sqlalchemy.create_engine("sqlite://"), "is in memory"),
        (lambda: "sqlite+pysqlite:///file:x?mode=memory&uri=true", "is in memory"),
        (lambda: "sqlite+pysqlite:///file:x?uri=true", "is a URI of SQLite's own"),
        (lambda: "host=h user=u password=secret nonsense", "no list of name=value"),
        (lambda: "host=h user=u pasword=secret", "did you mean 'password'?"),
        (lambda: "host=h user=u hostaddr=10.0.0.1", "'hostaddr'"),
        (lambda: "host=h user=u passfile=/secret", "'passfile'"),
        (lambda: "service=shop", "'service'"),
        (lambda: "LEASEHOLD_URL=redis://h", "'LEASEHOLD_URL'"),
        (lambda: "host=a,b port=1,2,3 user=u", "one port for each host"),
        (lambda: "host=@x user=u", "a socket without a file"),
        (lambda: {"host": "h", "user": "u", "dbname": "d"}, "'dbname' is none of MySQL's"),
        (lambda: {"host": "h", "user": "u", "password": "secret"}, "names no database"),
        (lambda: {"host": "h", "database": "d"}, "names no user"),
        (lambda: {"user": "u", "database": "d"}, "neither a host nor a unix_socket"),
        (lambda: {"read_default_file": "/my.cnf"}, "read_default_file"),
        (lambda: {"host": "h", "user": "u", "database": "d", "colour": 1}, "'colour'"),
        (
            lambda: {"host": "h", "user": "u", "db": "d", "ssl": ssl.create_default_context()},
            "set up by hand (in an object of type SSLContext)",
        ),
        (
            lambda: {"host": "h", "user": "u", "db": "d", "ssl": {"capath": "/x"}},
            "'capath'",
        ),
    ],
)
def test_settings_that_cannot_be_borrowed(make: Callable[[], Any], why: str) -> None:
    refused(make(), why, "write ")


def test_an_engine_for_asyncio_whose_tls_is_set_up_by_hand() -> None:
    for options in ({"ssl": ssl.create_default_context()}, {"password": lambda: "secret"}):
        refused(
            sqlalchemy.ext.asyncio.create_async_engine(
                "postgresql+asyncpg://u@h/d", connect_args=options
            ),
            "set up by hand" if "ssl" in options else "password is no text",
        )


def test_encryption_by_chance_is_refused() -> None:
    for given in (
        "host=h user=u sslmode=prefer",
        {"host": "h", "user": "u", "db": "d", "ssl_mode": "PREFERRED"},
    ):
        with pytest.raises(leasehold.BadArgument, match="who can disturb the connection"):
            leasehold.connect(given)


@pytest.mark.parametrize(
    "given, why",
    [
        (5, "from a builtins.int: write a URL"),
        (redis.ConnectionPool(), "not a ConnectionPool"),
        (redis.Redis().pipeline(), "pipeline"),
        (redis.asyncio.Redis().pipeline(), "pipeline"),
        (sqlalchemy.MetaData(), "not a MetaData"),
    ],
)
def test_an_object_that_is_not_known(given: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        leasehold.connect(given)


def test_a_store_is_named_once() -> None:
    with pytest.raises(TypeError, match="service_name goes with a Sentinel"):
        leasehold.connect("redis://h", service_name="x")
    with pytest.raises(TypeError, match="service_name goes with a Sentinel.*not with a Redis"):
        leasehold.connect(redis.Redis(), service_name="x")
    with pytest.raises(TypeError, match="django= names the store"):
        leasehold.connect("redis://h", django="default")
    with pytest.raises(TypeError, match="an alias, such as 'default', not bool"):
        leasehold.connect(django=True)  # type: ignore[arg-type]


def test_no_library_is_imported_for_a_url(run: Run, server: Server) -> None:
    result = run(
        """
        import sys, leasehold_lock as leasehold
        leasehold.connect(sys.argv[1], io_timeout=10).ping()
        leasehold.connect({"host": "h", "user": "u", "db": "d"})
        leasehold.connect("host=h user=u")
        print({"redis", "sqlalchemy", "django"} & set(sys.modules))
        """,
        server.url,
    )
    assert (result.stdout, result.stderr) == ("set()\n", "")


def test_a_library_that_is_not_installed(run: Run) -> None:
    result = run(
        """
        import sys
        sys.modules["sqlalchemy"] = sys.modules["django"] = None
        import leasehold_lock as leasehold
        for given in [{"url": "postgresql+psycopg://u:secret@h/d"}, {"django": "default"}]:
            try:
                leasehold.connect(**given)
            except leasehold.BadArgument as error:
                print(error)
        """
    )
    assert result.stderr == ""
    first, second = result.stdout.splitlines()
    assert first == (
        "the URL names a driver of SQLAlchemy, which is not installed: write postgresql://..."
    )
    assert second.startswith("django='default' needs Django, which is not installed: write the URL")


# ---- Django ------------------------------------------------------------------------------------

#: A program with the settings of a Django project: argv has the URLs of a Redis, a PostgreSQL and a MySQL,
#: and a folder. What is not a store is beside them.
DJANGO = """
import sys
from urllib.parse import urlsplit
import pymysql
# What Django asks of mysqlclient.
pymysql.version_info = (2, 2, 1, "final", 0)
pymysql.install_as_MySQLdb()
import django
from django.conf import settings

_, redis_url, postgres_url, mysql_url, folder = sys.argv

def database(engine, url, **more):
    parts = urlsplit(url)
    return {"ENGINE": f"django.db.backends.{engine}", "HOST": parts.hostname, "PORT": parts.port,
            "USER": parts.username, "NAME": parts.path[1:], **more}

CORE, THEIRS = "django.core.cache.backends.", "django_redis.cache.RedisCache"
settings.configure(
    DATABASES={
        "default": database("postgresql", postgres_url, OPTIONS={"application_name": "shop"}),
        "role": database("postgresql", postgres_url, OPTIONS={"assume_role": "a b"}),
        "mysql": database("mysql", mysql_url, OPTIONS={"init_command": "SET sql_mode='STRICT_ALL_TABLES'"}),
        "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": folder + "/db.sqlite3"},
        "memory": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        "local": {"ENGINE": "django.db.backends.postgresql", "NAME": "x", "USER": "u"},
        "both": database("postgresql", postgres_url),
        "own": {"ENGINE": "own", "NAME": "x"},
        "oracle": {"ENGINE": "django.db.backends.nonsense", "NAME": "x"},
    },
    CACHES={
        "default": {"BACKEND": CORE + "locmem.LocMemCache"},
        "core": {"BACKEND": CORE + "redis.RedisCache", "LOCATION": [redis_url, "redis://replica"]},
        "theirs": {"BACKEND": THEIRS, "LOCATION": redis_url + "/0"},
        "both": {"BACKEND": THEIRS, "LOCATION": redis_url},
        "shards": {"BACKEND": THEIRS, "LOCATION": [redis_url],
                   "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"}},
        "provider": {"BACKEND": CORE + "redis.RedisCache", "LOCATION": redis_url,
                     "OPTIONS": {"redis_connect_func": print}},
        "mine": {"BACKEND": "own.Cache"},
    },
)
import types
own = sys.modules["own"] = types.ModuleType("own")
base = sys.modules["own.base"] = types.ModuleType("own.base")
own.base = base
from django.core.cache.backends.base import BaseCache
class Cache(BaseCache):
    __module__ = "own"
    def __init__(self, location, params): super().__init__(params)
own.Cache = Cache
from django.db.backends.sqlite3.base import DatabaseWrapper as Theirs
class DatabaseWrapper(Theirs):
    def get_new_connection(self, params): return super().get_new_connection(params)
DatabaseWrapper.get_new_connection.__module__ = "own.base"
base.DatabaseWrapper = DatabaseWrapper
import leasehold_lock as leasehold
"""


#: Prints the aliases that are borrowed and used, the options of one, and what is refused.
DJANGO_USES = """
beside = f"sqlite:{folder}/db.sqlite3.locks"
for alias, url in [("default", postgres_url), ("mysql", mysql_url), ("file", beside), ("core", redis_url),
                   ("theirs", redis_url), ("CACHES.both", redis_url), ("DATABASES.both", postgres_url)]:
    with leasehold.connect(django=alias, io_timeout=10) as client, leasehold.connect(url, io_timeout=10) as other:
        with client.lock(alias):
            assert other.lock(alias).try_acquire() is None, alias
        print(alias)
from leasehold_lock import _borrowed
print(_borrowed.url_of_alias("role").partition("?")[2])
for alias in ["memory", "local", "both", "own", "oracle", "shards", "provider", "mine", "none", "CACHES.default"]:
    try:
        leasehold.connect(django=alias)
    except leasehold.BadArgument as error:
        print(error)
from django.core.cache import caches
try:
    leasehold.connect(caches["default"])
except TypeError as error:
    print(error)
"""
BORROWED = ["default", "mysql", "file", "core", "theirs", "CACHES.both", "DATABASES.both"]
REFUSED = [
    "the database of DATABASES['memory'] is in memory, where no other process finds a lock",
    "DATABASES['local']: it names no host, and libpq's defaults are not read",
    "both DATABASES and CACHES have 'both': write django='DATABASES.both' or django='CACHES.both'",
    "the ENGINE of DATABASES['own'] connects in a way of its own",
    "Django's settings cannot be used ('django.db.backends.nonsense' isn't an available database backend",
    "CACHES['shards'] spreads its keys over several servers",
    "redis_connect_func connects in a way of its own",
    "CACHES['mine'] uses own.Cache, which Leasehold does not know",
    "DATABASES and CACHES of Django's settings have no 'none'",
    "'default' in CACHES of Django's settings uses django.core.cache.backends.locmem.LocMemCache",
    "not a LocMemCache of Django, but its alias: write django='default'",
]


def test_aliases_of_django(
    server: Server, postgres: str, mysql: str, tmp_path: Path, run: Run
) -> None:
    result = run(DJANGO + DJANGO_USES, server.url, postgres, mysql, str(tmp_path))
    assert result.returncode == 0, result.stderr
    told = result.stdout.splitlines()
    count = len(BORROWED)
    assert told[: count + 1] == [*BORROWED, "options=-c%20role%3Da%5C%20b"]
    refusals = told[count + 1 :]
    assert len(refusals) == len(REFUSED), refusals
    for line, why in zip(refusals, REFUSED):
        assert line.startswith(why) and ": write " in line, line


def test_django_without_settings(run: Run) -> None:
    result = run(
        """
        import leasehold_lock as leasehold
        try:
            leasehold.connect(django="default")
        except leasehold.BadArgument as error:
            print(error)
        """
    )
    assert result.stdout.startswith("Django's settings cannot be used (Requested setting"), result
