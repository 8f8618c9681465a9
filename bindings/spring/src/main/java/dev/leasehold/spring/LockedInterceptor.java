package dev.leasehold.spring;

import dev.leasehold.Lease;
import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.NamedLock;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;

/** Acquires, calls, and releases: at the end of the call, or of the transaction that was there before. */
final class LockedInterceptor implements MethodInterceptor {
    private static final boolean HAS_TRANSACTIONS = ClassUtils.isPresent(
            "org.springframework.transaction.support.TransactionSynchronizationManager",
            LockedInterceptor.class.getClassLoader());

    /** What each thread holds: a transaction may hold it beyond the method. */
    private static final ThreadLocal<Map<Key, Lease>> HELD = ThreadLocal.withInitial(ConcurrentHashMap::new);

    /** With the client, since a program may have two contexts, whose stores are not the same. */
    private record Key(LeaseholdClient client, String name) {}

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
        // A client that Spring makes of an interface alone has no target.
        Class<?> type = target != null ? target.getClass() : call.getMethod().getDeclaringClass();
        LeaseholdClient opened = client.get();
        NamedLock lock = methods.get(call.getMethod(), type).lock(opened, target, call.getArguments(), beans);
        var key = new Key(opened, lock.name());
        Map<Key, Lease> held = HELD.get();
        Lease outer = held.get(key);
        if (outer != null) {
            // This thread would wait for itself.
            checkNotLost(outer);
            return proceed(call, outer);
        }
        Lease lease = acquire(lock, call.getMethod());
        held.put(key, lease);
        Runnable release = () -> {
            held.remove(key, lease);
            lease.close();
        };
        if (HAS_TRANSACTIONS && Outer.hasBegun()) {
            try {
                Outer.atEnd(lease, release);
            } catch (RuntimeException | Error e) {
                release.run(); // nothing else would
                throw e;
            }
            return proceed(call, lease);
        }
        // What it throws is a suppressed exception of what the method has thrown.
        try (AutoCloseable end = release::run) {
            return proceed(call, lease);
        }
    }

    private static Lease acquire(NamedLock lock, Method method) throws InterruptedException {
        try {
            return lock.acquire();
        } catch (InterruptedException e) {
            if (ReflectionUtils.declaresException(method, InterruptedException.class)) {
                throw e;
            }
            // The proxy would make an UndeclaredThrowableException of it, and nobody would know of the interrupt.
            Thread.currentThread().interrupt();
            throw new LockInterruptedException(e);
        }
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
