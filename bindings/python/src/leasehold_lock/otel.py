"""Spans and metrics for OpenTelemetry: ``pip install 'leasehold-lock[otel]'``.

::

    import leasehold_lock as leasehold
    import leasehold_lock.otel

    client = leasehold_lock.otel.instrument(leasehold.connect("redis://cache"))

From then on each call that acquires a lock of this client has a span ``leasehold.wait``, and each lease a
span ``leasehold.hold`` that ends when the lease is released or lost. Metrics have the names and the
labels of ``Client.metrics_text()``.

Spans and metrics say to which group a lock belongs: one of the client's `metrics_groups`, or ``*``.
The name of a lock is in a span only if you ask for it.
"""

import contextlib
import os
import re
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Callable, Optional, TypeVar

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "leasehold_lock.otel needs OpenTelemetry: pip install 'leasehold-lock[otel]'"
    ) from error

from ._client import Client
from ._errors import Error, Forked, Interrupted, Lost, Timeout, Unknown, bad_argument
from ._events import Event
from ._lease import Handover, Lease
from ._lock import Lock
from ._time import Seconds
from ._watcher import here

__all__ = ["instrument"]

_T = TypeVar("_T")
_L = TypeVar("_L", bound=Optional[Lease])

_COUNTERS = {
    "acquisitions": "Calls that acquired a lock or tried to, by how they ended.",
    "attempts": "Requests to the store for a lock, every try of a wait included.",
    "busy": "Requests for a lock that found it held.",
    "unknown": "Requests whose outcome stayed unknown.",
    "renewed": "Renewals that the store confirmed.",
    "lost": "Leases that were lost while held.",
    "released.late": "Releases that found the lease lost, or got no answer.",
}
_GAUGES = {
    "held": ("1", "Leases that are held now."),
    "waiting": ("1", "Calls of this process that stand in a queue now."),
    "oldest.hold": ("s", "Age of the oldest lease that is held; 0 without one."),
}
_HISTOGRAMS = {
    "wait": "From a call until it has the lock, or gives up.",
    "hold": "From acquiring a lock until the lease ends.",
}
#: Those of `Client.metrics_text()`, in seconds.
_BUCKETS = [n * 10.0**e for e in range(-4, 3) for n in (1, 3)] + [1000.0, 3600.0]
_SERIES = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def instrument(
    client: Client,
    *,
    names: bool = False,
    tracer_provider: Optional[TracerProvider] = None,
    meter_provider: Optional[MeterProvider] = None,
) -> Client:
    """Makes spans and metrics of what this client does from now on. Returns the client.

    - `names`: whether spans have the attribute ``leasehold.name``, the name of the lock, and the text of
      errors, which may have the name in it. Off by default: names often are made of what users type.
    - `tracer_provider`, `meter_provider`: the program's own by default.

    Locks that `Client.lock()` has made before are not instrumented. A client that is instrumented already
    raises `BadArgument`.

    >>> client = leasehold_lock.otel.instrument(leasehold.connect(memory.url))
    >>> with client.lock("orders:42") as lease:
    ...     lease.valid
    True
    """
    if not isinstance(client, Client):
        raise TypeError(f"instrument() takes a leasehold.Client, not {type(client).__name__}")
    if client._lock_type is not Lock:
        raise bad_argument("the client is instrumented already")
    client._lock_type = _Telemetry(
        client,
        names,
        trace.get_tracer("leasehold", tracer_provider=tracer_provider),
        _Meters.of(meter_provider or metrics.get_meter_provider()),
    ).lock
    return client


class _Telemetry:
    """What the locks of one client tell, and to whom."""

    def __init__(
        self, client: Client, names: bool, tracer: trace.Tracer, meters: "_Meters"
    ) -> None:
        self._groups = client._metrics_groups
        self.names = names
        self.tracer = tracer
        self.meters = meters
        meters.clients.add(client)

    def lock(self, client: Any, handle: Any) -> Lock:
        made = _TracedLock(client, handle)
        made._telemetry = self
        made._group = self._group(made.name)
        return made

    def _group(self, name: str) -> str:
        """The name itself, else the longest beginning of it: as the client counts."""
        if name in self._groups:
            return name
        fitting = [one for one in self._groups if one[-1:] == "*" and name.startswith(one[:-1])]
        return max(fitting, key=len, default="*")

    def start(self, what: str, lock: "_TracedLock") -> Span:
        about: dict[str, Any] = {"leasehold.group": lock._group}
        if self.names:
            about["leasehold.name"] = lock.name
        return self.tracer.start_span(what, attributes=about)

    def failed(self, span: Span, error: BaseException) -> None:
        """The text of an error has the name of the lock in it."""
        span.set_attribute("error.type", type(error).__name__)
        if self.names:
            span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error) if self.names else None))


class _Wait:
    """The span of a call that acquires."""

    __slots__ = ("_lock", "_span", "_began")

    def __init__(self, lock: "_TracedLock") -> None:
        self._lock = lock
        self._span = lock._telemetry.start("leasehold.wait", lock)
        self._began = time.monotonic()

    def end(self, lease: Optional[Lease]) -> None:
        """Of a call that returned, with a lease or without."""
        self._tell("busy" if lease is None else "granted")
        if lease is not None:
            _hold(self._lock, lease)

    def fail(self, error: BaseException) -> None:
        outcome = "failed"
        if isinstance(error, Timeout):
            outcome = "timed_out"
        elif isinstance(error, Unknown):
            outcome = "unknown"
        elif isinstance(error, Interrupted) or not isinstance(error, Exception):
            outcome = "interrupted"
        self._lock._telemetry.failed(self._span, error)
        self._tell(outcome)

    def _tell(self, outcome: str) -> None:
        self._lock._telemetry.meters.wait.record(
            time.monotonic() - self._began, {"lock": self._lock._group}
        )
        self._span.set_attribute("leasehold.outcome", outcome)
        self._span.end()


class _TracedLock(Lock):
    """A lock whose calls have spans."""

    __slots__ = ("_telemetry", "_group")

    _telemetry: _Telemetry
    _group: str

    def _traced(self, acquire: Callable[[], _L]) -> _L:
        wait = _Wait(self)
        try:
            lease = acquire()
        except BaseException as error:
            wait.fail(error)
            raise
        wait.end(lease)
        return lease

    def _take(self) -> Lease:
        return self._traced(super()._take)

    def try_acquire(self) -> Optional[Lease]:
        return self._traced(super().try_acquire)

    def acquire_within(self, wait: Seconds) -> Lease:
        ask = super().acquire_within
        return self._traced(lambda: ask(wait))

    async def _wait(self, wait: Optional[Seconds]) -> Lease:
        began = _Wait(self)
        try:
            lease = await super()._wait(wait)
        except BaseException as error:
            began.fail(error)
            raise
        began.end(lease)
        return lease

    def attach(self, token: str, fence: int) -> Lease:
        lease = super().attach(token, fence)
        _hold(self, lease)
        return lease


class _Hold:
    """The span of a lease. It ends once: when the lease does, or when that is lost."""

    __slots__ = ("_telemetry", "_group", "_span", "_began", "_is_open", "_process", "__weakref__")

    def __init__(self, lock: _TracedLock, lease: Lease) -> None:
        self._telemetry = lock._telemetry
        self._group = lock._group
        self._span = lock._telemetry.start("leasehold.hold", lock)
        self._span.set_attribute("leasehold.fence", lease.fence)
        self._began = time.monotonic()
        self._is_open = [True]
        self._process = os.getpid()

    def end(self, outcome: str, error: Optional[BaseException] = None, reason: str = "") -> None:
        try:
            self._is_open.pop()  # Of two threads, one gets it.
        except IndexError:
            return
        if self._process != os.getpid():
            return  # Of the parent, which tells of it.
        self._telemetry.meters.hold.record(time.monotonic() - self._began, {"lock": self._group})
        self._span.set_attribute("leasehold.outcome", outcome)
        if reason:
            self._span.set_attribute("leasehold.reason", reason)
        if error is not None:
            self._telemetry.failed(self._span, error)
        elif reason:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def fail(self, error: BaseException) -> None:
        self.end("lost" if isinstance(error, Lost) else "unknown", error)

    def lost(self, event: Event) -> None:
        self.end("lost", reason=event.reason.name.lower())

    def __del__(self) -> None:
        self.end("forgotten")


class _TracedLease(Lease):
    """A lease that ends its span."""

    __slots__ = ()

    def _give(self, wait: Any, raised: bool) -> None:
        self._ending("released", lambda: super(_TracedLease, self)._give(wait, raised))

    def let_expire(self, after: Optional[Seconds] = None) -> None:
        self._ending("left_to_expire", lambda: super(_TracedLease, self).let_expire(after))

    def detach(self) -> Handover:
        return self._ending("detached", super().detach)

    def _warn(self, error: Error) -> None:
        self._hold.fail(error)
        super()._warn(error)

    def _ending(self, outcome: str, call: Callable[[], _T]) -> _T:
        try:
            result = call()
        except BaseException as error:
            # One that is the parent's, or was asked for nonsense, goes on.
            if not isinstance(error, Forked) and not self._rooms:
                self._hold.fail(error)
            raise
        self._hold.end(outcome)
        return result


def _hold(lock: _TracedLock, lease: Lease) -> None:
    """Begins the span of a lease."""
    lease._hold = hold = _Hold(lock, lease)
    lease.__class__ = _TracedLease
    # Beside what the program registers. The lease keeps both, and the callback not the lease. If the
    # lease has ended already, its end tells.
    with contextlib.suppress(Error):
        lease._client._watcher.add(lease, hold.lost, here)


class _Meters:
    """The instruments of one provider, and the clients that they read."""

    @classmethod
    def of(cls, provider: MeterProvider) -> "_Meters":
        if provider not in _by_provider:
            _by_provider[provider] = cls(provider)
        return _by_provider[provider]

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("leasehold")
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()
        for name, help in _COUNTERS.items():
            read = self._reader(f"leasehold_{name.replace('.', '_')}_total", sum)
            meter.create_observable_counter(f"leasehold.{name}", [read], "1", help)
        for name, (unit, help) in _GAUGES.items():
            seconds = "_seconds" if unit == "s" else ""
            whole = f"leasehold_{name.replace('.', '_')}{seconds}"
            read = self._reader(whole, max if seconds else sum)
            meter.create_observable_gauge(f"leasehold.{name}", [read], unit, help)
        self.wait, self.hold = (
            meter.create_histogram(
                f"leasehold.{name}", "s", help, explicit_bucket_boundaries_advisory=_BUCKETS
            )
            for name, help in _HISTOGRAMS.items()
        )

    wait: Histogram
    hold: Histogram

    def _reader(
        self, series: str, join: Callable[[list[float]], float]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Reads one figure of all clients. It keeps none of them open."""
        mine = weakref.ref(self)

        def read(_: CallbackOptions) -> Iterable[Observation]:
            figures: defaultdict[tuple[tuple[str, str], ...], list[float]] = defaultdict(list)
            meters = mine()
            for client in [] if meters is None else list(meters.clients):
                try:
                    text = client.metrics_text()
                except Error:
                    continue  # In a child of a fork that is about to end, say.
                for name, labels, figure in _SERIES.findall(text):
                    if name == series:
                        figures[_labels(labels)].append(float(figure))
            return [Observation(join(all), dict(labels)) for labels, all in figures.items()]

        return read


_by_provider: "weakref.WeakKeyDictionary[MeterProvider, _Meters]" = weakref.WeakKeyDictionary()


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    def plain(escaped: "re.Match[str]") -> str:
        return "\n" if escaped[1] == "n" else escaped[1]

    return tuple((name, _ESCAPED.sub(plain, value)) for name, value in _LABEL.findall(text))
