package dev.leasehold;

import java.time.Duration;

/**
 * Who had a lock when {@link NamedLock#inspect()} asked.
 *
 * @param isHeld whether somebody had it
 * @param tokenPrefix the first digits of the holder's token: enough to tell holders apart, too few
 *     to release with; empty when the lock was free
 * @param ttl in how long the lock would be free if nobody renewed it; zero when it was free
 * @param fence the holder's fence; 0 when the lock was free, or another program holds it without one
 * @param lastFence the last fence that was given out; 0 where the store does not know it any more
 */
public record LockState(boolean isHeld, String tokenPrefix, Duration ttl, long fence, long lastFence) {}
