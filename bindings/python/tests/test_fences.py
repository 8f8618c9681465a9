"""What examples/fences has lets a resource refuse a late writer, on the real ones: PostgreSQL,
MariaDB, SQLite, Redis, a file, and an S3 in Python."""

import importlib.util
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import boto3
import psycopg
import pymysql
import pytest
from moto.server import ThreadedMotoServer
from server import Server, database

import leasehold

FENCES = Path(__file__).resolve().parents[3] / "examples/fences"
Connect = Callable[[], Any]


def statements(name: str) -> List[str]:
    """Those of a file, and those that its comments show, without the update that is an example."""
    text = (FENCES / name).read_text()
    shown = re.findall(r"^--     (?!UPDATE|DELIMITER)(.*)$", text.replace(" //\n", ";\n"), flags=re.M)
    plain = re.sub(r"^--.*$", "", text, flags=re.M)
    # A body has semicolons of its own; each ends a line of its file with END or a table.
    parts = re.split(r";\n(?=\n|$)", plain.strip() + "\n") + re.split(r";\n(?=ALTER|CREATE)", "\n".join(shown))
    return [part.strip().rstrip(";") if "BEGIN SELECT" not in part else part for part in parts if part.strip()]


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mysql"])
def connect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """Connections to a database that has what the file for it says, and a table of shelves."""
    kind = request.param
    if kind == "sqlite":
        path = tmp_path_factory.mktemp("fences") / "stock.db"
        yield from prepared(kind, lambda: sqlite3.connect(path, timeout=30))
        return
    with database(kind) as url:
        where = re.fullmatch(r"\w+://(\w+)@([\d.]+):(\d+)/(\w+)", url)
        assert where, url
        user, host, port, name = where.groups()
        words: Dict[str, Any] = {"user": user, "host": host, "port": int(port)}
        if kind == "postgres":
            yield from prepared(kind, lambda: psycopg.connect(dbname=name, **words))
        else:
            yield from prepared(kind, lambda: pymysql.connect(database=name, **words))


def prepared(kind: str, connect: Connect) -> Iterator[Connect]:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE stock (sku INTEGER PRIMARY KEY, count INTEGER)")
        for statement in statements(f"{kind}.sql"):
            cursor.execute(statement)
        cursor.execute("INSERT INTO stock (sku, count, fence) VALUES (17, 20, 0)")
        connection.commit()
    yield connect


def test_a_row_refuses_a_smaller_fence(connect: Connect) -> None:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("UPDATE stock SET count = 16, fence = 1763920000000042 WHERE sku = 17")
        cursor.execute("UPDATE stock SET count = 15, fence = 1763920000000042 WHERE sku = 17")
        connection.commit()
        with pytest.raises(Exception) as refused:
            cursor.execute("UPDATE stock SET count = 9, fence = 1763920000000041 WHERE sku = 17")
        assert "late" in str(refused.value)
        connection.rollback()
        cursor.execute("SELECT count FROM stock WHERE sku = 17")
        assert cursor.fetchone()[0] == 15


def test_a_row_of_mysql_refuses_a_smaller_fence_whatever_the_modes_are(connect: Connect) -> None:
    with closing(connect()) as connection:
        if not isinstance(connection, pymysql.Connection):
            pytest.skip("strict modes are those of MySQL")
        cursor = connection.cursor()
        cursor.execute("SET sql_mode = ''")
        cursor.execute("DROP TRIGGER refuse_late_fence_of_stock")
        cursor.execute(statements("mysql.sql")[-1])
        cursor.execute("UPDATE stock SET count = 15, fence = 1763920000000042 WHERE sku = 17")
        connection.commit()
        for ignore in ("", "IGNORE"):
            for fence in ("1763920000000041", "NULL", "''"):
                with pytest.raises(pymysql.Error, match="late"):
                    cursor.execute(f"UPDATE {ignore} stock SET count = 9, fence = {fence} WHERE sku = 17")
                connection.rollback()
        cursor.execute("SELECT count, fence FROM stock WHERE sku = 17")
        assert cursor.fetchone() == (15, 1763920000000042)


def test_a_fence_that_is_compared_in_a_transaction_of_its_own_is_refused(connect: Connect) -> None:
    with closing(connect()) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        elif isinstance(connection, pymysql.Connection):
            connection.autocommit(True)
        else:
            connection.autocommit = True
        cursor = connection.cursor()
        for fence in (1, 2):
            with pytest.raises(leasehold.BadArgument, match="auto-commit"):
                leasehold.check_fence(cursor, "alone", fence)
        # Whoever begins the transaction by hand is safe.
        cursor.execute("BEGIN")
        leasehold.check_fence(cursor, "alone", 3)
        cursor.execute("COMMIT")


def test_django_compares_a_fence_within_atomic_alone(tmp_path: Path) -> None:
    program = f"""
import django, leasehold
from django.conf import settings
from django.db import connection, transaction

base = {{"ENGINE": "django.db.backends.sqlite3", "NAME": {str(tmp_path / "stock.db")!r}}}
settings.configure(DATABASES={{"default": base}})
django.setup()
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE leasehold_fences (name TEXT PRIMARY KEY, fence INTEGER, writes INTEGER)")
    try:
        leasehold.check_fence(cursor, "stock", 1)
    except leasehold.BadArgument as error:
        print(error)
    with transaction.atomic():
        leasehold.check_fence(cursor, "stock", 2)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "auto-commit" in ended.stdout


def test_a_transaction_refuses_a_smaller_fence(connect: Connect) -> None:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        for fence in (1763920000000041, 1763920000000042, 1763920000000042):
            leasehold.check_fence(cursor, "stock", fence)
            connection.commit()
        with pytest.raises(leasehold.Lost, match="1763920000000041 of 'stock' is late"):
            leasehold.check_fence(cursor, "stock", 1763920000000041)
        connection.rollback()
        leasehold.check_fence(cursor, "another", 7)
        with pytest.raises(leasehold.BadArgument):
            leasehold.check_fence(cursor, "stock", 0)


def test_of_many_writers_none_is_later_than_its_fence(connect: Connect) -> None:
    """Each notes its fence in the transaction that it was checked in: they only grow."""
    with closing(connect()) as connection:
        connection.cursor().execute("CREATE TABLE notes (id INTEGER, fence BIGINT)")
        leasehold.check_fence(connection.cursor(), "many", 1)
        connection.commit()

    def write(first: int) -> None:
        with closing(connect()) as connection:
            cursor = connection.cursor()
            for fence in range(first, 120, 4):
                try:
                    leasehold.check_fence(cursor, "many", fence)
                    cursor.execute(
                        "INSERT INTO notes SELECT COALESCE(MAX(id), 0) + 1, %d FROM notes" % fence
                    )
                    connection.commit()
                except leasehold.Lost:
                    connection.rollback()

    writers = [threading.Thread(target=write, args=(first,)) for first in range(2, 6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT fence FROM notes ORDER BY id")
        fences = [row[0] for row in cursor.fetchall()]
    assert fences == sorted(fences) and fences[-1] == 119


def test_a_redis_key_refuses_a_smaller_fence(server: Server) -> None:
    script = (FENCES / "redis.lua").read_text()

    def write(fence: str, value: str) -> bytes:
        return server.call("EVAL", script, "2", "{stock}", "{stock}:fence", fence, value)

    assert write("1763920000000042", "16").startswith(b"+OK")
    assert write("1763920000000042", "15").startswith(b"+OK")
    assert write("1763920000000041", "9").startswith(b"-LATE the fence 1763920000000041 is late")
    assert write("nonsense", "9").startswith(b"-LATE")
    assert server.get("{stock}") == b"15"


def test_a_file_refuses_a_smaller_fence(tmp_path: Path) -> None:
    file = tmp_path / "report"

    def write(fence: str, text: str) -> "subprocess.CompletedProcess[str]":
        command = [str(FENCES / "file.sh"), str(file), fence]
        return subprocess.run(command, input=text, capture_output=True, text=True)

    assert write("42", "one").returncode == 0
    assert write("42", "two").returncode == 0
    late = write("41", "late")
    assert late.returncode == 1 and "the fence 41 is late: 42 was here" in late.stderr
    assert write("x", "bad").returncode == 64
    assert file.read_text() == "two"
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["report", "report.fence", "report.lock"]
    assert (tmp_path / "report.fence").read_text() == "42\n"
    writers = [threading.Thread(target=write, args=(str(at), str(at))) for at in range(43, 63)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert file.read_text() == "62"
    # What a full disk left of a fence, and the next one behind it.
    for torn in ("17639200000000421763920", "", "4x", "42\n17639200000000421763920"):
        (tmp_path / "report.fence").write_text(torn)
        refused = write("3", "late")
        assert refused.returncode == 1 and "report.fence has no fence" in refused.stderr
    assert write("17639200000000421763920", "bad").returncode == 64
    assert file.read_text() == "62"


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "report"

    def mode(of: Path, umask: int, fence: int) -> int:
        command = [str(FENCES / "file.sh"), str(file), str(fence)]
        shell = ["sh", "-c", f'umask {umask:03o}; exec "$@"', "sh", *command]
        subprocess.run(shell, input="text", text=True, check=True)
        return stat.S_IMODE(of.stat().st_mode)

    assert mode(file, 0o022, 1) == 0o644
    file.chmod(0o640)
    assert mode(file, 0o077, 2) == 0o640
    assert mode(tmp_path / "report.fence", 0o002, 3) == 0o664


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="stock")
    yield client
    server.stop()


def test_an_object_refuses_a_smaller_fence(s3: Any) -> None:
    put = load("s3").put
    put(s3, "stock", "17", b"20", 41)
    put(s3, "stock", "17", b"16", 42)
    with pytest.raises(leasehold.Lost, match="41 is late: 42 was here"):
        put(s3, "stock", "17", b"9", 41)
    assert s3.get_object(Bucket="stock", Key="17")["Body"].read() == b"16"


def test_an_object_that_changes_between_the_look_and_the_write_is_looked_at_again(s3: Any) -> None:
    put = load("s3").put
    put(s3, "stock", "18", b"20", 41)

    class Overtaken:
        """Somebody with a larger fence writes after the first look."""

        put_object = s3.put_object

        def head_object(self, **words: Any) -> Any:
            found = s3.head_object(**words)
            if found["Metadata"]["fence"] == "41":
                put(s3, "stock", "18", b"newer", 43)
            return found

    with pytest.raises(leasehold.Lost):
        put(Overtaken(), "stock", "18", b"late", 42)
    assert s3.get_object(Bucket="stock", Key="18")["Body"].read() == b"newer"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FENCES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
