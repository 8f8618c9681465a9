package dev.leasehold;

/** How waiters wait for a lock; see {@link NamedLock#waitMode(WaitMode)}. */
public enum WaitMode {
    /**
     * They queue in the order of arrival, if the store has a queue. If the server denies the right
     * to subscribe to a channel, they poll.
     */
    AUTO(0),
    /**
     * They poll, in no order. It is for names shared with other libraries, whose releases notify no
     * waiter. A thread that polls comes after all waiters in the queue.
     */
    SPIN(1);

    final int code;

    WaitMode(int code) {
        this.code = code;
    }
}
