package dev.leasehold;

/**
 * You no longer hold the lock: the lease expired, was deleted, had ended before, or another client
 * holds the lock now. Since then, another client may have worked on the resource too. A resource
 * that compares fences has rejected your late writes.
 */
public class LeaseLostException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    LeaseLostException(String message) {
        super(Status.LOST, message);
    }

    LeaseLostException(String message, Throwable cause) {
        this(message);
        initCause(cause);
    }
}
