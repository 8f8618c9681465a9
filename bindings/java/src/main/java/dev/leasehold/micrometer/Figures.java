package dev.leasehold.micrometer;

import dev.leasehold.LeaseholdClient;
import java.util.HashMap;
import java.util.Map;

/**
 * The figures of one moment. A registry reads its meters one by one, and there are 23 for each group:
 * without this, each of them would have the whole text made.
 */
final class Figures {
    /** A registry has read all its meters by then; nobody sees that a figure is so old. */
    private static final long MOST_NANOS = 5_000_000;

    private Map<String, Double> unread = Map.of();
    private long read;

    /** What a series is now. Whoever reads it again gets a newer one, however soon. */
    synchronized double now(LeaseholdClient client, String series) {
        Double figure = System.nanoTime() - read < MOST_NANOS ? unread.remove(series) : null;
        if (figure == null) {
            unread = parse(client.metricsText());
            read = System.nanoTime();
            figure = unread.remove(series);
        }
        return figure == null ? Double.NaN : figure;
    }

    private static Map<String, Double> parse(String text) {
        Map<String, Double> figures = new HashMap<>();
        for (String line : text.split("\n")) {
            int end = line.lastIndexOf(' ');
            if (!line.startsWith("#") && !line.contains("_bucket{")) {
                figures.put(line.substring(0, end), Double.valueOf(line.substring(end + 1)));
            }
        }
        return figures;
    }
}
