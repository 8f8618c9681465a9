"""One active consumer among the pods of a Deployment: the others stand by, and one of them goes on when the
active one ends.

Each pod serves /healthz, so that Kubernetes restarts a pod whose work does not stop. SIGTERM, which Kubernetes
sends to a pod that is to end, lets the consumer finish its message and give the leadership up. Here the queue
holds three messages, and the program ends when they are consumed.

`python examples/python/singleton_consumer.py`
"""

import http.server
import queue
import signal
import threading
import uuid

import leasehold_lock as leasehold


class Table:
    """Stands in for the database. It rejects a fence that is smaller than one it has seen."""

    def __init__(self) -> None:
        self.fence = 0
        self.rows: list[str] = []

    def insert(self, row: str, fence: int) -> None:
        if fence < self.fence:
            raise RuntimeError(f"fence {fence} is smaller than {self.fence}")
        self.fence = fence
        self.rows.append(row)


def consume(messages: "queue.Queue[str]", table: Table, term: leasehold.Term) -> None:
    """The work of the leader. It ends when its term does, and here also when no message is left."""
    while not messages.empty() and not term.ended_within(0.01):
        table.insert(messages.get(), term.fence)


def serve_health(election: leasehold.Election) -> http.server.HTTPServer:
    """Answers 200 while all is well, also on a standby, and else 503. In a pod it has a port of its own."""

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if election.healthy else 503)
            self.end_headers()
            self.wfile.write(election.state.name.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    client = leasehold.connect()
    # A name of its own for each run; yours would be just "consumer:orders".
    election = client.election(f"consumer:orders:{uuid.uuid4()}", ttl=15, on_change=print)
    signal.signal(signal.SIGTERM, lambda *_: election.stop())
    health = serve_health(election)
    messages: queue.Queue[str] = queue.Queue()
    for number in range(3):
        messages.put(f"order {number}")
    table = Table()
    election.run_as_leader(lambda term: consume(messages, table, term))
    print(f"consumed {table.rows} with fence {table.fence}")
    assert table.rows == ["order 0", "order 1", "order 2"]
    health.shutdown()
    client.close()


if __name__ == "__main__":
    main()
