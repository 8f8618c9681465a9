package dev.leasehold;

import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.metrics.MeterProvider;
import io.opentelemetry.api.metrics.ObservableDoubleMeasurement;
import io.opentelemetry.api.metrics.ObservableLongMeasurement;
import io.opentelemetry.api.metrics.ObservableMeasurement;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The instruments of one provider, and the clients that they read: a name may have one instrument only.
 * They keep no client from being forgotten.
 */
final class LeaseholdMeters {
    private static final Map<MeterProvider, LeaseholdMeters> BY_PROVIDER = new WeakHashMap<>();
    /** Those of {@link LeaseholdClient#metricsText()}, in seconds. */
    private static final List<Double> BUCKETS = List.of(
            0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0);
    private static final Pattern SERIES = Pattern.compile("(?m)^(\\w+)\\{(.*)\\} (\\S+)$");
    private static final Pattern LABEL = Pattern.compile("(\\w+)=\"((?:[^\"\\\\]|\\\\.)*)\"");
    private static final Pattern ESCAPED = Pattern.compile("\\\\(.)");
    private static final AttributeKey<String> LOCK = AttributeKey.stringKey("lock");

    private final Set<LeaseholdClient> clients = Collections.newSetFromMap(new WeakHashMap<>());
    private final List<Figure> figures = new ArrayList<>();
    private final DoubleHistogram waits;
    private final DoubleHistogram holds;

    static LeaseholdMeters of(MeterProvider provider) {
        synchronized (BY_PROVIDER) {
            return BY_PROVIDER.computeIfAbsent(provider, LeaseholdMeters::new);
        }
    }

    private LeaseholdMeters(MeterProvider provider) {
        Meter meter = provider.get("leasehold");
        counter(meter, "acquisitions", "Calls that acquired a lock or tried to, by how they ended.");
        counter(meter, "attempts", "Requests to the store for a lock, every try of a wait included.");
        counter(meter, "busy", "Requests for a lock that found it held.");
        counter(meter, "unknown", "Requests whose outcome stayed unknown.");
        counter(meter, "renewed", "Renewals that the store confirmed.");
        counter(meter, "lost", "Leases that were lost while held.");
        counter(meter, "released.late", "Releases that found the lease lost, or got no answer.");
        gauge(meter, "held", "Leases that are held now.");
        gauge(meter, "waiting", "Calls of this process that stand in a queue now.");
        ObservableDoubleMeasurement oldest = meter.gaugeBuilder("leasehold.oldest.hold").setUnit("s")
                .setDescription("Age of the oldest lease that is held; 0 without one.").buildObserver();
        figures.add(new Figure("leasehold_oldest_hold_seconds", oldest, true, oldest::record));
        var first = figures.get(0).instrument();
        var others = figures.stream().skip(1).map(Figure::instrument).toArray(ObservableMeasurement[]::new);
        meter.batchCallback(this::observe, first, others);
        waits = histogram(meter, "wait", "From a call until it has the lock, or gives up.");
        holds = histogram(meter, "hold", "From acquiring a lock until the lease ends.");
    }

    private void counter(Meter meter, String name, String help) {
        ObservableLongMeasurement counter = meter.counterBuilder("leasehold." + name).setUnit("1")
                .setDescription(help).buildObserver();
        String series = "leasehold_" + name.replace('.', '_') + "_total";
        figures.add(new Figure(series, counter, false, (value, labels) -> counter.record((long) value, labels)));
    }

    private void gauge(Meter meter, String name, String help) {
        ObservableLongMeasurement gauge = meter.gaugeBuilder("leasehold." + name).ofLongs().setUnit("1")
                .setDescription(help).buildObserver();
        String series = "leasehold_" + name;
        figures.add(new Figure(series, gauge, false, (value, labels) -> gauge.record((long) value, labels)));
    }

    private static DoubleHistogram histogram(Meter meter, String name, String help) {
        return meter.histogramBuilder("leasehold." + name).setUnit("s").setDescription(help)
                .setExplicitBucketBoundariesAdvice(BUCKETS).build();
    }

    private interface Recorder {
        void record(double value, Attributes labels);
    }

    /** What an instrument shows of the text; of several clients the sum, or the largest. */
    private record Figure(String series, ObservableMeasurement instrument, boolean isLargest, Recorder recorder) {
        double join(double one, double other) {
            return isLargest ? Math.max(one, other) : one + other;
        }
    }

    void read(LeaseholdClient client) {
        synchronized (clients) {
            clients.add(client);
        }
    }

    void waited(String group, long nanos) {
        waits.record(nanos / 1e9, Attributes.of(LOCK, group));
    }

    void held(String group, long nanos) {
        holds.record(nanos / 1e9, Attributes.of(LOCK, group));
    }

    private void observe() {
        List<LeaseholdClient> open;
        synchronized (clients) {
            open = new ArrayList<>(clients);
        }
        var texts = new ArrayList<String>();
        for (LeaseholdClient client : open) {
            try {
                texts.add(client.metricsText());
            } catch (LeaseholdException e) {
                continue; // one that another thread closes at this moment
            }
        }
        for (Figure figure : figures) {
            Map<Attributes, Double> values = new HashMap<>();
            texts.forEach(text -> add(figure, text, values));
            values.forEach((labels, value) -> figure.recorder().record(value, labels));
        }
    }

    private static void add(Figure figure, String text, Map<Attributes, Double> values) {
        for (Matcher found = SERIES.matcher(text); found.find();) {
            if (found.group(1).equals(figure.series())) {
                values.merge(labels(found.group(2)), Double.valueOf(found.group(3)), figure::join);
            }
        }
    }

    private static Attributes labels(String text) {
        AttributesBuilder labels = Attributes.builder();
        for (Matcher label = LABEL.matcher(text); label.find();) {
            labels.put(label.group(1), plain(label.group(2)));
        }
        return labels.build();
    }

    private static String plain(String escaped) {
        return ESCAPED.matcher(escaped)
                .replaceAll(one -> Matcher.quoteReplacement(one.group(1).equals("n") ? "\n" : one.group(1)));
    }
}
