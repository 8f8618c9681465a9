"""A redis-server of a test's own, on a free port of this machine."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

#: Starts servers.
KIT = os.environ.get("KIT_PROGRAM") or str(Path(__file__).parents[3] / "tests/kit/run")


def exchange(port: int, *words: str, timeout: float = 5.0) -> bytes:
    """Sends one command and reads what comes at once of its reply."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        parts = [word.encode("utf-8", "surrogateescape") for word in words]
        text = b"*%d\r\n" % len(parts)
        text += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        connection.sendall(text)
        return connection.recv(65536)


@contextmanager
def group(kind: str) -> Iterator[list[int]]:
    """The ports of a Cluster, or of a group with its Sentinels behind its servers."""
    kit = subprocess.Popen([KIT, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert kit.stdout is not None
    try:
        _, ports = kit.stdout.readline().split()
        yield [int(port) for port in ports.split("=")[1].split(",")]
    finally:
        kit.communicate("stop\n")


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of an empty database in a server of its own."""
    kit = subprocess.Popen([KIT, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert kit.stdout is not None
    try:
        url, _ = kit.stdout.readline().split()
        yield url.split("=", 1)[1]
    finally:
        kit.communicate("stop\n")


class Server:
    """Started by the kit, and ended when this process ends."""

    def __init__(self, *options: str) -> None:
        self._kit = subprocess.Popen(
            [KIT, "redis", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        _, ports = self._line().split()
        self.port = int(ports.split("=")[1])

    def _line(self) -> str:
        assert self._kit.stdout is not None
        line = self._kit.stdout.readline()
        assert line, "the kit's program has ended"
        return line.strip()

    def _tell(self, word: str) -> None:
        assert self._kit.stdin is not None
        print(word, file=self._kit.stdin, flush=True)
        assert self._line() == "ok"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the server itself."""
        return int(self.call("INFO", "server").split(b"process_id:")[1].split()[0])

    def call(self, *words: str) -> bytes:
        return exchange(self.port, *words)

    def get(self, key: str) -> Optional[bytes]:
        reply = self.call("GET", key)
        return None if reply.startswith(b"$-1") else reply.split(b"\r\n")[1]

    def pttl(self, key: str) -> int:
        return int(self.call("PTTL", key)[1:])

    def fall_asleep(self) -> None:
        self._tell("pause")

    def wake_up(self) -> None:
        self._tell("resume")

    def stop(self) -> None:
        if self._kit.poll() is None:
            self._kit.communicate("stop\n")
