"""What examples/fences has lets a resource refuse a late writer, on the real ones: PostgreSQL,
MariaDB, SQLite, Redis, a file, and an S3 in Python."""

import importlib.util
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Callable

import boto3
import psycopg
import pymysql
import pytest
from moto.server import ThreadedMotoServer
from server import Server, database

import leasehold_lock as leasehold

FENCES = Path(__file__).resolve().parents[3] / "examples/fences"
Connect = Callable[[], Any]


def statements(name: str) -> list[str]:
    """Those of a file, and those that its comments show, without the update that is an example."""
    text = (FENCES / name).read_text()
    shown = re.findall(
        r"^--     (?!UPDATE|DELIMITER)(.*)$", text.replace(" //\n", ";\n"), flags=re.MULTILINE
    )
    plain = re.sub(r"^--.*$", "", text, flags=re.MULTILINE)
    # A body has semicolons of its own; each ends a line of its file with END or a table.
    parts = re.split(r";\n(?=\n|$)", plain.strip() + "\n") + re.split(
        r";\n(?=ALTER|CREATE)", "\n".join(shown)
    )
    return [
        part.strip().rstrip(";") if "BEGIN SELECT" not in part else part
        for part in parts
        if part.strip()
    ]


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mysql"])
def connect(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connect]:
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
        words: dict[str, Any] = {"user": user, "host": host, "port": int(port)}
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


def test_a_row_refuses_what_is_no_fence_whatever_the_modes_are(connect: Connect) -> None:
    with closing(connect()) as connection:
        cursor = connection.cursor()
        ways = ["UPDATE"]
        if isinstance(connection, pymysql.Connection):
            cursor.execute("SET sql_mode = ''")
            cursor.execute("DROP TRIGGER refuse_late_fence_of_stock")
            cursor.execute(statements("mysql.sql")[-1])
            ways.append("UPDATE IGNORE")
        elif isinstance(connection, sqlite3.Connection):
            ways += ["UPDATE OR IGNORE", "UPDATE OR REPLACE"]
        cursor.execute("UPDATE stock SET count = 15, fence = 1763920000000042 WHERE sku = 17")
        connection.commit()
        for way in ways:
            for fence in ("1763920000000041", "NULL", "''"):
                with pytest.raises(Exception, match="late|invalid input syntax"):
                    cursor.execute(f"{way} stock SET count = 9, fence = {fence} WHERE sku = 17")
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
import django, leasehold_lock as leasehold
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


@pytest.mark.parametrize(("fence", "passes"), [(43, True), (41, False)])
def test_of_two_that_begin_a_row_the_second_waits_and_is_compared(
    connect: Connect, fence: int, passes: bool
) -> None:
    name, passed = f"begun {fence}", []

    def check() -> None:
        with closing(connect()) as other:
            try:
                leasehold.check_fence(other.cursor(), name, fence)
                other.commit()
                passed.append(True)
            except leasehold.Lost:
                other.rollback()
                passed.append(False)

    with closing(connect()) as connection:
        leasehold.check_fence(connection.cursor(), name, 42)
        second = threading.Thread(target=check)
        second.start()
        second.join(0.3)
        assert second.is_alive()
        connection.commit()
        second.join(60)
    assert passed == [passes]


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
                        f"INSERT INTO notes SELECT COALESCE(MAX(id), 0) + 1, {fence} FROM notes"
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


#: 2**53 - 1, of 16 digits: no lease has a larger one.
LARGEST = 9007199254740991


def test_the_largest_fence_is_compared_as_any_other_in_a_database(connect: Connect) -> None:
    """As a number of the driver's, both ways."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO stock (sku, count, fence) VALUES (53, 0, 0)")
        mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"
        raise_it = f"UPDATE stock SET fence = {mark} WHERE sku = 53"
        for fence in (LARGEST - 1, LARGEST, LARGEST):
            cursor.execute(raise_it, (fence,))
            leasehold.check_fence(cursor, "largest", fence)
            connection.commit()
        cursor.execute("SELECT fence FROM stock WHERE sku = 53")
        assert cursor.fetchone()[0] == LARGEST
        with pytest.raises(Exception, match="late"):
            cursor.execute(raise_it, (LARGEST - 1,))
        connection.rollback()
        with pytest.raises(leasehold.Lost, match=f"{LARGEST - 1} of 'largest' is late"):
            leasehold.check_fence(cursor, "largest", LARGEST - 1)
        connection.rollback()
        for wrong in (LARGEST + 1, 2**63, 2**64):
            with pytest.raises(leasehold.BadArgument, match=f"{wrong} is no fence"):
                leasehold.check_fence(cursor, "largest", wrong)


def test_the_largest_fence_is_compared_as_any_other_elsewhere(
    server: Server, tmp_path: Path, s3: Any
) -> None:
    script, there, file = (FENCES / "redis.lua").read_text(), load("s3"), tmp_path / "report"

    def passes(fence: int) -> list[bool]:
        key = server.call("EVAL", script, "2", "{largest}", "{largest}:fence", str(fence), "16")
        command = [str(FENCES / "file.sh"), str(file), str(fence)]
        written = subprocess.run(command, input="16", capture_output=True, text=True)
        try:
            there.put(s3, "stock", "largest", b"16", fence)
        except leasehold.Lost:
            return [key.startswith(b"+OK"), written.returncode == 0, False]
        return [key.startswith(b"+OK"), written.returncode == 0, True]

    assert [passes(fence) for fence in (LARGEST - 1, LARGEST, LARGEST)] == [[True] * 3] * 3
    assert passes(LARGEST - 1) == [False] * 3
    assert server.get("{largest}:fence") == str(LARGEST).encode()


def test_a_redis_key_refuses_a_smaller_fence(server: Server) -> None:
    script = (FENCES / "redis.lua").read_text()

    def write(fence: str, value: str) -> bytes:
        return server.call("EVAL", script, "2", "{stock}", "{stock}:fence", fence, value)

    assert write("1763920000000042", "16").startswith(b"+OK")
    assert write("1763920000000042", "15").startswith(b"+OK")
    assert write("1763920000000041", "9").startswith(b"-LATE the fence 1763920000000041 is late")
    for fence in ("nonsense", "", "nan", "inf", "0x7fffffffffffff", "1e16", "9" * 17):
        assert write(fence, "9").startswith(b"-LATE"), fence
    assert server.get("{stock}") == b"15"
    for noted in ("nan", "torn"):
        server.call("SET", "{stock}:fence", noted)
        assert write("1763920000000043", "9").startswith(b"-LATE"), noted
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


def test_a_file_has_one_fence_by_all_of_its_names(tmp_path: Path) -> None:
    file, link, folder = tmp_path / "report", tmp_path / "links" / "latest", tmp_path / "folder"
    link.parent.mkdir()
    link.symlink_to(file)
    folder.mkdir()

    def write(to: Path, fence: int) -> int:
        command = [str(FENCES / "file.sh"), str(to), str(fence)]
        return subprocess.run(command, input=str(fence), text=True).returncode

    assert write(link, 42) == 0
    assert write(file, 41) == 1
    assert link.is_symlink() and file.read_text() == "42"
    assert write(folder, 42) != 0
    assert not list(folder.iterdir())


def test_a_file_that_was_written_is_on_disk(tmp_path: Path) -> None:
    """Notes what is synced and renamed: what was in between is what a crash may undo."""
    tools, notes = tmp_path / "tools", tmp_path / "notes"
    tools.mkdir()
    for name in ("sync", "mv"):
        note = f'for word; do last=$word; done; echo "{name} ${{last##*/}}" >>{notes}'
        (tools / name).write_text(f'#!/bin/sh\n{note}\nPATH=${{PATH#*:}}; exec {name} "$@"\n')
        (tools / name).chmod(0o755)
    folder = tmp_path / "folder"
    folder.mkdir()
    path = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run(
        [str(FENCES / "file.sh"), str(folder / "report"), "42"], input=b"x", env=path, check=True
    )
    steps = re.sub(r"report\.(?!fence)\w+", "new", notes.read_text()).splitlines()
    assert steps == [
        "sync new",
        "sync new",
        "mv report.fence",
        "sync folder",
        "mv report",
        "sync folder",
    ]


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
    there = load("s3")
    there.put(s3, "stock", "17", b"20", 41)
    there.put(s3, "stock", "17", b"fence 7\n16", 42)
    with pytest.raises(leasehold.Lost, match="41 is late: 42 was here"):
        there.put(s3, "stock", "17", b"9", 41)
    assert there.get(s3, "stock", "17") == b"fence 7\n16"
    for key, body in (("empty", b""), ("long", b"x" * 100_000)):
        s3.put_object(Bucket="stock", Key=key, Body=body)
        assert there.get(s3, "stock", key) == body
        there.put(s3, "stock", key, body, 42)
        assert there.get(s3, "stock", key) == body


@pytest.mark.parametrize(
    "before, newer", [(b"20", b"16"), (b"20", b"20"), (b"", b""), (None, b"20")]
)
def test_an_object_that_changes_between_the_look_and_the_write_is_looked_at_again(
    s3: Any, before: Any, newer: bytes
) -> None:
    there, key = load("s3"), f"{before!r} {newer!r}"
    if before is not None:
        there.put(s3, "stock", key, before, 41)

    class Overtaken:
        """Somebody with a larger fence writes after the first look, the same perhaps."""

        put_object = s3.put_object
        looks = 0

        def get_object(self, **words: Any) -> Any:
            self.looks += 1
            try:
                return s3.get_object(**words)
            finally:
                if self.looks == 1:
                    there.put(s3, "stock", key, newer, 43)

    with pytest.raises(leasehold.Lost, match="42 is late: 43 was here"):
        there.put(Overtaken(), "stock", key, b"late", 42)
    assert there.get(s3, "stock", key) == newer


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FENCES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
