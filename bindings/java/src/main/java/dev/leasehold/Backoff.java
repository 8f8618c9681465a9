package dev.leasehold;

import java.time.Duration;
import java.util.Objects;

/**
 * How a wait with {@link WaitMode#SPIN} asks again: a few times at once, then after pauses of random
 * length, which grow.
 *
 * @param spins how many tries follow the first one without a pause; 3 by default
 * @param first the limit of the first pause, which doubles with each one; 1 ms by default
 * @param longest the limit that no pause exceeds; {@code null}: what suits the store
 */
public record Backoff(int spins, Duration first, Duration longest) {
    /**
     * Checks what can be checked here; the rest is said when the lock is taken.
     *
     * @param spins how many tries follow the first one without a pause
     * @param first the limit of the first pause
     * @param longest the limit that no pause exceeds, or null
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for negative ones
     */
    public Backoff {
        Objects.requireNonNull(first, "first");
        if (spins < 0) {
            throw LeaseholdException.badArgument("spins is negative: " + spins);
        }
        Times.toMillis("first", first);
        if (longest != null) {
            Times.toMillis("longest", longest);
        }
    }
}
