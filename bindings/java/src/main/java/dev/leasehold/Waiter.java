package dev.leasehold;

import java.time.Duration;

/**
 * A process that waited for a lock when {@link NamedLock#inspect()} asked.
 *
 * @param who which process it is and since when it waits, as a sentence
 * @param tokenPrefix the first digits of its token
 * @param waited for how long; null if that is not known
 * @param client its client; null if that is not known
 */
public record Waiter(String who, String tokenPrefix, Duration waited, ClientInfo client) {}
