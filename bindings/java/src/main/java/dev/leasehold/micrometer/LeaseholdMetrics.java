package dev.leasehold.micrometer;

import dev.leasehold.LeaseholdClient;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.FunctionTimer;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.Tags;
import io.micrometer.core.instrument.TimeGauge;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.ToDoubleFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * All figures of a client as meters of Micrometer.
 *
 * <pre>{@code
 * new LeaseholdMetrics(client).bindTo(registry);
 * }</pre>
 *
 * <p>Each meter has the tag {@code lock}. It is {@code *} for all locks together, and a pattern of
 * {@link dev.leasehold.ClientBuilder#metricsGroup(String)} for the locks that it names. The name of a
 * lock is a tag only if you name it as a group.
 *
 * <p>Counters are {@code leasehold.acquisitions} (with the tag {@code outcome}),
 * {@code leasehold.attempts}, {@code .busy}, {@code .unknown}, {@code .renewed}, {@code .lost} and
 * {@code .released.late}. Timers are {@code leasehold.wait}, {@code .hold}, {@code .round.trip} and
 * {@code .renewal.delay}. Gauges are {@code leasehold.held}, {@code .waiting} and
 * {@code .oldest.hold}. A registry for Prometheus shows them under the names that
 * {@link LeaseholdClient#metricsText()} has. Timers have a count and a sum there; only that text has
 * their buckets.
 *
 * <p>Meters refer to the client weakly, as those of Micrometer do. They keep their last figures when
 * the client is closed.
 */
public final class LeaseholdMetrics implements MeterBinder {
    private static final Pattern TYPE = Pattern.compile("# TYPE leasehold_(\\w+?)(?:_total|_seconds)? (\\w+)");
    private static final Pattern HELP = Pattern.compile("# HELP \\w+ (.*)");
    private static final Pattern SERIES = Pattern.compile("\\w+\\{(.*)} \\S+");
    private static final Pattern LABEL = Pattern.compile("(\\w+)=\"((?:[^\"\\\\]|\\\\.)*)\"");

    private final LeaseholdClient client;
    private final Tags tags;

    /**
     * The figures of a client.
     *
     * @param client whose figures they are
     */
    public LeaseholdMetrics(LeaseholdClient client) {
        this(client, Tags.empty());
    }

    /**
     * The figures of a client, with tags of your own. A program that has two clients needs them:
     * a registry ignores meters that it has already.
     *
     * @param client whose figures they are
     * @param tags to be added to each meter
     */
    public LeaseholdMetrics(LeaseholdClient client, Iterable<Tag> tags) {
        this.client = Objects.requireNonNull(client, "client");
        this.tags = Tags.of(tags);
    }

    /** Reads what there is from the text itself, so that nothing is listed twice. */
    @Override
    public void bindTo(MeterRegistry registry) {
        Figures figures = new Figures();
        Family family = null;
        String help = "";
        for (String line : client.metricsText().split("\n")) {
            Matcher said = HELP.matcher(line);
            Matcher typed = TYPE.matcher(line);
            Matcher series = SERIES.matcher(line);
            if (said.matches()) {
                help = said.group(1);
            } else if (typed.matches()) {
                family = new Family("leasehold." + typed.group(1).replace('_', '.'), typed.group(2), help);
            } else if (series.matches() && family != null) {
                family.bind(registry, line.substring(0, line.lastIndexOf(' ')), tags.and(tags(series.group(1))),
                        client, figures);
            }
        }
    }

    private static Tags tags(String labels) {
        Tags tags = Tags.empty();
        for (Matcher label = LABEL.matcher(labels); label.find();) {
            String value = label.group(2).replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\");
            tags = tags.and(label.group(1), value);
        }
        return tags;
    }

    /** One metric, of which each group has a series. */
    private record Family(String name, String type, String help) {
        void bind(
                MeterRegistry registry, String series, Tags tags, LeaseholdClient client, Figures figures) {
            ToDoubleFunction<LeaseholdClient> now = of -> figures.now(of, series);
            switch (type) {
                case "counter" -> FunctionCounter.builder(name, client, now)
                        .tags(tags).description(help).register(registry);
                case "histogram" -> {
                    String sum = series.replaceFirst("_count\\{", "_sum{");
                    if (!sum.equals(series)) {
                        FunctionTimer.builder(name, client, of -> (long) figures.now(of, series),
                                        of -> figures.now(of, sum), TimeUnit.SECONDS)
                                .tags(tags).description(help).register(registry);
                    }
                }
                default -> {
                    if (series.contains("_seconds{")) {
                        TimeGauge.builder(name, client, TimeUnit.SECONDS, now)
                                .tags(tags).description(help).register(registry);
                    } else {
                        Gauge.builder(name, client, now).tags(tags).description(help).register(registry);
                    }
                }
            }
        }
    }
}
