"""A scheduled job of a web application that runs on several nodes: once per interval, on one node.

Each node has a scheduler of its own that starts the job on the minute. The node that acquires the lock
does the work and leaves the lock held until the interval is over. So a node whose clock is late skips
the work. Here three nodes serve HTTP, and the "minute" is a second.

`python examples/python/scheduled_job.py`
"""

import json
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import leasehold_lock as leasehold

INTERVAL = 1.0
RUN = uuid.uuid4()


class Node:
    """One process of the application; here, one thread."""

    def __init__(self, number: int, reports: list[str]) -> None:
        self.number = number
        self.reports = reports
        self.client = leasehold.connect()
        self.over = threading.Event()
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"node": node.number, "reports": len(node.reports)}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.scheduler = threading.Thread(target=self.schedule)
        self.scheduler.start()

    def schedule(self) -> None:
        """Every node tries, some of them late."""
        while not self.over.wait(0.1 + self.number * 0.03):
            self.report_once()

    def report_once(self) -> None:
        lease = self.client.lock(f"report:{RUN}", ttl=10).try_acquire()
        if lease is None:
            return  # Somebody does it, or has done it.
        self.reports.append(f"node {self.number}, fence {lease.fence}")
        lease.let_expire(after=INTERVAL)

    def stop(self) -> None:
        self.over.set()
        self.scheduler.join()
        self.server.shutdown()
        self.server.server_close()
        self.client.close()


def main() -> None:
    reports: list[str] = []
    start = time.monotonic()
    nodes = [Node(number, reports) for number in range(3)]
    time.sleep(3.5 * INTERVAL)
    address = f"http://127.0.0.1:{nodes[0].server.server_port}/"
    with urllib.request.urlopen(address) as answer:
        print("the application says", json.load(answer))
    for node in nodes:
        node.stop()
    intervals = (time.monotonic() - start) / INTERVAL
    print(*reports, sep="\n")
    # Three nodes, and yet no more than one report for each interval.
    assert 2 <= len(reports) <= intervals + 1, reports


if __name__ == "__main__":
    main()
