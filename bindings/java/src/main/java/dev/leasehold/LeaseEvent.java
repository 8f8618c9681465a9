package dev.leasehold;

/** Something that happened to a lease and that its holder did not cause. */
public final class LeaseEvent {
    /** What happened. Later versions may add more. */
    public enum Kind {
        /**
         * Renewals have failed for a while, so that less than a third of the ttl is left, or
         * {@code maxHold} is near. Finish soon.
         */
        AT_RISK(1),
        /**
         * The lease was lost; {@link Lease#isValid()} is false from now on. You hear of it before
         * its validity ends, unless this process was paused.
         */
        LOST(2),
        /**
         * A release in the background found that the lease was lost, or got no answer from the
         * store.
         */
        RELEASED_LATE(3),
        /** A kind that this version of the Java classes does not know. */
        OTHER(-1);

        final int code;

        Kind(int code) {
            this.code = code;
        }
    }

    /** Why a lease was lost. Later versions may add more. */
    public enum Reason {
        /** The event is not {@link Kind#LOST}. */
        NONE(0),
        /**
         * The store says that you do not hold the lock: the key was deleted or flushed, or another
         * client holds it.
         */
        NOT_HELD(1),
        /** Its ttl passed: the store could not be reached, or renewal was off. */
        EXPIRED(2),
        /** {@code maxHold} was reached. */
        MAX_HOLD(3),
        /** The client's background thread has failed. The client is closed. */
        NOT_RENEWED(4),
        /** An operator broke the lock: {@link LeaseEvent#detail()} says who. */
        BROKEN(5),
        /** A reason that this version of the Java classes does not know. */
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
     * The fence of the lease. Name and fence together identify it.
     *
     * @return {@link Lease#fence()}
     */
    public long fence() {
        return fence;
    }

    /**
     * More in words: who broke the lock, and when.
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

    static Reason reason(long code) {
        for (Reason reason : Reason.values()) {
            if (reason.code == code) {
                return reason;
            }
        }
        return Reason.OTHER;
    }
}
