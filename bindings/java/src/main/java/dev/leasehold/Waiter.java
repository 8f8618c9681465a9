package dev.leasehold;

import java.time.Duration;

/**
 * A process that waited for a lock when {@link NamedLock#inspect()} asked.
 *
 * @param who who that is and since when, as a sentence
 * @param tokenPrefix the first digits of its token
 * @param waited for how long; null where that is not known
 * @param client who that is; null where that is not known
 */
public record Waiter(String who, String tokenPrefix, Duration waited, ClientInfo client) {}
