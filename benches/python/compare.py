"""What taking a lock and giving it back costs, beside redis-py's Lock and the bare limit.

    tests/kit/run redis -- python3 benches/python/compare.py [--seconds N] [--at-most LIMITS] [--at-least TIMES]

Needs redis-py, and in LEASEHOLD_URL a server on this machine with a port, as the kit starts it.
Server and client share one core, so that the figures show what each client itself costs. The bare
limit is a socket, prepared bytes and the scripts that Leasehold sends. All of it in one run, in small
turns, medians. It fails if a cycle of ours takes more than so many limits, or is not at least so many
times as fast as redis-py's.
"""

import argparse
import math
import os
import re
import socket
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Callable

import redis

import leasehold_lock as leasehold
import leasehold_lock.compat

NAME = "cycle"
TURN = 50


def pack(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def bare(port: int, cycle: Callable[[], None]) -> Callable[[], None]:
    """The limit: the two scripts of a cycle over a plain socket, with nothing to think about."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send, receive = connection.sendall, connection.recv
    cycle()  # The server has the scripts from now on.
    with socket.create_connection(("127.0.0.1", port)) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        lines = monitor.makefile("rb")
        lines.readline()
        cycle()
        send(pack(b"ECHO", b"end"))
        receive(100)
        take, give = (pack(*words) for words in scripts(lines))
    # The fence differs each time, and is as long.
    fence = re.compile(rb"\d{16}")
    around = fence.split(give)

    def limit() -> None:
        send(take)
        granted = fence.search(receive(100))
        assert granted, "the bare take has taken the lock"
        send(granted[0].join(around))
        receive(100)

    return limit


def scripts(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The scripts that clients called, out of lines such as `+1.5 [0 127.0.0.1:50] "GET" "a"`."""
    for line in lines:
        words = [
            word.decode("unicode_escape").encode("latin-1")
            for word in re.findall(rb'"((?:\\.|[^"\\])*)"', line)
        ]
        if words == [b"ECHO", b"end"]:
            return
        if words[0].upper() == b"EVALSHA":
            yield words


def subjects(url: str, core: int) -> dict[str, Callable[[], None]]:
    theirs = redis.Redis.from_url(url)
    os.sched_setaffinity(theirs.info("server")["process_id"], {core})
    client = leasehold.connect(url)
    lock = client.lock(NAME)
    their_lock = theirs.lock(NAME, timeout=30)
    drop_in = leasehold_lock.compat.Lock(client, NAME, timeout=30)

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
        "bare limit": bare(theirs.connection_pool.connection_kwargs["port"], ours),
        "acquire and release": ours,
        "with client.lock(...)": with_statement,
        "compat.Lock": compat,
        "redis-py's Lock": redis_py,
    }


def measure(cycles: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Medians in microseconds."""
    took: dict[str, list[int]] = {name: [] for name in cycles}
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
    figures = measure(subjects(os.environ["LEASEHOLD_URL"], core), arguments.seconds)
    limit, ours = figures["bare limit"], figures["acquire and release"]
    theirs = figures["redis-py's Lock"]
    for name, figure in figures.items():
        print(f"{name:24}{figure:8.1f} µs {figure / limit:7.2f}")
    print(f"{ours / limit:.2f} of the limit; {theirs / ours:.1f} of ours fit into redis-py's")
    return int(ours / limit > arguments.at_most or theirs / ours < arguments.at_least)


if __name__ == "__main__":
    sys.exit(main())
