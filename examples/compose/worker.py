"""One of two workers: one of them counts the stock at a time, and each serves its metrics.

`python examples/compose/worker.py`
"""

import os
import random
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import leasehold_lock as leasehold

client = leasehold.connect(metrics_groups=["stock:*"])
stopped = threading.Event()


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = client.metrics_text().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Prometheus asks every five seconds, which need not be in the log."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    server = ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("metrics at port", server.server_port, flush=True)
    while not stopped.is_set():
        with client.lock("stock:17", ttl=10) as lease:
            print("counts, fence", lease.fence, flush=True)
            stopped.wait(random.uniform(0.2, 2))
        stopped.wait(random.uniform(0, 1))
    client.close()


if __name__ == "__main__":
    main()
