"""A request that must not be handled twice: the server rejects the second one at once.

A customer clicks twice, or a proxy sends a request again. The lock is named after the order. If it is
held, the server answers 409 and does no work. The fence goes into the database with the order, so a
handler that was paused beyond the end of its lease writes nothing.

`python examples/python/duplicate_request.py`
"""

import threading
import time
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import leasehold_lock as leasehold


class Database:
    """Rejects a write whose fence is smaller than one that it has seen."""

    def __init__(self) -> None:
        self.fences: dict[str, int] = {}
        self.orders: list[str] = []

    def place(self, order: str, fence: int) -> None:
        if fence < self.fences.get(order, 0):
            raise ValueError("a late writer")
        self.fences[order] = fence
        self.orders.append(order)


class Shop(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.client = leasehold.connect()
        self.database = Database()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def place_order(self, order: str) -> int:
        """The status of the answer."""
        lease = self.client.lock(f"order:{order}", ttl=10).try_acquire()
        if lease is None:
            return 409
        with lease:
            if order in self.database.orders:
                return 409
            time.sleep(0.2)  # paying
            if not lease.valid:
                return 503
            self.database.place(order, lease.fence)
            return 201


class Handler(BaseHTTPRequestHandler):
    server: Shop

    def do_POST(self) -> None:
        self.send_response(self.server.place_order(self.path))
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def post(url: str, statuses: list[int]) -> None:
    try:
        with urllib.request.urlopen(url, data=b"") as answer:
            statuses.append(answer.status)
    except urllib.error.HTTPError as error:
        statuses.append(error.code)


def main() -> None:
    shop = Shop()
    url = f"http://127.0.0.1:{shop.server_port}/{uuid.uuid4()}"
    statuses: list[int] = []
    clicks = [threading.Thread(target=post, args=(url, statuses)) for _ in range(5)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    print("five clicks at once are answered", sorted(statuses))
    assert sorted(statuses) == [201, 409, 409, 409, 409]
    post(url, statuses)
    print("and one later", statuses[-1])
    assert statuses[-1] == 409 and len(shop.database.orders) == 1
    shop.shutdown()
    shop.server_close()
    shop.client.close()


if __name__ == "__main__":
    main()
