package dev.leasehold.spring;

import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdLock;
import dev.leasehold.NamedLock;
import java.time.Duration;
import java.util.function.Function;
import org.springframework.integration.support.locks.RenewableLockRegistry;

/**
 * A {@code LockRegistry} for Spring Integration: aggregators, leaders, files that one node reads.
 *
 * <pre>{@code
 * @Bean
 * LeaseholdLockRegistry locks(LeaseholdClient client) {
 *     return new LeaseholdLockRegistry(key -> client.lock("orders:" + key).ttl(Duration.ofSeconds(10)));
 * }
 * }</pre>
 *
 * <p>Its locks are renewed in the background, reentrant for their thread, and the same in all
 * processes whose registries make the same names. What they throw is in {@link LeaseholdLock}.
 */
// Raw, so that it is one class for Spring Integration 6 and for 7, where the interface has a type.
@SuppressWarnings("rawtypes")
public final class LeaseholdLockRegistry implements RenewableLockRegistry {
    private final Function<Object, NamedLock> locks;

    /**
     * Makes locks with options of your own.
     *
     * @param locks the lock of a key
     */
    public LeaseholdLockRegistry(Function<Object, NamedLock> locks) {
        this.locks = locks;
    }

    /**
     * Makes locks with the default options.
     *
     * @param client the client of the store; keep it open for as long as the registry is used
     * @param prefix the prefix of their names, so that none is the name of another lock there
     */
    public LeaseholdLockRegistry(LeaseholdClient client, String prefix) {
        this(key -> client.lock(prefix + key));
    }

    /**
     * The lock of a key.
     *
     * @param key whose text is the same in all processes, such as a string or a number
     * @throws IllegalArgumentException it is null, or has no text of its own: {@code Object}'s
     *     {@code toString()} would make each object another lock
     */
    @Override
    public LeaseholdLock obtain(Object key) {
        if (key == null) {
            throw new IllegalArgumentException("the key of a lock is null");
        }
        if (key.toString().equals(key.getClass().getName() + "@" + Integer.toHexString(key.hashCode()))) {
            throw new IllegalArgumentException("a key of " + key.getClass()
                    + " has no toString() of its own, so each object would be another lock; take its id");
        }
        return locks.apply(key).asLock();
    }

    /**
     * Makes a lock that this thread holds valid for its ttl from now on. The renewal in the
     * background does that too.
     *
     * @throws IllegalMonitorStateException this thread does not hold it
     * @throws dev.leasehold.LeaseLostException it was lost
     */
    @Override
    public void renewLock(Object key) {
        obtain(key).extend();
    }

    /**
     * Makes a lock that this thread holds valid for another ttl. It is a part of the interface since
     * Spring Integration 7.
     *
     * @param key of a lock that this thread holds
     * @param ttl from now on
     * @throws IllegalMonitorStateException this thread does not hold it
     * @throws dev.leasehold.LeaseLostException it was lost
     */
    public void renewLock(Object key, Duration ttl) {
        obtain(key).extend(ttl);
    }
}
