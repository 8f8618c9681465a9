package dev.leasehold;

/** Something that happened to a lease without its holder's doing. */
public final class LeaseEvent {
    /** What happened. More may come. */
    public enum Kind {
        /**
         * Renewal has not got through for a while, or {@code maxHold} is near: less than a third of
         * the ttl is left. Time to finish.
         */
        AT_RISK(1),
        /**
         * The lease is over; it says so itself from now on. Told before its validity ends, unless
         * this process itself did not run.
         */
        LOST(2),
        /** A lease that was given back without being asked was gone already, or the store did not say. */
        RELEASED_LATE(3),
        /** Something that this version of the Java classes has no word for. */
        OTHER(-1);

        final int code;

        Kind(int code) {
            this.code = code;
        }
    }

    /** Why a lease was lost. More may come. */
    public enum Reason {
        /** The event is not {@link Kind#LOST}. */
        NONE(0),
        /** The store says that the lock is not ours: deleted, flushed, or somebody else's by now. */
        NOT_HELD(1),
        /** Its ttl ran out: the store could not be reached, or renewal was off. */
        EXPIRED(2),
        /** {@code maxHold} was reached. */
        MAX_HOLD(3),
        /** The client's background thread has failed. The client is closed. */
        NOT_RENEWED(4),
        /** An operator broke the lock: {@link LeaseEvent#detail()} says who. */
        BROKEN(5),
        /** A reason that this version of the Java classes has no word for. */
        OTHER(-1);

        final int code;

        Reason(int code) {
            this.code = code;
        }
    }

    private final Kind kind;
    private final Reason reason;
    private final byte[] name;
    private final long fence;
    private final long lease;
    private final String detail;

    LeaseEvent(long kind, long reason, byte[] name, long fence, long lease, String detail) {
        this.kind = kind(kind);
        this.reason = reason(reason);
        this.name = name;
        this.fence = fence;
        this.lease = lease;
        this.detail = detail;
    }

    /**
     * What happened.
     *
     * @return one of those above
     */
    public Kind kind() {
        return kind;
    }

    /**
     * Why a lease was lost.
     *
     * @return {@link Reason#NONE} for all but {@link Kind#LOST}
     */
    public Reason reason() {
        return reason;
    }

    /**
     * The name of the lock, as {@link LeaseholdClient#lock(String)} was given it: without the URL's
     * {@code prefix}. Where it is not UTF-8, it has replacement characters.
     *
     * @return the name as text
     */
    public String name() {
        return Name.decode(name);
    }

    /**
     * The name of the lock as it is.
     *
     * @return a copy
     */
    public byte[] nameBytes() {
        return name.clone();
    }

    /**
     * The fence of the lease: with the name, it says which lease it was.
     *
     * @return {@link Lease#fence()}
     */
    public long fence() {
        return fence;
    }

    /**
     * What is known besides, in words: who broke the lock, and when.
     *
     * @return text, most often empty
     */
    public String detail() {
        return detail;
    }

    /** The number of the lease, as {@link Native#watch} has it. */
    long lease() {
        return lease;
    }

    @Override
    public String toString() {
        String why = reason == Reason.NONE ? "" : " " + reason;
        return "LeaseEvent(" + kind + why + ", " + name() + ", fence " + fence + ")";
    }

    private static Kind kind(long code) {
        for (Kind kind : Kind.values()) {
            if (kind.code == code) {
                return kind;
            }
        }
        return Kind.OTHER;
    }

    private static Reason reason(long code) {
        for (Reason reason : Reason.values()) {
            if (reason.code == code) {
                return reason;
            }
        }
        return Reason.OTHER;
    }
}
