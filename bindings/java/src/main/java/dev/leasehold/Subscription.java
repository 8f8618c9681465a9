package dev.leasehold;

/** The subscription of a listener, until you close it. */
public interface Subscription extends AutoCloseable {
    /**
     * Ends the subscription. At most one more call of the listener, which has begun already, goes
     * on.
     */
    @Override
    void close();
}
