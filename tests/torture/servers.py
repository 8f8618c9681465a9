"""What the tests stand on: servers of the kit, links that lose and keep messages, and the other libraries."""

import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Callable, Optional, Union

import redis

ROOT = Path(__file__).resolve().parents[2]
KIT = os.environ.get("KIT_PROGRAM") or str(ROOT / "tests/kit/run")
#: A busy machine is no failure: what is waited for comes, or something hangs.
PATIENCE_S = 60


class NotShown(Exception):
    """A control behaved well: the test would find nothing anywhere."""


class LeftOut(Exception):
    """A control for which something is missing here."""


def show(shown: Any, what: str) -> None:
    if not shown:
        raise NotShown(f"this was to be seen, and was not: {what}")


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
    end, late = time.monotonic() + seconds, False
    while not (value := condition()):
        assert not late, f"it did not come true within {seconds} s: {what}"
        # Asked once more after the end: this thread may have been kept from it before.
        late = time.monotonic() >= end
        time.sleep(0.01)
    return value


class Server:
    """A redis-server of the kit, or a Cluster of them."""

    def __init__(self, kind: str = "redis") -> None:
        self._kit = subprocess.Popen(
            [KIT, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._kit.stdout is not None
        said = re.search(r"ports=(\d+)", self._kit.stdout.readline())
        assert said, "the kit started no server"
        self.port = int(said[1])
        kinds = {"redis": redis.Redis, "cluster": redis.RedisCluster}
        self.look = kinds[kind](host="127.0.0.1", port=self.port)

    def get(self, key: str) -> Optional[bytes]:
        return self.look.get(key)

    def pttl(self, key: str) -> int:
        """-2 where there is no key, -1 where it stays for ever."""
        return self.look.pttl(key)

    def close(self) -> None:
        self.look.close()
        self._kit.communicate("stop\n")


#: What a rule of a link says of a message: None passes it on, an event keeps it until it is set, CUT ends the
#: connection, and bytes are the answer that the client gets in the server's place.
CUT = "cut"
Verdict = Union[None, threading.Event, str, bytes]


class Link:
    """A way to a server, on which requests and replies go by rules that a test sets. It keeps the requests."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.requests: list[bytes] = []
        self.on_request: Callable[[bytes], Verdict] = lambda request: None
        self.on_reply: Callable[[bytes], Verdict] = lambda request: None
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self) -> None:
        self.on_request = self.on_reply = lambda request: None

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            last = [b""]
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(near, far, last), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket, last: "list[bytes]") -> None:
        def rule(request: bytes) -> Verdict:
            last[0] = request
            self.requests.append(request)
            return self.on_request(request)

        self._pump(near, far, rule)

    def _replies(self, near: socket.socket, far: socket.socket, last: "list[bytes]") -> None:
        self._pump(far, near, lambda _: self.on_reply(last[0]))

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, rule: Callable[[bytes], Verdict]) -> None:
        try:
            while message := source.recv(1 << 20):
                verdict = rule(message)
                if verdict == CUT:
                    break
                if isinstance(verdict, bytes):
                    source.sendall(verdict)
                    continue
                if isinstance(verdict, threading.Event):
                    verdict.wait(PATIENCE_S)
                sink.sendall(message)
        except OSError:
            pass
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.close()


class Driver:
    """A program of another language. It gets a line of JSON, and answers with one."""

    def __init__(self, command: "list[str]") -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class World:
    """Servers, links and libraries of one test, which end with it."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _kept(self, thing: Any) -> Any:
        self._stack.callback(thing.close)
        return thing

    def server(self, kind: str = "redis") -> Server:
        made: Server = self._kept(Server(kind))
        return made

    def link(self, server: Server) -> Link:
        made: Link = self._kept(Link(server.port))
        return made

    def leasehold(self, *ports: int, io_timeout: float = 20, **options: Any) -> Any:
        import leasehold_lock as leasehold

        urls = [f"redis://127.0.0.1:{port}" for port in ports]
        return self._kept(
            leasehold.connect(urls, io_timeout=io_timeout, close_timeout=5, **options)
        )

    def redis_py(self, port: int) -> "redis.Redis":
        made: redis.Redis = self._kept(redis.Redis(port=port))
        return made

    def node(self) -> Driver:
        """Runs the JavaScript that it is sent, with `Redis`, `Redlock` and `semaphore` in scope."""
        if not (folder := os.environ.get("TORTURE_NODE")):
            raise LeftOut("npm did not install it")
        made: Driver = self._kept(Driver(["node", f"{folder}/theirs.js"]))
        return made

    def go(self) -> Driver:
        if not (program := os.environ.get("TORTURE_GO")):
            raise LeftOut("it is not compiled here")
        made: Driver = self._kept(Driver([program]))
        return made

    def python(self, text: str, *arguments: Any) -> "subprocess.Popen[str]":
        """Another process, which ends with the test."""
        command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
        made = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def end() -> None:
            made.kill()
            made.communicate()

        self._stack.callback(end)
        return made


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    assert said or process.poll() is None, process.communicate()[1]
    return said
