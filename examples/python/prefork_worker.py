"""A prefork worker, as Celery has them: a task that was queued twice runs once at a time.

The master opens the client, as a module does that is imported before the fork. Each worker uses this
client. Here the queue is a pipe, and the tasks recount the stock of one article. Two workers must not
recount the same article at once.

`python examples/python/prefork_worker.py`
"""

import os
import tempfile
import time
import uuid
from pathlib import Path

import leasehold_lock as leasehold

WORKERS = 3
RUN = uuid.uuid4()


def recount(client: leasehold.Client, sku: int, shelf: Path) -> None:
    """The task. The lock is named after what it protects."""
    with client.lock(f"recount:{RUN}:{sku}", ttl=10, wait=20) as lease:
        marker = shelf / f"sku-{sku}.in-progress"
        marker.touch(exist_ok=False)  # fails if another worker is at it
        time.sleep(0.05)
        marker.unlink()
        with open(shelf / f"sku-{sku}", "a") as file:
            print(os.getpid(), lease.fence, file=file)


def worker(queue: int, shelf: Path, client: leasehold.Client) -> int:
    """What a worker process does until the queue is empty."""
    while task := os.read(queue, 1):
        recount(client, task[0], shelf)
    return 0


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shelf = Path(folder)
        # A file of its own, so that it runs anywhere; usually LEASEHOLD_URL names a server.
        url = os.environ.get("LEASEHOLD_URL") or f"sqlite:{folder}/locks.db"
        client = leasehold.connect(url)
        queue, feed = os.pipe()
        workers: list[int] = []
        for _ in range(WORKERS):
            child = os.fork()
            if child == 0:
                os.close(feed)
                code = 1
                try:
                    code = worker(queue, shelf, client)
                finally:
                    os._exit(code)
            workers.append(child)
        tasks = bytes([1, 1, 2, 1, 2, 2, 1, 3, 1, 2])  # most of them twice and more
        os.write(feed, tasks)
        os.close(feed)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in workers]
        assert codes == [0] * WORKERS, codes
        for sku in sorted(set(tasks)):
            lines = [line.split() for line in (shelf / f"sku-{sku}").read_text().splitlines()]
            fences = [int(fence) for _, fence in lines]
            assert len(lines) == tasks.count(sku) and fences == sorted(fences)
            pids = len({pid for pid, _ in lines})
            print(f"sku {sku}: counted {len(lines)} times by {pids} workers, never two at once")


if __name__ == "__main__":
    main()
