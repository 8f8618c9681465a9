package dev.leasehold;

/** The lock stayed taken for as long as the caller wanted to wait. Nothing is held. */
public class LeaseTimeoutException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    LeaseTimeoutException(String message) {
        super(Status.TIMEOUT, message);
    }
}
