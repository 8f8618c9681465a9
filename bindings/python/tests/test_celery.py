"""Tasks of which one runs at a time, in a real worker of Celery. What the guide shows is in test_guides."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from celery import Celery  # type: ignore[import-untyped]
from conftest import Until
from server import Server

import leasehold_lock as leasehold
from leasehold_lock.celery import LockedTask

#: The program of the workers, and of whoever has them work.
TASKS = """
    import os, time
    from pathlib import Path
    import leasehold_lock as leasehold
    from celery import Celery
    from leasehold_lock.celery import LockedTask

    app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
    client = leasehold.connect(os.environ["STORE"])

    def run(what, fence):
        marker = Path(what + ".in-progress")
        marker.touch(exist_ok=False)  # fails if another process is at it
        while Path("hold").exists():
            time.sleep(0.02)
        marker.unlink()
        with open(what, "a") as file:
            print(fence, file=file)

    class OneAtATime(LockedTask):
        lock_client = client
        lock_options = {"ttl": 3}
        busy_delay = 0.1

    @app.task(base=OneAtATime, bind=True, lock_name="report:{shop}", max_retries=0)
    def report(self, shop, *, again=False):
        run(f"report-{shop}", self.lease.fence)
        return self.lease.fence

    @app.task(base=OneAtATime, bind=True, when_busy="skip")
    def sweep(self):
        run("sweep", self.lease.fence)
        return "swept"

    @app.task(base=OneAtATime, bind=True, when_busy="fail")
    def strict(self):
        return "done"

    @app.task(base=OneAtATime, bind=True, when_lost="retry")
    def long(self):
        Path(f"began-{self.lease.fence}").touch()
        while self.lease.valid and Path("hold").exists():
            time.sleep(0.02)
        self.lease.raise_if_lost()
        return self.lease.fence
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(textwrap.dedent(TASKS))
    return tmp_path


Call = Callable[[str], str]


@pytest.fixture
def call(folder: Path, own_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Runs a line beside the worker, which has three processes, and says what it prints."""
    monkeypatch.setenv("STORE", own_server.url + "?io_timeout=20s")
    monkeypatch.setenv("BROKER", own_server.url + "/1")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with (folder / "log").open("w") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-c", "3", "-l", "INFO"],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def runs(line: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", "import tasks\n" + line],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        ).stdout

    yield runs
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    print((folder / "log").read_text())  # Shown where the test has failed.


def test_a_task_runs_once_at_a_time_and_comes_again_when_it_is_busy(
    folder: Path, call: Call, until: Until
) -> None:
    """Coming again is no retry of Celery's: the task may have none."""
    (folder / "hold").touch()
    call("for _ in range(4): tasks.report.delay(17)\ntasks.report.delay(shop=18)")
    for shop in (17, 18):
        until((folder / f"report-{shop}.in-progress").exists, 120)
    until(lambda: "Retry" in (folder / "log").read_text(), 120)
    (folder / "hold").unlink()
    until(lambda: (folder / "log").read_text().count("succeeded in") == 5, 120)
    fences = [int(line) for line in (folder / "report-17").read_text().split()]
    assert len(fences) == 4 and fences == sorted(set(fences))
    assert len((folder / "report-18").read_text().split()) == 1


def test_a_busy_task_is_skipped_or_fails_if_you_say_so(
    folder: Path, call: Call, until: Until
) -> None:
    (folder / "hold").touch()
    call("tasks.sweep.delay()")
    until((folder / "sweep.in-progress").exists, 120)
    assert call("print(tasks.sweep.delay().get(timeout=60))") == "None\n"
    held = "with tasks.client.lock('tasks.strict'):\n    "
    failed = call(held + "print(tasks.strict.delay().get(timeout=60, propagate=False))")
    assert failed.startswith("the lock was held for the whole wait: 'tasks.strict'")
    assert call("print(tasks.strict.delay().get(timeout=60))") == "done\n"
    (folder / "hold").unlink()
    until(lambda: (folder / "sweep").exists(), 60)


def test_a_task_whose_lease_is_lost_runs_again_if_you_say_so(
    folder: Path, call: Call, until: Until
) -> None:
    (folder / "hold").touch()
    call("tasks.long.delay()")
    until(lambda: list(folder.glob("began-*")), 120)
    call("tasks.client.lock('tasks.long').break_held('ada')")
    until(lambda: len(list(folder.glob("began-*"))) == 2, 60)
    (folder / "hold").unlink()
    until(lambda: (folder / "log").read_text().count("succeeded in") == 1, 60)


@pytest.fixture
def app(redis_client: leasehold.Client) -> Any:
    return Celery("here", set_as_current=False)


def make(app: Any, client: object, run: Callable[..., Any], **options: Any) -> Any:
    given = {"bind": True, "lock_client": client, "name": "here.one", "shared": False, **options}
    return app.task(base=LockedTask, lazy=False, **given)(run)


def test_a_task_that_is_called_has_the_lock_too(
    app: Any, redis_client: leasehold.Client, name: str
) -> None:
    def one(self: Any, order: str) -> int:
        assert redis_client.lock(order).try_acquire() is None
        with pytest.raises(leasehold.Timeout):
            task(order)  # nothing runs it later
        assert task.apply((order,)).failed()
        return int(self.lease.fence)

    task = make(app, redis_client, one, lock_name="{order}")
    assert task(name) > 0
    with pytest.raises(RuntimeError, match="no task of this thread holds a lock"):
        task.lease


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lock_client": None}, "lock_client None; it is a leasehold.Client"),
        ({"when_busy": "wait"}, "when_busy of the task here.one is 'wait'; it is one of retry"),
        ({"when_lost": "skip"}, "when_lost of the task here.one is 'skip'; it is one of fail"),
        ({"lock_name": "{orders}"}, "no argument 'orders' .* did you mean 'order'"),
        ({"lock_options": {"ttl": -1}}, "ttl"),
        ({"lock_options": {"timeout": 1}}, "timeout"),
    ],
)
def test_what_cannot_work_is_refused_when_the_task_is_made(
    app: Any, redis_client: leasehold.Client, options: dict[str, Any], message: str
) -> None:
    def one(self: Any, order: str) -> None:
        """Never called."""

    given = {"lock_client": redis_client, **options}
    with pytest.raises((TypeError, leasehold.BadArgument), match=message):
        make(app, given.pop("lock_client"), one, **given)
