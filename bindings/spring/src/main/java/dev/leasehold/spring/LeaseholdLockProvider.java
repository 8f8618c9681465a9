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
 * <p>{@code lockAtMostFor} is the ttl, which is not renewed. It is at most 366 days, or the store's
 * {@code max_ttl}. If a job takes longer, another node may run it at the same time, and the log has a
 * warning. It is no exception, since that would replace what the job throws. If the store cannot be
 * reached, the job does not run, and {@link LeaseholdException} is thrown.
 */
public final class LeaseholdLockProvider implements ExtensibleLockProvider {
    /** The shortest time for which a lock stays held. */
    private static final Duration SHORTEST = Duration.ofMillis(3);

    private static final System.Logger LOG = System.getLogger(LeaseholdLockProvider.class.getName());

    private final LeaseholdClient client;
    private final String prefix;

    /**
     * Locks for jobs.
     *
     * @param client the client of the store; keep it open for as long as jobs are scheduled
     * @param prefix the prefix of their names, so that none is the name of another lock there
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
                warn("may not be released; it is free after its lockAtMostFor at the latest", e);
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
