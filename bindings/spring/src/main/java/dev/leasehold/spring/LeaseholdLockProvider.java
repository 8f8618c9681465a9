package dev.leasehold.spring;

import dev.leasehold.Lease;
import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdException;
import dev.leasehold.NamedLock;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;

/**
 * A {@code LockProvider} for ShedLock: a scheduled job runs on one node of many.
 *
 * <pre>{@code
 * @Bean
 * LockProvider lockProvider(LeaseholdClient client) {
 *     return new LeaseholdLockProvider(client, "jobs:");
 * }
 * }</pre>
 *
 * <p>{@code lockAtMostFor} is the ttl, which is not renewed and is 366 days at most, or the
 * store's {@code max_ttl}. A job that took longer, so that another node may have run it meanwhile, is a
 * warning in the log: what {@code unlock()} threw would replace what the job threw. A store that
 * cannot be reached is a {@link LeaseholdException}, and the job does not run.
 */
public final class LeaseholdLockProvider implements ExtensibleLockProvider {
    /** No lock is kept for less. */
    private static final Duration SHORTEST = Duration.ofMillis(3);

    private static final System.Logger LOG = System.getLogger(LeaseholdLockProvider.class.getName());

    private final LeaseholdClient client;
    private final String prefix;

    /**
     * Locks for jobs.
     *
     * @param client where they are kept; it stays open for as long as jobs are scheduled
     * @param prefix what their names begin with, so that none is the name of something else there
     */
    public LeaseholdLockProvider(LeaseholdClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration wanted) {
        Duration atMost = wanted.getLockAtMostFor();
        NamedLock lock = client.lock(prefix + wanted.getName())
                .ttl(atMost.compareTo(SHORTEST) < 0 ? SHORTEST : atMost)
                .renew(false)
                .noMaxHold();
        return Optional.ofNullable(lock.tryAcquire()).map(lease -> new Held(wanted, lease));
    }

    private static final class Held extends AbstractSimpleLock {
        private final Lease lease;

        Held(LockConfiguration wanted, Lease lease) {
            super(wanted);
            this.lease = lease;
        }

        @Override
        protected void doUnlock() {
            Duration rest = Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
            try {
                if (rest.compareTo(SHORTEST) < 0) {
                    lease.close();
                } else {
                    lease.letExpireIn(rest);
                }
            } catch (LeaseLostException e) {
                warn("was lost before the job ended, so another node may have run it too; raise its lockAtMostFor", e);
            } catch (LeaseholdException e) {
                warn("was not given back for certain; it is free after its lockAtMostFor at the latest", e);
            }
        }

        private void warn(String what, LeaseholdException why) {
            LOG.log(Level.WARNING, "the lock of the job '" + lockConfiguration.getName() + "' " + what, why);
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration wanted) {
            try {
                lease.extend(wanted.getLockAtMostFor());
            } catch (LeaseLostException e) {
                return Optional.empty();
            }
            return Optional.of(new Held(wanted, lease));
        }
    }
}
