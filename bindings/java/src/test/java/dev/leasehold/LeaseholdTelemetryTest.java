package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.metrics.data.PointData;
import io.opentelemetry.sdk.testing.exporter.InMemoryMetricReader;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What OpenTelemetry's own SDK is told. */
class LeaseholdTelemetryTest {
    private static final Duration LIMIT = ofSeconds(60);

    private final InMemorySpanExporter spans = InMemorySpanExporter.create();
    private final InMemoryMetricReader reader = InMemoryMetricReader.create();
    private final OpenTelemetrySdk sdk = OpenTelemetrySdk.builder()
            .setTracerProvider(SdkTracerProvider.builder()
                    .addSpanProcessor(SimpleSpanProcessor.create(spans)).build())
            .setMeterProvider(SdkMeterProvider.builder().registerMetricReader(reader).build())
            .build();
    private final String url = RedisServer.shared().url() + "?io_timeout=20s&advise=no";
    /** Of this test. */
    private final String prefix = Names.fresh();

    private LeaseholdClient client;

    @BeforeEach
    void open() {
        client = instrument(LeaseholdClient.configure(url).prefix(prefix)
                .metricsGroup("otel:*").metricsGroup("otel:eu:*").metricsGroup("otel:eu:1").connect());
    }

    @AfterEach
    void close() {
        client.close();
        sdk.close();
    }

    private LeaseholdClient instrument(LeaseholdClient opened) {
        return LeaseholdTelemetry.create(sdk).instrument(opened);
    }

    private static String text(SpanData span, String attribute) {
        return span.getAttributes().get(AttributeKey.stringKey(attribute));
    }

    /** Of each span that has ended, in that order. */
    private List<String> outcomes() {
        return spans.getFinishedSpanItems().stream()
                .map(span -> span.getName().replace("leasehold.", "") + " " + text(span, "leasehold.outcome")).toList();
    }

    private SpanData span(int number) {
        return spans.getFinishedSpanItems().get(number);
    }

    private MetricData metric(String name) {
        return reader.collectAllMetrics().stream().filter(metric -> metric.getName().equals(name)).findAny()
                .orElseThrow();
    }

    /** The figures of a metric, or how many times it has, by the values of its labels. */
    private Map<String, Double> points(String name) {
        var points = new TreeMap<String, Double>();
        MetricData metric = metric(name);
        metric.getHistogramData().getPoints().forEach(point -> points.put(labels(point), (double) point.getCount()));
        metric.getLongSumData().getPoints().forEach(point -> points.put(labels(point), (double) point.getValue()));
        metric.getLongGaugeData().getPoints().forEach(point -> points.put(labels(point), (double) point.getValue()));
        metric.getDoubleGaugeData().getPoints().forEach(point -> points.put(labels(point), point.getValue()));
        return points;
    }

    private static String labels(PointData point) {
        return point.getAttributes().asMap().values().stream().map(Object::toString).collect(Collectors.joining(" "));
    }

    private Span inSpan(Eventually.Test work) throws Exception {
        Span order = sdk.getTracer("program").spanBuilder("order").startSpan();
        try (Scope scope = order.makeCurrent()) {
            work.run();
        }
        return order;
    }

    @Test
    void aCallAndALeaseHaveASpanEach() throws Exception {
        long[] fence = new long[1];
        Span order = inSpan(() -> {
            try (Lease lease = client.lock("otel:1").acquire()) {
                assertEquals(List.of("wait granted"), outcomes());
                fence[0] = lease.fence();
            }
        });
        assertEquals(List.of("wait granted", "hold released"), outcomes());
        assertEquals(
                Attributes.builder().put("leasehold.group", "otel:*").put("leasehold.outcome", "granted").build()
                        .asMap(),
                span(0).getAttributes().asMap());
        assertEquals(
                Attributes.builder().put("leasehold.group", "otel:*").put("leasehold.outcome", "released")
                        .put("leasehold.fence", fence[0]).build().asMap(),
                span(1).getAttributes().asMap());
        for (SpanData span : spans.getFinishedSpanItems()) {
            assertEquals(order.getSpanContext().getSpanId(), span.getParentSpanId());
            assertEquals(StatusCode.UNSET, span.getStatus().getStatusCode());
            assertEquals("leasehold", span.getInstrumentationScopeInfo().getName());
        }
    }

    @Test
    void eachCallSaysHowItEnded() throws Exception {
        NamedLock lock = client.lock("otel:2");
        Lease held = lock.acquire();
        assertNull(lock.tryAcquire());
        assertThrows(LeaseTimeoutException.class, () -> lock.acquireWithin(ofMillis(50)));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::acquire);
        held.letExpireIn(ofMillis(10));
        assertThrows(LeaseLostException.class, held::release);
        try (var away = instrument(LeaseholdClient.connect("redis://127.0.0.1:1"))) {
            assertThrows(LeaseholdException.class, () -> away.lock("otel:2").acquire());
        }
        assertEquals(
                List.of("wait granted", "wait busy", "wait timed_out", "wait interrupted", "hold left_to_expire",
                        "wait failed"),
                outcomes());
        assertEquals("Timeout", text(span(2), "error.type"));
        assertEquals("java.lang.InterruptedException", text(span(3), "error.type"));
        assertEquals("Refused", text(span(5), "error.type"));
        for (int failed : new int[] {2, 3, 5}) {
            assertEquals(StatusCode.ERROR, span(failed).getStatus().getStatusCode());
        }
        assertEquals(StatusCode.UNSET, span(1).getStatus().getStatusCode());
    }

    @Test
    void aNameIsToldOnlyIfAsked() throws Exception {
        for (boolean names : new boolean[] {false, true}) {
            spans.reset();
            try (var opened = LeaseholdClient.connect(url)) {
                LeaseholdTelemetry.create(sdk).withNames(names).instrument(opened);
                NamedLock lock = opened.lock("user:anna@" + prefix);
                try (Lease lease = lock.acquire()) {
                    assertThrows(LeaseTimeoutException.class, () -> lock.acquireWithin(ofMillis(1)));
                }
            }
            assertEquals(3, outcomes().size());
            for (SpanData span : spans.getFinishedSpanItems()) {
                assertEquals(names ? "user:anna@" + prefix : null, text(span, "leasehold.name"));
                String all = span + span.getEvents().toString() + span.getStatus();
                assertEquals(names, all.contains("anna"), all);
            }
            assertEquals(names ? 1 : 0, span(1).getEvents().size());
        }
    }

    @Test
    void aGroupIsTheOneThatIsCounted() throws Exception {
        List<String> groups = List.of("otel:*", "otel:eu:*", "otel:eu:1", "*");
        for (String name : new String[] {"otel:us:1", "otel:eu:2", "otel:eu:1", "else"}) {
            client.lock(name).acquire().release();
        }
        for (int i = 0; i < groups.size(); i++) {
            assertEquals(groups.get(i), text(span(2 * i), "leasehold.group"));
            assertEquals(groups.get(i), text(span(2 * i + 1), "leasehold.group"));
            assertEquals(1, points("leasehold.acquisitions").get(groups.get(i) + " granted"));
            assertEquals(1, points("leasehold.hold").get(groups.get(i)));
            assertEquals(1, points("leasehold.wait").get(groups.get(i)));
        }
    }

    @Test
    void aLossEndsTheSpanOfTheLease() throws Exception {
        NamedLock lock = client.lock("otel:lost").ttl(ofSeconds(3));
        Lease lease = lock.acquire();
        lock.breakHeld("an operator");
        Eventually.holds(LIMIT, () -> outcomes().size() == 2);
        assertEquals("hold lost", outcomes().get(1));
        assertEquals("broken", text(span(1), "leasehold.reason"));
        assertEquals(StatusCode.ERROR, span(1).getStatus().getStatusCode());
        assertThrows(LeaseLostException.class, lease::release);
        assertEquals(2, outcomes().size());
        assertEquals(1, points("leasehold.lost").get("otel:*"));
    }

    @Test
    void aReleaseThatFindsTheLockGoneSaysSo() throws Exception {
        NamedLock lock = client.lock("otel:gone").renew(false);
        for (boolean closes : new boolean[] {false, true}) {
            Lease lease = lock.acquire();
            lock.breakHeld("an operator");
            assertThrows(LeaseLostException.class, closes ? lease::close : lease::release);
            assertEquals("hold lost", outcomes().get(outcomes().size() - 1));
        }
        assertEquals("Lost", text(span(1), "error.type"));
    }

    @Test
    void futuresHaveSpansToo() throws Exception {
        NamedLock lock = client.lock("otel:future");
        Span order = inSpan(() -> {
            Lease lease = lock.acquireAsync().get();
            var late = assertThrows(ExecutionException.class, () -> lock.acquireAsync(ofMillis(50)).get());
            assertEquals(LeaseTimeoutException.class, late.getCause().getClass());
            var cancelled = lock.acquireAsync();
            assertTrue(cancelled.cancel(true));
            assertThrows(CancellationException.class, cancelled::get);
            lease.close();
        });
        assertEquals(List.of("wait granted", "wait timed_out", "wait interrupted", "hold released"), outcomes());
        for (SpanData span : spans.getFinishedSpanItems()) {
            assertEquals(order.getSpanContext().getSpanId(), span.getParentSpanId());
        }
    }

    @Test
    void aLockOfThePlatformHasThemToo() throws Exception {
        LeaseholdLock lock = client.lock("otel:lock").asLock();
        lock.lock();
        assertTrue(lock.tryLock());
        lock.unlock();
        lock.unlock();
        assertEquals(List.of("wait granted", "hold released"), outcomes());
    }

    @Test
    void aLeaseThatIsHandedOverEndsHereAndGoesOnThere() throws Exception {
        NamedLock lock = client.lock("otel:handed");
        Handover handover = lock.acquire().detach();
        try (Lease lease = lock.attach(handover.token(), handover.fence())) {
            lease.extend();
        }
        assertEquals(List.of("wait granted", "hold detached", "hold released"), outcomes());
        lock.acquire().letExpire();
        assertEquals("hold left_to_expire", outcomes().get(4));
    }

    @Test
    void aForgottenLeaseEndsItsSpan() throws Exception {
        client.lock("otel:forgotten").ttl(ofSeconds(1)).acquire();
        Eventually.holds(LIMIT, () -> {
            System.gc();
            return outcomes().size() == 2;
        });
        assertEquals("hold forgotten", outcomes().get(1));
    }

    @Test
    void aCallThatWasRefusedLeavesTheLeaseAndItsSpan() throws Exception {
        try (Lease lease = client.lock("otel:refused").acquire()) {
            var error = assertThrows(LeaseholdException.class, () -> lease.letExpireIn(ofMillis(0)));
            assertEquals(Status.BAD_ARGUMENT, error.status());
            assertEquals(1, outcomes().size());
        }
        assertEquals("hold released", outcomes().get(1));
    }

    @Test
    void metricsAreThoseOfTheText() throws Exception {
        try (Lease lease = client.lock("otel:3").acquire()) {
            assertTrue(lease.isValid());
            assertEquals(1, points("leasehold.held").get("otel:*"));
            assertTrue(points("leasehold.oldest.hold").get("otel:*") > 0);
        }
        String text = client.metricsText();
        for (String name : List.of("attempts", "busy", "unknown", "renewed", "lost", "released.late", "waiting")) {
            String series = "leasehold_" + name.replace('.', '_') + (name.equals("waiting") ? "" : "_total");
            Map<String, Double> points = points("leasehold." + name);
            assertEquals(4, points.size(), name + points);
            points.forEach((group, value) -> {
                String line = series + "{lock=\"" + group + "\"} " + value.longValue() + "\n";
                assertTrue(text.contains(line), line + text);
            });
        }
        assertEquals("s", metric("leasehold.wait").getUnit());
        assertEquals(16, metric("leasehold.wait").getHistogramData().getPoints().iterator().next().getBoundaries()
                .size());
    }

    @Test
    void twoClientsAreAddedUpAndAForgottenOneIsLeftOut() throws Exception {
        client.lock("one").acquire().release();
        useAndForget();
        Eventually.holds(LIMIT, () -> {
            System.gc();
            return points("leasehold.acquisitions").get("* granted") == 1;
        });
        assertNotEquals(0, client.counters().granted());
    }

    private void useAndForget() throws Exception {
        var other = instrument(LeaseholdClient.configure(url).prefix(prefix).connect());
        other.lock("two").acquire().release();
        assertEquals(2, points("leasehold.acquisitions").get("* granted"));
        Reference.reachabilityFence(other);
    }

    /** A processor of spans that fails as each of them ends, or as the span of a lease begins. */
    private record Broken(boolean atEnd) implements SpanProcessor {
        @Override
        public void onStart(Context parent, ReadWriteSpan span) {
            if (!atEnd && span.getName().equals("leasehold.hold")) {
                throw new IllegalStateException("on purpose");
            }
        }

        @Override
        public boolean isStartRequired() {
            return true;
        }

        @Override
        public void onEnd(ReadableSpan span) {
            if (atEnd) {
                throw new IllegalStateException("on purpose");
            }
        }

        @Override
        public boolean isEndRequired() {
            return true;
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aLeaseThatCannotBeToldOfIsReleased(boolean atEnd) throws Exception {
        try (var broken = OpenTelemetrySdk.builder()
                        .setTracerProvider(SdkTracerProvider.builder().addSpanProcessor(new Broken(atEnd)).build())
                        .build();
                var opened = LeaseholdClient.configure(url).prefix(prefix).connect()) {
            LeaseholdTelemetry.create(broken).instrument(opened);
            NamedLock lock = opened.lock("untold");
            assertThrows(IllegalStateException.class, lock::tryAcquire);
            assertFalse(lock.inspect().isHeld());
            assertThrows(IllegalStateException.class, lock::acquire);
            assertFalse(lock.inspect().isHeld());
            var wait = lock.acquireAsync();
            var failed = assertThrows(ExecutionException.class, () -> wait.get(LIMIT.toSeconds(), TimeUnit.SECONDS));
            assertEquals(IllegalStateException.class, failed.getCause().getClass());
            assertFalse(lock.inspect().isHeld());
            try (Lease held = client.lock("untold").acquire()) {
                var late = lock.acquireAsync(ofMillis(50), ForkJoinPool.commonPool());
                failed = assertThrows(ExecutionException.class, () -> late.get(LIMIT.toSeconds(), TimeUnit.SECONDS));
                assertEquals(LeaseTimeoutException.class, failed.getCause().getClass());
                assertTrue(held.isValid());
            }
        }
    }

    @Test
    void aClientIsInstrumentedOnce() {
        var error = assertThrows(LeaseholdException.class, () -> instrument(client));
        assertEquals(Status.BAD_ARGUMENT, error.status());
        assertTrue(error.getMessage().contains("instrumented already"), error.getMessage());
        assertThrows(NullPointerException.class, () -> LeaseholdTelemetry.create(null));
    }
}
