package dev.leasehold;

/** How a wait for a lock goes; see {@link NamedLock#waitMode(WaitMode)}. */
public enum WaitMode {
    /**
     * In a queue where the store has one, in the order of coming; where the server refuses what
     * that needs (the right to subscribe to a channel), by asking again and again.
     */
    AUTO(0),
    /**
     * By asking again and again, in no order: for names that are shared with other libraries, whose
     * releases tell nobody. A thread that spins comes after all who
     * queue for the name.
     */
    SPIN(1);

    final int code;

    WaitMode(int code) {
        this.code = code;
    }
}
