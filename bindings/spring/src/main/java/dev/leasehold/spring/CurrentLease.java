package dev.leasehold.spring;

import dev.leasehold.Lease;

/** The lease of the {@link Locked} or {@link LockedScheduled} method that this thread is in. */
public final class CurrentLease {
    private static final ThreadLocal<CurrentLease> INNERMOST = new ThreadLocal<>();

    private final Lease lease;
    private final CurrentLease outer;

    private CurrentLease(Lease lease, CurrentLease outer) {
        this.lease = lease;
        this.outer = outer;
    }

    /**
     * The lease of the innermost one.
     *
     * @return a lease that ends with the method; do not release it
     * @throws IllegalStateException this thread is in no such method
     */
    public static Lease get() {
        CurrentLease innermost = INNERMOST.get();
        if (innermost == null) {
            throw new IllegalStateException("this thread is in no @Locked or @LockedScheduled method;"
                    + " was it called through the bean?");
        }
        return innermost.lease;
    }

    /**
     * The fence of that lease, for the database.
     *
     * @return {@link Lease#fence()}
     * @throws IllegalStateException this thread is in no such method
     */
    public static long fence() {
        return get().fence();
    }

    static void enter(Lease lease) {
        INNERMOST.set(new CurrentLease(lease, INNERMOST.get()));
    }

    static void leave() {
        CurrentLease outer = INNERMOST.get().outer;
        if (outer == null) {
            INNERMOST.remove();
        } else {
            INNERMOST.set(outer);
        }
    }
}
