"""A redis-server of a test's own, on a free port of this machine."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import List, Optional

PROGRAM = os.environ.get("REDIS_SERVER", "redis-server")


def exchange(port: int, *words: str, timeout: float = 5.0) -> bytes:
    """Sends one command and reads what comes at once of its reply."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        parts = [word.encode("utf-8", "surrogateescape") for word in words]
        text = b"*%d\r\n" % len(parts)
        text += b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        connection.sendall(text)
        return connection.recv(65536)


class Server:
    def __init__(self, *options: str) -> None:
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="leasehold-python-")
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self.port = 0
        for _ in range(20):
            if self._start():
                return
        raise RuntimeError(f"{PROGRAM} did not start")

    def _start(self) -> bool:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command: List[str] = [PROGRAM, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", self.folder, *self.options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            try:
                if exchange(self.port, "PING").startswith((b"+PONG", b"-NOAUTH")):
                    return True
            except OSError:
                time.sleep(0.02)
        self.stop()
        return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def call(self, *words: str) -> bytes:
        return exchange(self.port, *words)

    def get(self, key: str) -> Optional[bytes]:
        reply = self.call("GET", key)
        return None if reply.startswith(b"$-1") else reply.split(b"\r\n")[1]

    def pttl(self, key: str) -> int:
        return int(self.call("PTTL", key)[1:])

    def fall_asleep(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def wake_up(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)
