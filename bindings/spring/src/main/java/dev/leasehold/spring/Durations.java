package dev.leasehold.spring;

import java.time.DateTimeException;
import java.time.Duration;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Durations as Spring Boot writes them, which need not be there: 10s, 500ms, PT10S. */
final class Durations {
    private static final Pattern SIMPLE = Pattern.compile("(\\d{1,18})(ms|s|m|h|d)");
    private static final Map<String, Duration> UNITS = Map.of("ms", Duration.ofMillis(1), "s", Duration.ofSeconds(1),
            "m", Duration.ofMinutes(1), "h", Duration.ofHours(1), "d", Duration.ofDays(1));

    private Durations() {}

    /**
     * Reads one.
     *
     * @throws IllegalArgumentException it is none
     */
    static Duration parse(String text) {
        Matcher simple = SIMPLE.matcher(text);
        try {
            return simple.matches()
                    ? UNITS.get(simple.group(2)).multipliedBy(Long.parseLong(simple.group(1)))
                    : Duration.parse(text);
        } catch (DateTimeException | ArithmeticException e) {
            throw new IllegalArgumentException(e);
        }
    }
}
