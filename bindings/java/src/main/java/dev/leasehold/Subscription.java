package dev.leasehold;

/** That a listener is told of events, until this is closed. */
public interface Subscription extends AutoCloseable {
    /** Ends it: the listener is told of one more event at most, which is under way. */
    @Override
    void close();
}
