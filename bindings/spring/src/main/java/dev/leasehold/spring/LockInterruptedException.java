package dev.leasehold.spring;

/**
 * The thread was interrupted while it waited for the lock of a {@link Locked} method that does not
 * declare {@link InterruptedException}. The method did not run, and the thread is still interrupted.
 */
public class LockInterruptedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LockInterruptedException(InterruptedException cause) {
        super(cause.getMessage(), cause);
    }
}
