"""The workers of examples/compose, as two containers would run them."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from conftest import Until
from server import Server

WORKER = Path(__file__).resolve().parents[3] / "examples/compose/worker.py"


def test_two_workers_count_in_turns_and_show_it(
    server: Server, until: Until, tmp_path: Path
) -> None:
    environment = {**os.environ, "LEASEHOLD_URL": server.url + "?io_timeout=20s", "PORT": "0"}
    logs = [tmp_path / "first", tmp_path / "second"]
    workers = []

    def port(log: Path) -> str:
        found = until(lambda: re.search(r"metrics at port (\d+)", log.read_text()))
        return str(found[1])

    def granted(log: Path) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port(log)}/metrics") as answer:
            text = answer.read().decode()
        found = re.search(r'acquisitions_total\{lock="stock:\*",outcome="granted"\} (\d+)', text)
        return int(found[1]) if found else 0

    try:
        for log in logs:
            with log.open("w") as file:
                command = [sys.executable, str(WORKER)]
                workers.append(subprocess.Popen(command, env=environment, stdout=file))
        until(lambda: all(granted(log) >= 2 for log in logs))
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        codes = [worker.wait(timeout=60) for worker in workers]
    assert codes == [0, 0]
    fences = [[int(fence) for fence in re.findall(r"fence (\d+)", log.read_text())] for log in logs]
    assert all(len(one) >= 2 and one == sorted(set(one)) for one in fences)
    assert not set(fences[0]) & set(fences[1])
