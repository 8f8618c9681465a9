"""Times cycles of taking a lock and giving it back, for a benchmark that asks for them.

    python3 cycle.py URL NAME

Each line of standard input is a number N; the answer is a line with N durations in nanoseconds.
"""

import sys
from time import perf_counter_ns

import leasehold


def cycles(lock: leasehold.Lock, count: int) -> "list[int]":
    """How long each of `count` cycles took."""
    took = []
    for _ in range(count):
        start = perf_counter_ns()
        lock.acquire().release()
        took.append(perf_counter_ns() - start)
    return took


def main() -> None:
    _, url, name = sys.argv
    with leasehold.connect(url) as client:
        lock = client.lock(name)
        for line in sys.stdin:
            print(*cycles(lock, int(line)), flush=True)


if __name__ == "__main__":
    main()
