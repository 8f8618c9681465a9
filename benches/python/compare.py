"""What taking a lock and giving it back costs, beside redis-py's Lock and the bare limit.

    python3 compare.py [--seconds N] [--at-most LIMITS] [--at-least TIMES]

Needs redis-py and a redis-server, which is started for the purpose. Server and client share one
core, so that the figures show what each client itself costs. The bare limit is a socket, prepared
bytes and the scripts that Leasehold sends. All of it in one run, in small turns, medians.
It fails if a cycle of ours takes more than so many limits, or is not at least so many times as fast
as redis-py's.
"""

import argparse
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List

import redis

import leasehold
import leasehold.compat

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "src/store/redis/dialect/native"
NAME = "cycle"
TURN = 50


def start_server(core: int) -> "tuple[subprocess.Popen[bytes], int]":
    """A server on a free port of this machine, kept on one core."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = f"redis-server --port {port} --bind 127.0.0.1 --appendonly no --save".split() + [""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(server.pid, {core})
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            redis.Redis(port=port).ping()
            return server, port
        except redis.ConnectionError:
            time.sleep(0.02)
    server.kill()
    raise RuntimeError("the server did not start")


def pack(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def bare(port: int) -> Callable[[], None]:
    """The limit: two scripts over a plain socket, with nothing to think about in between."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send, receive = connection.sendall, connection.recv

    def load(file: str) -> bytes:
        source = b"".join((SCRIPTS / part).read_bytes() for part in ("hand_over.lua", file))
        send(pack(b"SCRIPT", b"LOAD", source))
        return receive(100).split(b"\r\n")[1]

    token, keys = b"0" * 32, [b"3", b"bare", b"leasehold:{bare}", b"leasehold:queue:{bare}"]
    take = pack(b"EVALSHA", load("take.lua"), *keys, token, b"30000", b"try", b"1")
    # Under another fence than it was given, since that differs each time.
    give = pack(b"EVALSHA", load("give.lua"), *keys, token, b"1", b"")

    def cycle() -> None:
        send(take)
        receive(100)
        send(give)
        receive(100)

    return cycle


def subjects(port: int) -> Dict[str, Callable[[], None]]:
    client = leasehold.connect(f"redis://127.0.0.1:{port}")
    lock = client.lock(NAME)
    theirs = redis.Redis(port=port)
    their_lock = theirs.lock(NAME, timeout=30)
    drop_in = leasehold.compat.Lock(client, NAME, timeout=30)

    def ours() -> None:
        lock.acquire().release()

    def with_statement() -> None:
        with client.lock(NAME, ttl=30, wait=5):
            pass

    def redis_py() -> None:
        their_lock.acquire()
        their_lock.release()

    def compat() -> None:
        drop_in.acquire()
        drop_in.release()

    return {
        "bare limit": bare(port),
        "acquire and release": ours,
        "with client.lock(...)": with_statement,
        "compat.Lock": compat,
        "redis-py's Lock": redis_py,
    }


def measure(cycles: Dict[str, Callable[[], None]], seconds: float) -> Dict[str, float]:
    """Medians in microseconds."""
    took: Dict[str, List[int]] = {name: [] for name in cycles}
    for cycle in cycles.values():  # Scripts are loaded and connections made before it counts.
        for _ in range(TURN):
            cycle()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, cycle in cycles.items():
            for _ in range(TURN):
                start = time.perf_counter_ns()
                cycle()
                took[name].append(time.perf_counter_ns() - start)
    return {name: statistics.median(times) / 1000 for name, times in took.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--at-most", type=float, default=math.inf, metavar="LIMITS")
    parser.add_argument("--at-least", type=float, default=0, metavar="TIMES")
    arguments = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    server, port = start_server(core)
    try:
        figures = measure(subjects(port), arguments.seconds)
    finally:
        server.kill()
        server.wait()
    limit, ours = figures["bare limit"], figures["acquire and release"]
    theirs = figures["redis-py's Lock"]
    for name, figure in figures.items():
        print(f"{name:24}{figure:8.1f} µs {figure / limit:7.2f}")
    print(f"{ours / limit:.2f} of the limit; {theirs / ours:.1f} of ours fit into redis-py's")
    return int(ours / limit > arguments.at_most or theirs / ours < arguments.at_least)


if __name__ == "__main__":
    sys.exit(main())
