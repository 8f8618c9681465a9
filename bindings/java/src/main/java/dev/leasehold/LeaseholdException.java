package dev.leasehold;

/**
 * A call that failed: what the library refuses, and what goes wrong with the store. The message
 * says what to do about it and never shows a password; {@link #status()} is the thing to switch on.
 * Two outcomes have types of their own, to be caught by: {@link LeaseTimeoutException} and
 * {@link LeaseLostException}.
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
     * @return an error, or an outcome that is not what was asked for
     */
    public Status status() {
        return status;
    }

    /**
     * Whether the same call can succeed later without anybody changing anything.
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
