package dev.leasehold;

/**
 * What a call came to, in the words that Leasehold has in every language. Outcomes come first,
 * errors later. More may come: treat what you do not know as an error.
 */
public enum Status {
    /** Somebody else has the lock: {@link NamedLock#tryAcquire()} then returns {@code null}. */
    BUSY(1),
    /** The wait ran out: a {@link LeaseTimeoutException}. */
    TIMEOUT(2),
    /** The waiting thread was interrupted: an {@link InterruptedException}. */
    INTERRUPTED(3),
    /** The lease was not held any more: a {@link LeaseLostException}. */
    LOST(4),
    /**
     * Whether the store did it is not known. Nothing counts as held that was not before; a lock
     * that may have been taken is being given back.
     */
    UNKNOWN(5),
    /** An argument that can never work: a bad name, option or URL. */
    BAD_ARGUMENT(-1),
    /** A handle that is wrong. Java never meets it: it is {@link #CLOSED} or {@link #LOST}. */
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
    /** The store did not answer in time; nothing was asked of it yet. */
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
    /** The store is up and cannot serve at the moment: loading, busy, failing over. */
    UNAVAILABLE(-16),
    /** Something that this process needs has run out: connections, descriptors, threads. */
    EXHAUSTED(-17),
    /** The file of an embedded store cannot be used. */
    STORAGE(-18),
    /** The store answered something that this library does not understand. */
    PROTOCOL(-19),
    /** Too few replicas acknowledged the grant; the lock was given back. */
    NOT_REPLICATED(-20),
    /** Too few servers of the quorum answered; nothing is held. */
    NO_QUORUM(-21),
    /** The disk that the store writes to is full, or a quota there is used up. */
    DISK_FULL(-22),
    /** An error that this version of the Java classes has no word for. */
    OTHER(Integer.MIN_VALUE);

    private static final Status[] ALL = values();

    private final int code;

    Status(int code) {
        this.code = code;
    }

    /**
     * The number that C knows it by.
     *
     * @return a number above 0 for an outcome, below 0 for an error
     */
    public int code() {
        return code;
    }

    /**
     * Whether the same call can succeed later without anybody changing anything.
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
