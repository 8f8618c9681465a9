"""What `leasehold_lock.otel` tells, read back from OpenTelemetry's own SDK."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import pytest
from conftest import Until
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from server import Server

import leasehold_lock as leasehold
import leasehold_lock.aio
import leasehold_lock.otel


class Seen:
    """What has been exported."""

    def __init__(self) -> None:
        self.spans, self.tracers = InMemorySpanExporter(), TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def instrument(self, client: leasehold.Client, names: bool = False) -> leasehold.Client:
        return leasehold_lock.otel.instrument(
            client, names=names, tracer_provider=self.tracers, meter_provider=self.meters
        )

    def finished(self) -> list[ReadableSpan]:
        return list(self.spans.get_finished_spans())

    def outcomes(self) -> list[tuple[str, Any]]:
        return [
            (one.name, (one.attributes or {}).get("leasehold.outcome")) for one in self.finished()
        ]

    def _metric(self, name: str) -> Metric:
        read = self.reader.get_metrics_data()
        assert read is not None
        (scope,) = read.resource_metrics[0].scope_metrics
        (metric,) = (one for one in scope.metrics if one.name == name)
        return metric

    def points(self, name: str) -> dict[tuple[Any, ...], float]:
        """The figures of a metric, or how many times it has, by the values of its labels."""
        points: dict[tuple[Any, ...], float] = {}
        for one in self._metric(name).data.data_points:
            key = tuple(value for _, value in sorted((one.attributes or {}).items()))
            assert isinstance(one, (NumberDataPoint, HistogramDataPoint))
            points[key] = one.value if isinstance(one, NumberDataPoint) else one.count
        return points


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def client(server: Server, seen: Seen) -> Iterator[leasehold.Client]:
    url = server.url + "?io_timeout=20s"
    with leasehold.connect(url, metrics_groups=["otel:*", "otel:eu:*", "otel:eu:1"]) as made:
        yield seen.instrument(made)


def test_a_call_and_a_lease_have_a_span_each(client: leasehold.Client, seen: Seen) -> None:
    with seen.tracers.get_tracer("program").start_as_current_span("order"):
        parent = trace.get_current_span()
        with client.lock("otel:1") as lease:
            assert len(seen.finished()) == 1
        wait, hold = seen.finished()
    assert wait.attributes == {"leasehold.group": "otel:*", "leasehold.outcome": "granted"}
    assert hold.attributes == {
        "leasehold.group": "otel:*",
        "leasehold.fence": lease.fence,
        "leasehold.outcome": "released",
    }
    for span in (wait, hold):
        assert span.parent is not None
        assert span.parent.span_id == parent.get_span_context().span_id
        assert span.status.is_unset


def test_each_call_says_how_it_ended(client: leasehold.Client, seen: Seen) -> None:
    lock = client.lock("otel:2", wait=0.05)
    with lock.acquire_within(20) as held:
        with ThreadPoolExecutor() as threads:
            assert threads.submit(lock.try_acquire).result() is None
            with pytest.raises(leasehold.Timeout):
                threads.submit(lock.acquire).result()
        held.let_expire(after=0.01)
    with leasehold.connect("redis://127.0.0.1:1") as away:
        with pytest.raises(leasehold.Refused):
            seen.instrument(away).lock("otel:2").acquire()
    assert seen.outcomes() == [
        ("leasehold.wait", "granted"),
        ("leasehold.wait", "busy"),
        ("leasehold.wait", "timed_out"),
        ("leasehold.hold", "left_to_expire"),
        ("leasehold.wait", "failed"),
    ]
    timed_out, failed = seen.finished()[2], seen.finished()[4]
    assert not timed_out.status.is_ok and not failed.status.is_ok
    assert (timed_out.attributes or {})["error.type"] == "Timeout"


def test_a_name_is_told_only_if_asked(server: Server, seen: Seen) -> None:
    for names in (False, True):
        seen.spans.clear()
        with leasehold.connect(server.url + "?io_timeout=20s") as made:
            client = seen.instrument(made, names)
            with client.lock("user:anna@example.com"):
                with pytest.raises(leasehold.Timeout), ThreadPoolExecutor() as threads:
                    lock = client.lock("user:anna@example.com", wait=0)
                    threads.submit(lock.acquire).result()
        for span in seen.finished():
            about = dict(span.attributes or {})
            assert ("leasehold.name" in about) is names
            assert ("anna" in span.to_json()) is names, span.to_json()


def test_a_group_is_the_one_that_is_counted(client: leasehold.Client, seen: Seen) -> None:
    for name in ("otel:us:1", "otel:eu:2", "otel:eu:1", "else"):
        client.lock(name).acquire().release()
    groups = [(one.attributes or {})["leasehold.group"] for one in seen.finished()[1::2]]
    assert groups == ["otel:*", "otel:eu:*", "otel:eu:1", "*"]
    granted, held = seen.points("leasehold.acquisitions"), seen.points("leasehold.hold")
    for group in groups:
        assert granted[group, "granted"] == held[group,] == 1


def test_a_loss_ends_the_span_of_the_lease(
    client: leasehold.Client, seen: Seen, until: Until
) -> None:
    lock = client.lock("otel:lost", ttl=0.3)
    lease = lock.acquire()
    lock.break_held("an operator")
    until(lambda: len(seen.finished()) == 2)
    hold = seen.finished()[1]
    assert (hold.attributes or {})["leasehold.outcome"] == "lost"
    assert (hold.attributes or {})["leasehold.reason"] == "broken"
    assert not hold.status.is_ok
    with pytest.raises(leasehold.Lost):
        lease.release()
    assert len(seen.finished()) == 2
    assert seen.points("leasehold.lost")["otel:*",] == 1


def test_a_release_that_finds_the_lock_gone_says_so(client: leasehold.Client, seen: Seen) -> None:
    lock = client.lock("otel:gone", renew=False)
    with pytest.raises(leasehold.Lost):
        with lock as lease:
            lock.break_held("an operator")
            lease.release()
    assert seen.outcomes()[-1] == ("leasehold.hold", "lost")


def test_a_block_that_raises_releases(client: leasehold.Client, seen: Seen) -> None:
    with pytest.raises(KeyError):
        with client.lock("otel:raised"):
            raise KeyError
    assert seen.outcomes() == [("leasehold.wait", "granted"), ("leasehold.hold", "released")]


def test_tasks_have_spans_too(client: leasehold.Client, seen: Seen) -> None:
    async def work() -> None:
        lock = client.lock("otel:task")
        with seen.tracers.get_tracer("program").start_as_current_span("order"):
            async with lock:
                with pytest.raises(leasehold.Timeout):
                    await leasehold_lock.aio.acquire_within(lock, 0.05)
                assert await leasehold_lock.aio.try_acquire(lock) is None
                waits = asyncio.ensure_future(leasehold_lock.aio.acquire(lock))
                await asyncio.sleep(0.05)
                waits.cancel()
                await asyncio.wait([waits])
            await leasehold_lock.aio.release(await leasehold_lock.aio.acquire(lock))

    asyncio.run(work())
    assert seen.outcomes() == [
        ("leasehold.wait", "granted"),
        ("leasehold.wait", "timed_out"),
        ("leasehold.wait", "busy"),
        ("leasehold.wait", "interrupted"),
        ("leasehold.hold", "released"),
        ("leasehold.wait", "granted"),
        ("leasehold.hold", "released"),
        ("order", None),
    ]
    order = seen.finished()[-1].get_span_context()
    assert order is not None
    for span in seen.finished()[:-1]:
        assert span.parent is not None and span.parent.span_id == order.span_id, span.name


def test_a_lease_that_is_handed_over_ends_here_and_goes_on_there(
    client: leasehold.Client, seen: Seen
) -> None:
    lock = client.lock("otel:handed")
    token, fence = lock.acquire().detach()
    with lock.attach(token, fence) as lease:
        lease.extend()
    assert seen.outcomes()[1:] == [("leasehold.hold", "detached"), ("leasehold.hold", "released")]


def test_a_forgotten_lease_ends_its_span(client: leasehold.Client, seen: Seen) -> None:
    lease: Optional[leasehold.Lease] = client.lock("otel:forgotten", ttl=1).acquire()
    assert lease is not None
    del lease
    gc.collect()
    assert seen.outcomes()[-1] == ("leasehold.hold", "forgotten")


def test_metrics_are_those_of_the_text(client: leasehold.Client, seen: Seen) -> None:
    with client.lock("otel:3"):
        assert seen.points("leasehold.held")["otel:*",] == 1
        assert seen.points("leasehold.oldest.hold")["otel:*",] > 0
    for name in ("attempts", "busy", "unknown", "renewed", "lost", "released.late", "waiting"):
        for (group,), value in seen.points(f"leasehold.{name}").items():
            series = f"leasehold_{name.replace('.', '_')}"
            series += "" if name == "waiting" else "_total"
            assert f'{series}{{lock="{group}"}} {value:g}\n' in client.metrics_text()


def test_two_clients_are_added_up_and_a_forgotten_one_is_left_out(
    server: Server, seen: Seen
) -> None:
    clients = [seen.instrument(leasehold.connect(server.url + "?io_timeout=20s")) for _ in "ab"]
    for number, client in enumerate(clients):
        client.lock(f"otel:sum:{number}").acquire().release()
    assert seen.points("leasehold.acquisitions")["*", "granted"] == 2
    del client
    clients.pop().close()
    gc.collect()
    assert seen.points("leasehold.acquisitions")["*", "granted"] == 1


def test_what_cannot_be_instrumented_is_refused(client: leasehold.Client) -> None:
    with pytest.raises(leasehold.BadArgument, match="instrumented already"):
        leasehold_lock.otel.instrument(client)
    wrong: Any = "redis://localhost"
    with pytest.raises(TypeError, match="takes a leasehold.Client, not str"):
        leasehold_lock.otel.instrument(wrong)


def test_without_opentelemetry_the_import_says_what_to_install() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import leasehold_lock.otel"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (
        "leasehold_lock.otel needs OpenTelemetry: pip install 'leasehold-lock[otel]'"
        in ended.stderr
    )


def test_a_forked_child_ends_no_span_of_its_parent(client: leasehold.Client, seen: Seen) -> None:
    lease = client.lock("otel:fork").acquire()
    child = os.fork()
    if child == 0:
        del lease
        gc.collect()
        os._exit(len(seen.finished()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    lease.release()
    assert seen.outcomes()[-1] == ("leasehold.hold", "released")
