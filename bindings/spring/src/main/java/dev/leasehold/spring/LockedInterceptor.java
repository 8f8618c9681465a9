package dev.leasehold.spring;

import dev.leasehold.Lease;
import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.util.ClassUtils;

/** Acquires, calls, and releases: at the end of the call, or of the transaction that was there before. */
final class LockedInterceptor implements MethodInterceptor {
    private static final boolean HAS_TRANSACTIONS = ClassUtils.isPresent(
            "org.springframework.transaction.support.TransactionSynchronizationManager",
            LockedInterceptor.class.getClassLoader());

    /** What each thread holds by its names: a transaction may hold it beyond the method. */
    private static final ThreadLocal<Map<String, Lease>> HELD = ThreadLocal.withInitial(ConcurrentHashMap::new);

    private final Supplier<LeaseholdClient> client;
    private final LockedMethods methods;
    private final BeanFactory beans;

    LockedInterceptor(Supplier<LeaseholdClient> client, LockedMethods methods, BeanFactory beans) {
        this.client = client;
        this.methods = methods;
        this.beans = beans;
    }

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Object target = call.getThis();
        LockedMethod method = methods.get(call.getMethod(), target.getClass());
        NamedLock lock = method.lock(client.get(), target, call.getArguments(), beans);
        Map<String, Lease> held = HELD.get();
        Lease outer = held.get(lock.name());
        if (outer != null) {
            // This thread would wait for itself.
            checkNotLost(outer);
            return proceed(call, outer);
        }
        Lease lease = lock.acquire();
        held.put(lock.name(), lease);
        if (HAS_TRANSACTIONS && Outer.hasBegun()) {
            Outer.atEnd(lease, () -> release(held, lease));
            return proceed(call, lease);
        }
        try (AutoCloseable end = () -> release(held, lease)) {
            return proceed(call, lease);
        }
    }

    /** What it throws is a suppressed exception of what the method has thrown. */
    private static void release(Map<String, Lease> held, Lease lease) {
        held.remove(lease.lock().name(), lease);
        lease.close();
    }

    private static void checkNotLost(Lease lease) {
        if (!lease.isValid()) {
            lease.extend(); // throws what became of it
        }
    }

    private static Object proceed(MethodInvocation call, Lease lease) throws Throwable {
        CurrentLease.enter(lease);
        try {
            return call.proceed();
        } finally {
            CurrentLease.leave();
        }
    }

    /** The transaction that the caller has begun; the class is loaded where there are any. */
    private static final class Outer {
        static boolean hasBegun() {
            return TransactionSynchronizationManager.isSynchronizationActive()
                    && TransactionSynchronizationManager.isActualTransactionActive();
        }

        static void atEnd(Lease lease, Runnable release) {
            TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
                @Override
                public void beforeCommit(boolean readOnly) {
                    checkNotLost(lease); // and so rolls back
                }

                @Override
                public void afterCompletion(int status) {
                    try {
                        release.run();
                    } catch (LeaseLostException e) {
                        // Whoever rolled back knows; after a commit, Spring's log tells.
                        if (status == STATUS_COMMITTED) {
                            throw e;
                        }
                    }
                }
            });
        }
    }
}
