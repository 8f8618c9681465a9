package dev.leasehold.spring;

import dev.leasehold.Lease;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;

/** Runs a job if its lock is free, and keeps the lock for the rest of lockAtLeastFor. */
final class ScheduledInterceptor implements MethodInterceptor {
    /** The shortest time for which a lock stays held. */
    private static final Duration SHORTEST = Duration.ofMillis(3);

    private static final System.Logger LOG = System.getLogger(LockedScheduled.class.getName());

    private final Supplier<LeaseholdClient> client;
    private final ScheduledMethods methods;

    ScheduledInterceptor(Supplier<LeaseholdClient> client, ScheduledMethods methods) {
        this.client = client;
        this.methods = methods;
    }

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Object target = call.getThis();
        Class<?> type = target != null ? target.getClass() : call.getMethod().getDeclaringClass();
        ScheduledMethods.Terms terms = methods.get(call.getMethod(), type);
        NamedLock lock = client.get().lock(terms.name()).ttl(terms.atMost()).renew(false).noMaxHold();
        long start = System.nanoTime();
        Lease lease = lock.tryAcquire();
        if (lease == null) {
            LOG.log(Level.DEBUG, "the job ''{0}'' runs on another node, or ran a moment ago", terms.name());
            return null;
        }
        // What it throws is a suppressed exception of what the job has thrown.
        try (AutoCloseable end = () -> end(lease, terms.atLeast().minusNanos(System.nanoTime() - start))) {
            CurrentLease.enter(lease);
            try {
                return call.proceed();
            } finally {
                CurrentLease.leave();
            }
        }
    }

    private static void end(Lease lease, Duration rest) {
        if (rest.compareTo(SHORTEST) < 0) {
            lease.close();
        } else {
            lease.letExpireIn(rest);
        }
    }
}
