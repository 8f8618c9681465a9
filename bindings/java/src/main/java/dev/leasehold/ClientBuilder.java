package dev.leasehold;

import java.time.Duration;
import java.util.Objects;

/**
 * Options of a client that a program would rather set in code than in the URL: from
 * {@link LeaseholdClient#configure(String)}.
 *
 * <pre>{@code
 * var client = LeaseholdClient.configure("redis://cache").ioTimeout(ofMillis(300)).pool(16).connect();
 * }</pre>
 *
 * <p>Unlike all else here, it is for one thread.
 */
public final class ClientBuilder {
    /** Null: what the environment says. */
    private final String url;

    private byte[] prefix;
    private long ioTimeoutMs = Native.NOT_SET;
    private int pool = (int) Native.NOT_SET;
    private long closeTimeoutMs = Native.NOT_SET;
    private long claimWindowMs = Native.NOT_SET;

    ClientBuilder(String url) {
        this.url = url;
    }

    /**
     * Sets what is put before every name in the store; nothing by default.
     *
     * @param prefix any text
     * @return this
     */
    public ClientBuilder prefix(String prefix) {
        this.prefix = Name.encode("the prefix", Objects.requireNonNull(prefix, "prefix"));
        return this;
    }

    /**
     * The same for one that need not be text.
     *
     * @param prefix any bytes
     * @return this
     */
    public ClientBuilder prefix(byte[] prefix) {
        this.prefix = prefix.clone();
        return this;
    }

    /**
     * Sets how long the store may take to answer one request, connecting included: 1 s by default.
     *
     * @param timeout from 1 ms to an hour
     * @return this
     */
    public ClientBuilder ioTimeout(Duration timeout) {
        ioTimeoutMs = Times.toMillis("ioTimeout", timeout);
        return this;
    }

    /**
     * Sets how many requests may be under way at once: 8 by default.
     *
     * @param connections from 1 to 1024
     * @return this
     */
    public ClientBuilder pool(int connections) {
        // A negative number would mean "not set" on the way down.
        if (connections < 1) {
            throw LeaseholdException.badArgument("the pool has " + connections + " connections; 1 is the least");
        }
        pool = connections;
        return this;
    }

    /**
     * Sets how long closing the client goes on releasing leases: 1 s by default.
     *
     * @param timeout an hour at most
     * @return this
     */
    public ClientBuilder closeTimeout(Duration timeout) {
        closeTimeoutMs = Times.toMillis("closeTimeout", timeout);
        return this;
    }

    /**
     * Sets how long a lock that was handed to a waiter stays with it before it must have answered:
     * what a waiter that died just then costs the ones behind it. 1 s by default.
     *
     * @param window from 50 ms to a minute
     * @return this
     */
    public ClientBuilder claimWindow(Duration window) {
        claimWindowMs = Times.toMillis("claimWindow", window);
        return this;
    }

    /**
     * Opens the store with these options.
     *
     * @return an open client
     * @throws LeaseholdException as {@link LeaseholdClient#connect(String)}, and
     *     {@link Status#BAD_ARGUMENT} for options out of range
     */
    public LeaseholdClient connect() {
        byte[] where = url == null ? null : Name.encode("the URL", url);
        return new LeaseholdClient(Native.open(
                where, prefix, ioTimeoutMs, pool, closeTimeoutMs, claimWindowMs));
    }
}
