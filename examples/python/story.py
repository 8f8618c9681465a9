"""The short story: acquire a lock, send its fence to the resource, and release it.

`python examples/python/story.py` uses the store that LEASEHOLD_URL names, or else a file of yours.
"""

import time
import uuid

import leasehold_lock as leasehold


class Till:
    """The resource that the lock protects. It remembers the largest fence that it has seen, and
    rejects a smaller one. A resource needs nothing more."""

    def __init__(self) -> None:
        self.largest_fence = 0
        self.charged = 0

    def charge(self, amount: int, fence: int) -> None:
        if fence < self.largest_fence:
            raise ValueError(f"fence {fence} comes after {self.largest_fence}")
        self.largest_fence = fence
        self.charged += amount


def main() -> None:
    client = leasehold.connect()
    print(f"The locks are kept in {client.store}.")
    name = f"stock:sku-17:{uuid.uuid4()}"
    stock = client.lock(name, ttl=10, wait=5)
    till = Till()

    first = stock.try_acquire()
    assert first is not None, "nobody else knows this name, and yet it is taken"
    print(f"{name} was free and is ours, with fence {first.fence}.")
    print(f"For the next {first.remaining:.1f} s that may be relied on.")
    till.charge(20, first.fence)

    # Another client, as another process would have it.
    elsewhere = leasehold.connect().lock(name)
    assert elsewhere.try_acquire() is None
    print("Somebody else tries, and is told at once that it is taken.")
    start = time.monotonic()
    try:
        elsewhere.acquire_within(0.3)
        raise AssertionError("two holders at once")
    except leasehold.Timeout as error:
        print(f"The second one waits for {time.monotonic() - start:.1f} s and is told: {error}.")

    first.release()
    with elsewhere as second:
        print(f"We give it back; the second one takes it, with the larger fence {second.fence}.")
        assert second.fence > first.fence
        till.charge(10, second.fence)
        try:
            till.charge(20, first.fence)
            raise AssertionError("the till took an old fence")
        except ValueError as refused:
            print(f"A charge of ours that was on its way all the time: {refused}.")
    assert till.charged == 30 and not stock.inspect().held
    print("The second block ends, and the lock is free.")


if __name__ == "__main__":
    main()
