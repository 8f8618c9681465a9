"""The programs of the guides, run by the servers that they are for: Celery's prefork pool,
gunicorn with --preload, and Django's development server. Each has one client, opened and used
before the fork."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Until
from server import Server

GUIDES = Path(__file__).resolve().parents[3] / "docs/how-to"
PAGES = [
    "gunicorn-celery-spring-django.md",
    "metrics-and-traces.md",
    "schema-migration.md",
    "decorate-a-function.md",
]

#: What the guides take as given.
PROJECT = {
    "shop/__init__.py": "from shop.celery import app",
    "shop/settings.py": """
        SECRET_KEY, DEBUG, ALLOWED_HOSTS = "none", True, ["*"]
        INSTALLED_APPS, ROOT_URLCONF, USE_TZ = ["shop"], "shop.urls", True
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
    """,
    "shop/urls.py": """
        from django.urls import path
        from shop.orders import ship
        from shop.views import charge
        urlpatterns = [path("charge", charge), path("orders/<int:order>/ship", ship)]
    """,
    "shop/wsgi.py": """
        import os
        from django.core.wsgi import get_wsgi_application
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
        application = get_wsgi_application()
        import shop.urls
    """,
    "shop/celery.py": """
        import os
        from celery import Celery
        app = Celery("shop", broker=os.environ["BROKER"], include=["shop.tasks", "shop.jobs", "shop.reports"])
    """,
    "shop/stock.py": """
        import os, time
        from pathlib import Path
        from shop.locks import client
        with client.lock("at the start"):
            started_in = os.getpid()

        def note(what, fence):
            marker = Path(what + ".in-progress")
            marker.touch(exist_ok=False)  # fails if another process is at it
            time.sleep(0.05)
            marker.unlink()
            with open(what, "a") as file:
                print(fence, os.getpid(), started_in, file=file)

        def restock(sku, fence): note(f"restock-{sku}", fence)
        def ship(order, fence):
            if order == 99:
                raise ValueError("no such order")
            with open("shipping", "a") as file:
                print(os.getpid(), file=file)
            while Path("slow").exists():
                time.sleep(0.05)
            note("ship", fence)
        def recount(sku, fence): note(f"recount-{sku}", fence)
        def report(sku, fence): note(f"report-{sku}", fence)
        def nightly(fence): note("nightly", fence)
        def charge(key, fence):
            with open("begun", "a") as file:
                print(os.getpid(), file=file)
            while Path("slow").exists():
                time.sleep(0.05)
            note("charge", fence)
            Path(f"{key}.charged").touch()
        def is_charged(key): return Path(f"{key}.charged").exists()
        def parts(shop): return range(2)
        def reindex(part, fence, stop):
            with open("begun", "a") as file:
                print(os.getpid(), file=file)
            while Path("slow").exists() and not stop.wait(0.05):
                pass
            if not stop.is_set():
                note("reindex", fence)
    """,
    "manage.py": """
        import os, sys
        from django.core.management import execute_from_command_line
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
        execute_from_command_line(sys.argv)
    """,
    "shop/migrations/__init__.py": "",
    "shop/migrations/0001_shelf.py": """
        from django.db import migrations
        from shop import stock

        def note(apps, editor):
            stock.note("migration", 1)

        class Migration(migrations.Migration):
            atomic = False
            operations = [
                migrations.RunPython(note),
                migrations.RunSQL("CREATE TABLE shelf (sku INTEGER)"),
            ]
    """,
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
}


def programs() -> dict[str, str]:
    """The programs of the pages, by their files."""
    text = "".join((GUIDES / page).read_text() for page in PAGES)
    blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return dict(blocks)


class Project:
    """A folder with the programs in it."""

    def __init__(self, folder: Path, url: str, broker: str) -> None:
        self.folder = folder
        own = {"LEASEHOLD_URL": url, "BROKER": broker, "PYTHONUNBUFFERED": "1"}
        self.environment = {**os.environ, **own}
        for path, text in {**PROJECT, **programs()}.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(
                re.sub(r"^        ", "", text, flags=re.MULTILINE) if path in PROJECT else text
            )
        self._programs: list[subprocess.Popen[str]] = []

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """Starts a program of this Python's, which writes into `log`."""
        with open(self.folder / "log", "a") as log:
            program = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._programs.append(program)
        return program

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def lines(self, what: str) -> list[list[int]]:
        """Of each time that it was done: fence, process, and the one that imported the project."""
        path = self.folder / what
        if not path.exists():
            return []
        return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]

    def stop(self) -> None:
        for program in self._programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()


@pytest.fixture(params=["redis", "sqlite"])
def project(
    request: pytest.FixtureRequest, own_server: Server, tmp_path: Path
) -> Iterator[Project]:
    """The store is its own, since the names of the locks are those of the page."""
    store = own_server.url if request.param == "redis" else f"sqlite://{tmp_path}/locks.db"
    # Queues are in another database than locks.
    made = Project(tmp_path, store + "?io_timeout=10s", own_server.url + "/1")
    yield made
    made.stop()
    print(made.log() if (tmp_path / "log").exists() else "")  # Shown where the test has failed.


def charge(address: str, key: str) -> int:
    """The status of the answer; 0 while nobody answers."""
    request = urllib.request.Request(address + "/charge", headers={"Idempotency-Key": key})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def reject_duplicates(address: str) -> None:
    """However many of them come at once."""
    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(lambda _: charge(address, "one order"), range(6)))
    assert sorted(statuses) == [200] + [409] * 5
    assert charge(address, "one order") == 409


def test_a_celery_task_runs_on_one_worker_at_a_time(project: Project, until: Until) -> None:
    """One that takes its lock by itself, a decorated one, and one of a class for that."""
    project.start("-m", "celery", "-A", "shop", "worker", "--concurrency", "3")
    for _ in range(2):  # Two programs may queue them.
        project.start(
            "-c",
            "from shop.jobs import restock\n"
            "from shop.reports import report\n"
            "from shop.tasks import recount\n"
            "for _ in range(3): recount.delay(17); restock.delay(17); report.delay(17)",
        )
    for what in ("recount-17", "restock-17", "report-17"):
        until(lambda what=what: len(project.lines(what)) == 6, 120)
        done = project.lines(what)
        fences = [fence for fence, _, _ in done]
        assert fences == sorted(set(fences)), project.log()
        # All of them in children of one parent, which had used the client.
        assert len({parent for _, _, parent in done}) == 1
        assert all(child != parent for _, child, parent in done)


def test_a_celery_task_is_done_once_though_its_worker_is_killed(
    project: Project, until: Until
) -> None:
    (project.folder / "slow").touch()
    project.start("-m", "celery", "-A", "shop", "worker", "--concurrency", "3", "-l", "INFO")
    project.start("-c", "from shop.tasks import charge; [charge.delay(17) for _ in range(3)]")
    begun = project.folder / "begun"
    until(lambda: begun.exists() and begun.read_text().endswith("\n"), 120)
    os.kill(int(begun.read_text()), signal.SIGKILL)
    (project.folder / "slow").unlink()
    until(lambda: project.log().count("succeeded in") == 3, 120)
    assert len(project.lines("charge")) == 1, project.log()
    assert len(begun.read_text().splitlines()) == 2


def test_a_celery_task_that_has_lost_its_lease_stops_and_is_repeated_soon(
    project: Project, until: Until
) -> None:
    (project.folder / "slow").touch()
    project.start("-m", "celery", "-A", "shop", "worker", "--concurrency", "3", "-l", "INFO")
    project.start("-c", "from shop.tasks import reindex; reindex.delay(17)")
    begun = project.folder / "begun"
    until(lambda: begun.exists() and begun.read_text().endswith("\n"), 120)
    project.start(
        "-c", "from shop.locks import client; client.lock('reindex:17').break_held('ada')"
    )
    until(lambda: "retry: Retry in 1s: Lost" in project.log(), 60)
    (project.folder / "slow").unlink()
    until(lambda: project.log().count("succeeded in") == 1, 60)
    first, second = [fence for fence, _, _ in project.lines("reindex")]
    assert first == second, project.log()


#: Of what does not depend on the store.
on_redis = pytest.mark.parametrize("project", ["redis"], indirect=True)


@on_redis
def test_a_decorated_view_and_command_reject_what_is_under_way(project: Project) -> None:
    (project.folder / "slow").touch()
    program = project.start(
        "-c",
        "import os, threading, time, django\n"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'shop.settings'\n"
        "django.setup()\n"
        "from django.core.management import CommandError, call_command\n"
        "from django.test import Client\n"
        "from shop.locks import client\n"
        "def ship(order):\n"
        "    reply = Client(raise_request_exception=False).get(f'/orders/{order}/ship')\n"
        "    print('status', order, reply.status_code)\n"
        "first = threading.Thread(target=ship, args=(17,))\n"
        "first.start()\n"
        "while not os.path.exists('shipping'): time.sleep(0.01)\n"
        "ship(17)\n"
        "ship(99); ship(99)\n"
        "os.unlink('slow')\n"
        "first.join()\n"
        "ship(17)\n"
        "call_command('recount', 'b7')\n"
        "with client.lock('recount:b7'):\n"
        "    try: call_command('recount', 'b7')\n"
        "    except CommandError as error: print('status', error)\n",
    )
    assert program.wait(120) == 0, project.log()
    said = [line for line in project.log().splitlines() if line.startswith("status")]
    assert said == [
        "status 17 409",
        # The function's own error releases the lock: the second one comes as far as the first.
        "status 99 500",
        "status 99 500",
        "status 17 200",
        "status 17 200",
        "status it runs on another node",
    ]
    assert len(project.lines("recount-b7")) == 1


def test_gunicorn_with_preload_rejects_duplicates(project: Project, until: Until) -> None:
    options = ["--preload", "--workers", "2", "--bind", "127.0.0.1:0"]
    project.start("-m", "gunicorn", *options, "shop.wsgi")
    address = until(lambda: re.search(r"http://127\.0\.0\.1:[1-9]\d*", project.log()), 120).group()
    until(lambda: charge(address, "the first") != 0, 120)
    reject_duplicates(address)
    orders = iter(range(10_000))

    def both_workers() -> bool:
        assert charge(address, f"order {next(orders)}") == 200, project.log()
        return len({child for _, child, _ in project.lines("charge")}) == 2

    until(both_workers, 120)
    assert all(child != parent for _, child, parent in project.lines("charge"))


def test_the_development_server_rejects_duplicates(project: Project, until: Until) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    project.start("manage.py", "runserver", f"127.0.0.1:{port}")
    address = f"http://127.0.0.1:{port}"
    until(lambda: charge(address, "the first") != 0, 120)
    reject_duplicates(address)


def test_a_management_command_runs_on_one_node(project: Project) -> None:
    for program in [project.start("manage.py", "nightly") for _ in range(3)]:
        assert program.wait(120) == 0, project.log()
    assert len(project.lines("nightly")) == 1
    assert project.log().count("it runs on another node, or ran within the hour") == 2


def test_a_migration_runs_on_one_node(project: Project) -> None:
    for program in [project.start("manage.py", "migrate") for _ in range(3)]:
        assert program.wait(120) == 0, project.log()
    assert len(project.lines("migration")) == 1, project.log()


def test_metrics_stand_beside_those_of_the_program(project: Project) -> None:
    program = project.start(
        "-c",
        "from shop import locks, metrics\n"
        "from prometheus_client import Counter, generate_latest\n"
        "Counter('orders', 'Of the program').inc()\n"
        "with locks.client.lock('n'): print(generate_latest().decode())",
    )
    assert program.wait(120) == 0, project.log()
    said = project.log().splitlines()
    for line in [
        "orders_total 1.0",
        "# TYPE leasehold_wait_seconds histogram",
        'leasehold_acquisitions_total{lock="*",outcome="granted"} 1.0',
        'leasehold_wait_seconds_bucket{le="+Inf",lock="*"} 1.0',
        'leasehold_held{lock="*"} 1.0',
    ]:
        assert line in said, project.log()


def test_spans_tell_of_the_wait_and_of_the_hold(project: Project) -> None:
    program = project.start(
        "-c",
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "spans, provider = InMemorySpanExporter(), TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(spans))\n"
        "trace.set_tracer_provider(provider)\n"
        "from shop.traces import client\n"
        "with client.lock('stock:17'): pass\n"
        "for one in spans.get_finished_spans():\n"
        "    told = dict(one.attributes)\n"
        "    print(one.name, told['leasehold.group'], told['leasehold.outcome'])",
    )
    assert program.wait(120) == 0, project.log()
    assert [line for line in project.log().splitlines() if line.startswith("leasehold.")] == [
        "leasehold.wait stock:* granted",
        "leasehold.hold stock:* released",
    ]
