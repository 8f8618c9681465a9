package dev.leasehold;

import java.time.Duration;
import java.util.Objects;

/** Durations as the native library counts them: milliseconds, rounded up. */
final class Times {
    private static final Duration LONGEST = Duration.ofMillis(Native.FOREVER - 1);

    private Times() {}

    static long toMillis(String what, Duration time) {
        Objects.requireNonNull(time, what);
        if (time.isNegative()) {
            throw LeaseholdException.badArgument(what + " is negative: " + time);
        }
        if (time.compareTo(LONGEST) > 0) {
            return Native.FOREVER;
        }
        long millis = time.toMillis();
        return time.minusMillis(millis).isZero() ? millis : millis + 1;
    }
}
