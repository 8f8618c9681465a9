package dev.leasehold;

/** The wait ran out while another client held the lock. You do not hold the lock. */
public class LeaseTimeoutException extends LeaseholdException {
    private static final long serialVersionUID = 1;

    LeaseTimeoutException(String message) {
        super(Status.TIMEOUT, message);
    }
}
