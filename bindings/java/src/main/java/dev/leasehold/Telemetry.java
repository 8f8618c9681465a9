package dev.leasehold;

/**
 * Who is told how calls acquire locks and how leases end, without a word of OpenTelemetry here: programs
 * need not have it. {@link LeaseholdTelemetry} tells it.
 *
 * <p>Nothing of this refers to the client or to a lease, which both can be forgotten.
 */
interface Telemetry {
    /** A call begins that acquires a lock. */
    Wait begin(NamedLock lock);

    /** A lease is continued that another process has acquired. */
    Hold attached(NamedLock lock, long fence);

    /** A call that acquires a lock. It ends once: what comes later is not counted. */
    interface Wait {
        /** It has a lease. */
        Hold granted(long fence);

        /**
         * It has this lease, which tells how it ends. If that cannot be told, the call throws, and the program
         * gets no lease: so it is closed.
         */
        default Lease granted(Lease lease) {
            try {
                lease.tell(granted(lease.fence()));
                return lease;
            } catch (Throwable e) {
                try (lease) {
                    throw e;
                }
            }
        }

        /** Another client holds the lock. */
        void busy();

        /** It threw that. */
        void failed(Throwable why);
    }

    /** A lease. It ends once, on whichever thread comes first. */
    interface Hold {
        /** In a word. */
        void ended(String how);

        /** A call that ends it threw that. */
        void failed(LeaseholdException why);

        /** It was lost before. */
        void lost(LeaseEvent event);
    }

    /** What acquires a lock: null if another client holds it. */
    interface Call<E extends Exception> {
        Lease run() throws E;
    }

    /** Tells how a call acquires a lock. */
    default <E extends Exception> Lease told(NamedLock lock, Call<E> call) throws E {
        Wait wait = begin(lock);
        Lease lease;
        try {
            lease = call.run();
        } catch (Throwable e) {
            wait.failed(e);
            throw e;
        }
        if (lease == null) {
            wait.busy();
            return null;
        }
        return wait.granted(lease);
    }
}
