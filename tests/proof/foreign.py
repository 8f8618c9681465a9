#!/usr/bin/env python3
"""The driver of a lock that others wrote or that people write by hand, in the words of tests/languages/drivers.

    foreign.py KIND     see KINDS at the end

Each is used as its users use it: where a library has no way to ask whether a lock is held still, the holder goes
on until it releases. Locks without a fence get a number that grows with the time at which they were asked for: they
are judged by who holds them at one time alone.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from typing import Any, Optional
from urllib.parse import unquote_to_bytes


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Lock:
    """What all have in common: who acquired it holds it."""

    def __init__(self, url: str) -> None:
        ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", url)]
        self.connect(url, ports)

    def connect(self, url: str, ports: "list[int]") -> None:
        import redis

        self.redis = redis.Redis(port=ports[0], socket_timeout=0.5)

    def acquire(self, name: bytes, ttl: float) -> bool:
        raise NotImplementedError

    def release(self, name: bytes) -> None:
        raise NotImplementedError

    def left(self) -> float:
        return 10.0


class SetnxExpire(Lock):
    def acquire(self, name: bytes, ttl: float) -> bool:
        if not self.redis.setnx(name, "locked"):
            return False
        self.redis.expire(name, max(1, round(ttl)))
        return True

    def release(self, name: bytes) -> None:
        self.redis.delete(name)


class GetDelete(Lock):
    """It relies on its lock for its ttl alone, and compares before it deletes."""

    def acquire(self, name: bytes, ttl: float) -> bool:
        self.token, self.until = uuid.uuid4().bytes, time.monotonic() + ttl
        return bool(self.redis.set(name, self.token, nx=True, px=round(ttl * 1000)))

    def release(self, name: bytes) -> None:
        if self.redis.get(name) == self.token:
            self.redis.delete(name)

    def left(self) -> float:
        return self.until - time.monotonic()


class GetSet(Lock):
    """SETNX with the time at which it is over, and GETSET by whoever finds it over."""

    def acquire(self, name: bytes, ttl: float) -> bool:
        end = f"{time.time() + ttl}"
        if self.redis.setnx(name, end):
            return True
        before = self.redis.get(name)
        if before is None or float(before) > time.time():
            return False
        return bool(self.redis.getset(name, end) == before)

    def release(self, name: bytes) -> None:
        self.redis.delete(name)


class RedisPy(Lock):
    timeout = True

    def acquire(self, name: bytes, ttl: float) -> bool:
        self.lock = self.redis.lock(name, timeout=ttl if self.timeout else None)
        return bool(self.lock.acquire(blocking=False))

    def release(self, name: bytes) -> None:
        self.lock.release()


class RedisPyForEver(RedisPy):
    timeout = False


class Advisory(Lock):
    """PostgreSQL's advisory locks, behind a PgBouncer that lends a connection for each transaction."""

    def connect(self, url: str, ports: "list[int]") -> None:
        import pg8000.native

        database = re.search(r"/(\w+)(\?|$)", url)
        assert database
        self.sql = pg8000.native.Connection(
            "postgres", host="127.0.0.1", port=ports[0], database=database[1]
        )

    def acquire(self, name: bytes, ttl: float) -> bool:
        number = int.from_bytes(name[:7], "big")
        return bool(self.sql.run(f"SELECT pg_try_advisory_lock({number})")[0][0])

    def release(self, name: bytes) -> None:
        self.sql.run(f"SELECT pg_advisory_unlock({int.from_bytes(name[:7], 'big')})")


class EtcdMutex(Lock):
    """`etcdctl lock`, which is etcd's own mutex with its session."""

    def connect(self, url: str, ports: "list[int]") -> None:
        self.endpoint = f"127.0.0.1:{ports[0]}"
        self.holder: Optional[subprocess.Popen[bytes]] = None

    def acquire(self, name: bytes, ttl: float) -> bool:
        command = ["etcdctl", "--endpoints", self.endpoint, "lock", "--ttl", "1", name.hex()]
        self.holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.holder.stdout is not None
        # It prints the key when it has the lock.
        return bool(self.holder.stdout.readline())

    def release(self, name: bytes) -> None:
        assert self.holder is not None
        self.holder.send_signal(signal.SIGINT)
        self.holder.wait()


class Unlooked(Lock):
    """Leasehold, by a program that neither renews nor asks whether its lease is valid."""

    def connect(self, url: str, ports: "list[int]") -> None:
        import leasehold_lock as leasehold

        self.client = leasehold.connect(url)

    def acquire(self, name: bytes, ttl: float) -> bool:
        self.lease = self.client.lock(name, ttl=ttl, renew=False).try_acquire()
        return self.lease is not None

    def release(self, name: bytes) -> None:
        self.lease.release()


KINDS = {
    "setnx-expire": SetnxExpire,
    "get-delete": GetDelete,
    "getset": GetSet,
    "redis-py": RedisPy,
    "redis-py-for-ever": RedisPyForEver,
    "advisory-pgbouncer": Advisory,
    "etcd-mutex": EtcdMutex,
    "unlooked": Unlooked,
}


class Driver:
    def __init__(self, kind: "type[Lock]") -> None:
        self.kind = kind
        self.names: dict[str, tuple[bytes, float]] = {}
        self.held = b""

    def attempt(self, key: str, wait: float) -> str:
        name, ttl = self.names[key]
        end = time.monotonic() + wait
        while True:
            asked = now()
            if self.lock.acquire(name, ttl):
                self.held = name
                return f"ok {asked}"
            if time.monotonic() >= end:
                return "timeout"
            time.sleep(0.005)

    def obey(self, command: str, *words: str) -> Any:
        if command == "open":
            self.lock = self.kind(words[0])
        elif command == "lock":
            ttl = next(int(word[4:]) / 1000 for word in words if word.startswith("ttl="))
            self.names[words[0]] = unquote_to_bytes(words[1]), ttl
        elif command == "try":
            return self.attempt(words[1], 0)
        elif command == "acquire_within":
            return self.attempt(words[1], int(words[2]) / 1000)
        elif command == "valid":
            return "yes" if self.lock.left() > 0 else "no"
        elif command == "remaining":
            return f"ok {max(0, int(self.lock.left() * 1000))}"
        elif command == "release":
            self.lock.release(self.held)
        return "ok"


def main() -> None:
    driver = Driver(KINDS[sys.argv[1]])
    for line in iter(sys.stdin.readline, ""):
        said = "unavailable"
        # A server that is away, or a lock that is not there any more.
        with contextlib.suppress(Exception):
            said = driver.obey(*line.split())
        print(f"@@ {said}", flush=True)
    os._exit(0)


main()
