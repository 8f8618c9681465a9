package dev.leasehold;

/**
 * The result of a call, with the same names in every language. Outcomes come first, then errors.
 * Later versions may add more: treat a status that you do not know as an error.
 */
public enum Status {
    /** Another client holds the lock: {@link NamedLock#tryAcquire()} then returns {@code null}. */
    BUSY(1),
    /** The wait ran out: a {@link LeaseTimeoutException}. */
    TIMEOUT(2),
    /** The waiting thread was interrupted: an {@link InterruptedException}. */
    INTERRUPTED(3),
    /** You no longer hold the lock: a {@link LeaseLostException}. */
    LOST(4),
    /**
     * The store did not answer, so the outcome is not known. A lock that you did not hold before
     * counts as not held. If the store did grant it, the client releases it in the background.
     */
    UNKNOWN(5),
    /** An argument that can never work: a bad name, option or URL. */
    BAD_ARGUMENT(-1),
    /** A wrong handle. Java never reports it: it is {@link #CLOSED} or {@link #LOST}. */
    HANDLE(-2),
    /** The client is closed. */
    CLOSED(-3),
    /** The process was forked, which programs in Java do not do. */
    FORKED(-4),
    /** A configuration was changed after its use, which Java does not allow. */
    SEALED(-5),
    /** A defect of the library: the call was abandoned. */
    PANIC(-6),
    /** This thread holds the lock and would wait for itself for ever. */
    WOULD_DEADLOCK(-7),
    /** The store cannot be reached. */
    REFUSED(-8),
    /** The store did not answer in time. No lock was requested or changed. */
    NO_ANSWER(-9),
    /** The store did not accept the user or the password. */
    AUTH(-10),
    /** The TLS connection could not be made. */
    TLS(-11),
    /** The store forbids a command or a key that a lock needs. */
    PERMISSION(-12),
    /** The name is in use by something that is not a lease. */
    WRONG_TYPE(-13),
    /** The store is read-only. */
    READ_ONLY(-14),
    /** The store is out of memory. */
    OUT_OF_MEMORY(-15),
    /** The store is up but cannot serve at the moment: it is loading, busy, or failing over. */
    UNAVAILABLE(-16),
    /** This process has run out of connections, descriptors or threads. */
    EXHAUSTED(-17),
    /** The file of an embedded store cannot be used. */
    STORAGE(-18),
    /** The store answered something that this library does not understand. */
    PROTOCOL(-19),
    /** Too few replicas acknowledged the grant. The lock was released. */
    NOT_REPLICATED(-20),
    /** Too few servers of the quorum answered. You do not hold the lock. */
    NO_QUORUM(-21),
    /** The disk that the store writes to is full, or a quota there is used up. */
    DISK_FULL(-22),
    /** An error that this version of the Java classes does not know. */
    OTHER(Integer.MIN_VALUE);

    private static final Status[] ALL = values();

    private final int code;

    Status(int code) {
        this.code = code;
    }

    /**
     * The number of this status in the C interface.
     *
     * @return a number above 0 for an outcome, below 0 for an error
     */
    public int code() {
        return code;
    }

    /**
     * Whether the same call may succeed later, with nothing changed.
     *
     * @return whether it is worth trying again
     */
    public boolean isRetriable() {
        return Native.isRetriable(code);
    }

    static Status of(int code) {
        for (Status status : ALL) {
            if (status.code == code) {
                return status;
            }
        }
        return OTHER;
    }
}
