"""Cycles of redis-py's Lock, for `cargo bench -- cycle --beside redis-py`, and hand-overs for `pass`.

It is asked, and answers, as cycle.py. A line "pass N" asks for one hand-over to a client that has
waited for N nanoseconds. Needs redis-py.
"""

import os
import sys
import threading
import time
from time import perf_counter_ns

import redis


def cycle(lock: "redis.lock.Lock") -> int:
    start = perf_counter_ns()
    lock.acquire()
    lock.release()
    return perf_counter_ns() - start


def hand_over(one: "redis.Redis", other: "redis.Redis", name: str, waited: int) -> int:
    """From the release until the one that waits has it."""
    held, wanted = one.lock(name, timeout=30), other.lock(name, timeout=30)
    got = []

    def wait() -> None:
        wanted.acquire()
        got.append(perf_counter_ns())
        wanted.release()

    held.acquire()
    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(waited / 1e9)
    begun = perf_counter_ns()
    held.release()
    waiter.join()
    return got[0] - begun


def main() -> None:
    one, other = (redis.Redis.from_url(os.environ["LEASEHOLD_URL"]) for _ in range(2))
    lock = one.lock(sys.argv[-1], timeout=30)
    for line in sys.stdin:
        if line.startswith("pass "):
            print(hand_over(one, other, sys.argv[-1], int(line[5:])), flush=True)
        else:
            print(*[cycle(lock) for _ in range(int(line))], flush=True)


if __name__ == "__main__":
    main()
