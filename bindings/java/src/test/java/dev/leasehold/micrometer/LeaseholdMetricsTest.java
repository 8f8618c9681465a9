package dev.leasehold.micrometer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.MemoryStore;
import io.micrometer.core.instrument.Meter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What registries show of a client. */
class LeaseholdMetricsTest {
    private final MemoryStore store = MemoryStore.create();
    private final LeaseholdClient client =
            LeaseholdClient.configure(store.url()).metricsGroup("stock:*").metricsGroup("a\"b\\c").connect();

    @AfterEach
    void close() {
        client.close();
        store.close();
    }

    /** Of one group. */
    private static double value(MeterRegistry registry, String name, String lock) {
        return registry.get(name).tag("lock", lock).meter().measure().iterator().next().getValue();
    }

    @Test
    void aRegistryShowsWhatWasCountedByGroupsAndNoName() throws Exception {
        var registry = new SimpleMeterRegistry();
        new LeaseholdMetrics(client).bindTo(registry);
        client.lock("stock:17").acquire().release();
        client.lock("a\"b\\c").acquire().release();
        try (var held = client.lock("user:42").acquire()) {
            assertEquals(null, client.lock("user:42").tryAcquire());
            for (String outcome : List.of("granted", "busy")) {
                var acquisitions = registry.get("leasehold.acquisitions").tags("lock", "*", "outcome", outcome);
                assertEquals(1, acquisitions.functionCounter().count(), outcome);
            }
            assertEquals(1, value(registry, "leasehold.busy", "*"));
            assertEquals(1, value(registry, "leasehold.held", "*"));
            assertTrue(value(registry, "leasehold.oldest.hold", "*") > 0);
        }
        assertEquals(0, value(registry, "leasehold.held", "*"));
        for (String lock : List.of("stock:*", "a\"b\\c", "*")) {
            var hold = registry.get("leasehold.hold").tag("lock", lock).functionTimer();
            assertEquals(1, hold.count());
            assertTrue(hold.totalTime(TimeUnit.SECONDS) > 0, lock);
            assertEquals(0, value(registry, "leasehold.lost", lock));
        }
        // Six outcomes, six more counters, four timers and three gauges.
        assertEquals(3 * (6 + 6 + 4 + 3), registry.getMeters().size());
        for (Meter meter : registry.getMeters()) {
            assertTrue(meter.getId().getTags().stream().noneMatch(tag -> tag.getValue().contains("user")));
        }
    }

    /** Read again at once, each figure is new. */
    @Test
    void aFigureIsNeverReadTwice() throws Exception {
        var registry = new SimpleMeterRegistry();
        new LeaseholdMetrics(client).bindTo(registry);
        for (int i = 1; i <= 50; i++) {
            client.lock("n").acquire().release();
            assertEquals(i, value(registry, "leasehold.attempts", "*"));
        }
    }

    @Test
    void prometheusShowsTheNamesOfTheDashboard() throws Exception {
        var registry = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        new LeaseholdMetrics(client).bindTo(registry);
        client.lock("stock:17").acquire().release();
        String scraped = registry.scrape();
        for (String line : client.metricsText().split("\n")) {
            // Durations differ, and so does the way in which both write a number.
            String series = line.substring(0, line.lastIndexOf(' ') + 1);
            if (!line.startsWith("#") && !line.contains("_bucket{")) {
                assertTrue(scraped.contains(series), series + "is not in\n" + scraped);
            }
        }
        assertTrue(scraped.contains("leasehold_hold_seconds_count{lock=\"stock:*\"} 1\n"), scraped);
        assertTrue(scraped.contains("leasehold_lost_total{lock=\"*\"} 0.0\n"), scraped);
    }

    @Test
    void twoClientsAreToldApartByTags() throws Exception {
        var registry = new SimpleMeterRegistry();
        try (var second = LeaseholdClient.connect(store.url())) {
            new LeaseholdMetrics(client, Tags.of("store", "first")).bindTo(registry);
            new LeaseholdMetrics(second, Tags.of("store", "second")).bindTo(registry);
            second.lock("n").acquire().release();
            assertEquals(0, registry.get("leasehold.attempts").tags("store", "first", "lock", "*")
                    .functionCounter().count());
            assertEquals(1, registry.get("leasehold.attempts").tags("store", "second", "lock", "*")
                    .functionCounter().count());
        }
    }

    @Test
    void theLastFiguresAreThereAfterTheClientWasClosed() throws Exception {
        var registry = new SimpleMeterRegistry();
        new LeaseholdMetrics(client).bindTo(registry);
        client.lock("n").acquire().release();
        client.close();
        assertEquals(1, value(registry, "leasehold.attempts", "*"));
        assertEquals(0, value(registry, "leasehold.held", "*"));
        new LeaseholdMetrics(client, Tags.of("late", "yes")).bindTo(registry);
        assertEquals(1, registry.get("leasehold.attempts").tags("late", "yes", "lock", "*").functionCounter().count());
    }

    @Test
    void aClientThatIsMissingIsToldAtOnce() {
        assertThrows(NullPointerException.class, () -> new LeaseholdMetrics(null));
    }
}
