package dev.leasehold;

/**
 * The lease was not held any more: it ran out, was deleted, somebody else has the lock now, or it
 * was ended before. What was done under it may have met somebody else's work; a resource that
 * compares fences has refused what came too late.
 *
 * <p>It is an {@link IllegalMonitorStateException} because {@link LeaseholdLock#unlock()} says the
 * same to a thread that does not hold the lock.
 */
public class LeaseLostException extends IllegalMonitorStateException {
    private static final long serialVersionUID = 1;

    LeaseLostException(String message) {
        super(message);
    }

    LeaseLostException(String message, Throwable cause) {
        super(message);
        initCause(cause);
    }

    /**
     * {@link Status#NOT_HELD}.
     *
     * @return always the same
     */
    public Status status() {
        return Status.NOT_HELD;
    }
}
