"""Cycles in Python, for `cargo bench -- cycle --also python="python3 benches/python/cycle.py"`.

Its argument is the name of a lock, in the store that LEASEHOLD_URL names. Each line of input is a
number; the answer is a line with what so many cycles took, in nanoseconds.
"""

import sys
from time import perf_counter_ns

import leasehold_lock as leasehold


def cycles(lock: leasehold.Lock, count: int) -> list[int]:
    """How long each of `count` cycles of taking the lock and giving it back took."""
    took = []
    for _ in range(count):
        start = perf_counter_ns()
        lock.acquire().release()
        took.append(perf_counter_ns() - start)
    return took


def main() -> None:
    with leasehold.connect() as client:
        lock = client.lock(sys.argv[-1])
        for line in sys.stdin:
            print(*cycles(lock, int(line)), flush=True)


if __name__ == "__main__":
    main()
