"""Cycles of redis-py's Lock, for `cargo bench -- cycle --beside redis-py`. Needs redis-py.

It is asked, and answers, as cycle.py.
"""

import os
import sys
from time import perf_counter_ns

import redis


def main() -> None:
    lock = redis.Redis.from_url(os.environ["LEASEHOLD_URL"]).lock(sys.argv[-1], timeout=30)
    for line in sys.stdin:
        took = []
        for _ in range(int(line)):
            start = perf_counter_ns()
            lock.acquire()
            lock.release()
            took.append(perf_counter_ns() - start)
        print(*took, flush=True)


if __name__ == "__main__":
    main()
