"""The command line that comes with the package."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from server import Server

import leasehold_lock as leasehold
from leasehold_lock import __main__ as command


def leasehold_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "leasehold_lock", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


installed = pytest.mark.skipif(not command.COMMAND.exists(), reason="only a wheel has the command")


@installed
def test_it_runs_a_command_under_a_lock(server: Server, name: str) -> None:
    result = leasehold_command(
        "run",
        "--store",
        server.url,
        name,
        "--",
        "sh",
        "-c",
        'echo "fence $LEASEHOLD_FENCE"; exit 7',
    )
    assert result.returncode == 7 and result.stdout.startswith("fence 1"), result


@installed
def test_it_shares_its_locks_with_the_package(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    with redis_client.lock(name) as lease:
        shown = leasehold_command("show", "--store", server.url, "--json", name)
        assert f'"fence": {lease.fence}' in shown.stdout or str(lease.fence) in shown.stdout
        tried = leasehold_command("run", "--store", server.url, "--try", name, "--", "true")
        assert tried.returncode == 1, tried


@installed
def test_a_run_of_an_interval_is_known_to_the_package(
    server: Server, redis_client: leasehold.Client, name: str
) -> None:
    words = ["run", "--store", server.url, "--once-per", "60s", name, "--", "sh", "-c", "exit 3"]
    assert leasehold_command(*words).returncode == 3
    client = redis_client.lock(name).inspect().client
    assert client is not None and client.run is not None and client.program == "sh"
    assert client.run.exit_status == 3 and client.run.ended is not None
    assert abs(time.time() - client.run.began) < 60 and client.run.began <= client.run.ended


@installed
def test_it_is_of_the_same_version() -> None:
    assert leasehold.__version__ in leasehold_command("--version").stdout


@installed
def test_it_speaks_tls_and_knows_files(tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/locks.db"
    assert leasehold_command("run", "--store", store, "x", "--", "true").returncode == 0
    # Nobody listens there: it got as far as that, so it was built with TLS.
    result = leasehold_command("run", "--store", "rediss://127.0.0.1:1", "x", "--", "true")
    assert result.returncode == 69, result
    with leasehold.connect("rediss://127.0.0.1:1") as client, pytest.raises(leasehold.Refused):
        client.ping()


@installed
def test_signals_go_to_the_command(server: Server, name: str) -> None:
    words = ["run", "--store", server.url, name, "--", "sh", "-c", "echo begun; exec sleep 60"]
    child = subprocess.Popen(
        [sys.executable, "-m", "leasehold_lock", *words], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    start = time.monotonic()
    child.terminate()
    assert child.wait(30) == 128 + 15 and time.monotonic() - start < 20


def test_without_the_command_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(command, "COMMAND", tmp_path / "leasehold")
    with pytest.raises(SystemExit, match="the command did not come with this package"):
        command.main()


def test_importing_costs_no_asyncio(run: Run) -> None:
    result = run(
        "import sys, leasehold_lock; print('asyncio' in sys.modules, 'redis' in sys.modules)"
    )
    assert result.stdout == "False False\n"
