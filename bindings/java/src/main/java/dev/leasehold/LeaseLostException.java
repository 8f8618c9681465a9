package dev.leasehold;

/**
 * The lease was not held any more: it ran out, was deleted, somebody else has the lock now, or it
 * was ended before. What was done under it may have met somebody else's work; a resource that
 * compares fences has refused what came too late.
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
