package dev.leasehold;

import java.time.Duration;
import java.util.Objects;

/**
 * How long a wait with {@link WaitMode#SPIN} pauses between tries. Pauses have random lengths,
 * which grow. Without this, a wait tries three more times at once, then pauses up to 1 ms, 2 ms, 4
 * ms and so on.
 *
 * @param first the limit of the first pause, which doubles with each one
 * @param longest the limit that no pause exceeds; {@code null}: the store's default
 */
public record Backoff(Duration first, Duration longest) {
    /**
     * Checks for negative values. The rest is checked when you acquire the lock.
     *
     * @param first the limit of the first pause
     * @param longest the limit that no pause exceeds, or null
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for negative ones
     */
    public Backoff {
        Objects.requireNonNull(first, "first");
        Times.toMillis("first", first);
        if (longest != null) {
            Times.toMillis("longest", longest);
        }
    }
}
