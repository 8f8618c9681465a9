package dev.leasehold;

import java.util.concurrent.TimeoutException;

/** The lock stayed taken for as long as the caller wanted to wait. Nothing is held. */
public class LeaseTimeoutException extends TimeoutException {
    private static final long serialVersionUID = 1;

    LeaseTimeoutException(String message) {
        super(message);
    }

    /**
     * {@link Status#TIMEOUT}.
     *
     * @return always the same
     */
    public Status status() {
        return Status.TIMEOUT;
    }
}
