package dev.leasehold;

/**
 * A call that failed. The message says what to do about it, and never shows a password. To tell
 * failures apart, switch on {@link #status()}. Two outcomes have types of their own, so that you
 * can catch them: {@link LeaseTimeoutException} and {@link LeaseLostException}.
 */
public class LeaseholdException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Why the call failed. */
    private final Status status;

    LeaseholdException(Status status, String message) {
        super(message);
        this.status = status;
    }

    /**
     * Why the call failed.
     *
     * @return an error, or an outcome other than success
     */
    public Status status() {
        return status;
    }

    /**
     * Whether the same call may succeed later, with nothing changed.
     *
     * @return whether it is worth trying again
     */
    public boolean isRetriable() {
        return status.isRetriable();
    }

    static LeaseholdException closed() {
        return new LeaseholdException(Status.CLOSED, "the client is closed; open a new one");
    }

    static LeaseholdException badArgument(String detail) {
        return new LeaseholdException(Status.BAD_ARGUMENT, "bad argument: " + detail);
    }
}
