package dev.leasehold;

import dev.leasehold.settings.Refusal;
import dev.leasehold.settings.Settings;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * Options of a client that you set in code rather than in the URL: from
 * {@link LeaseholdClient#configure(String)}.
 *
 * <pre>{@code
 * var client = LeaseholdClient.configure("redis://cache").ioTimeout(ofMillis(300)).pool(16).connect();
 * }</pre>
 *
 * <p>Each method throws for a value out of range: a {@link LeaseholdException} with
 * {@link Status#BAD_ARGUMENT}. After a client was opened, its options no longer change.
 */
public final class ClientBuilder {
    private final ConfigHandle config;
    /** Null where the URL has the credentials. */
    private CredentialsSource credentials;
    /** As in C, which does not say them. */
    private final List<String> metricsGroups = new ArrayList<>();

    /** Null: what the environment says. */
    ClientBuilder(String url) {
        config = new ConfigHandle(Native.config(url == null ? null : Name.encode("the URL", ours(url))));
        config.follow(this);
        setText(Native.LANGUAGE, Name.encode("the language", "java"));
        String program = program();
        if (!program.isEmpty()) {
            setText(Native.PROGRAM, Name.encode("the program", program));
        }
    }

    /** The URL as the native half reads it, which knows nothing of JDBC. */
    private static String ours(String url) {
        return Settings.isJdbc(url) ? borrow(() -> Settings.ofJdbc(url)) : url;
    }

    /** A client of what other objects are configured for. */
    static ClientBuilder borrowing(Supplier<String> url) {
        return new ClientBuilder(borrow(url));
    }

    private static String borrow(Supplier<String> url) {
        try {
            return url.get();
        } catch (Refusal e) {
            throw LeaseholdException.badArgument(e.getMessage());
        }
    }

    /** The main class or the jar, without arguments: they may hold a password. */
    private static String program() {
        String command = System.getProperty("sun.java.command", "");
        String first = command.split(" ", 2)[0];
        return first.substring(first.lastIndexOf('/') + 1);
    }

    /**
     * Sets a prefix to every name in the store; none by default.
     *
     * @param prefix any text
     * @return this
     */
    public ClientBuilder prefix(String prefix) {
        return prefix(Name.encode("the prefix", Objects.requireNonNull(prefix, "prefix")));
    }

    /**
     * Sets a prefix that need not be text.
     *
     * @param prefix any bytes
     * @return this
     */
    public ClientBuilder prefix(byte[] prefix) {
        try {
            Native.setPrefix(config.get(), prefix);
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Sets how long the store may take to answer one request, connecting included: 1 s by default.
     *
     * @param timeout from 1 ms to an hour
     * @return this
     */
    public ClientBuilder ioTimeout(Duration timeout) {
        return set(Native.IO_TIMEOUT, Times.toMillis("ioTimeout", timeout));
    }

    /**
     * Sets how many requests may be under way at once: 8 by default.
     *
     * @param connections from 1 to 1024
     * @return this
     */
    public ClientBuilder pool(int connections) {
        if (connections < 0) {
            throw LeaseholdException.badArgument("pool is negative: " + connections);
        }
        return set(Native.POOL, connections);
    }

    /**
     * Sets how long closing the client keeps releasing leases: 1 s by default.
     *
     * @param timeout an hour at most
     * @return this
     */
    public ClientBuilder closeTimeout(Duration timeout) {
        return set(Native.CLOSE_TIMEOUT, Times.toMillis("closeTimeout", timeout));
    }

    /**
     * Sets how soon a waiter must confirm a lock that is handed to it. If it dies at that moment,
     * the next waiter gets the lock after this time. 1 s by default.
     *
     * @param window from 50 ms to a minute
     * @return this
     */
    public ClientBuilder claimWindow(Duration window) {
        return set(Native.CLAIM_WINDOW, Times.toMillis("claimWindow", window));
    }

    /**
     * Sets the longest ttl that a lock may have: 366 days by default, and 60 s in a store that guards
     * against lost data. All clients of such a store should have the same.
     *
     * @param most from 1 s to 366 days, in a quorum to 24 h
     * @return this
     */
    public ClientBuilder maxTtl(Duration most) {
        return set(Native.MAX_TTL, Times.toMillis("maxTtl", most));
    }

    /**
     * Sets whether a server that may have lost data grants no lock until {@code maxTtl} has passed.
     *
     * @param on false by default, except in a quorum, where it is always on
     * @return this
     */
    public ClientBuilder guardDataLoss(boolean on) {
        return set(Native.GUARD_DATA_LOSS, on ? 1 : 0);
    }

    /**
     * Sets a word of your own, such as the tenant, the queue or the release. Other clients see it
     * beside the program's name when they ask who holds a lock.
     *
     * @param label text of 100 bytes at most
     * @return this
     */
    public ClientBuilder label(String label) {
        return setText(
                Native.LABEL, Name.encode("the label", Objects.requireNonNull(label, "label")));
    }

    /**
     * Sets whether the client writes to the store who it is, so that other clients see who holds a
     * lock.
     *
     * @param on true by default
     * @return this
     */
    public ClientBuilder register(boolean on) {
        return set(Native.REGISTER, on ? 1 : 0);
    }

    /**
     * Sets whether the log warns if the store can lose grants and nothing guards against that.
     *
     * @param on true by default
     * @return this
     */
    public ClientBuilder advise(boolean on) {
        return set(Native.ADVISE, on ? 1 : 0);
    }

    /**
     * Counts the locks of some names separately in {@link LeaseholdClient#metricsText()}.
     *
     * @param pattern a name, or a prefix and a {@code *}, as in {@code "stock:*"}; if several
     *     match, the longest counts. Add at most 32, one per call
     * @return this
     */
    public ClientBuilder metricsGroup(String pattern) {
        byte[] group = Name.encode("the metrics group", Objects.requireNonNull(pattern, "pattern"));
        setText(Native.METRICS_GROUP, group);
        metricsGroups.add(pattern);
        return this;
    }

    /**
     * Looks up user and secret while the program runs, in place of a password in the URL. A thread of the
     * client asks when the first connection needs them, and again before they end, at about three
     * quarters of their life. No lease is lost by that, and no call waits while the last secret is good.
     *
     * <pre>{@code
     * var client = LeaseholdClient.configure("postgres://app@db/shop")
     *         .credentials(endpoint -> new Credentials.Login("app", vault.password(), vault.end()))
     *         .connect();
     * }</pre>
     *
     * <p>Each server has credentials of its own. Open connections to Redis log in again with the newest.
     * If the callback throws, or the secret has ended already, the client uses the last one until its end,
     * and then calls fail with {@link Status#AUTH}. A call that needs a login waits for the callback
     * until its own deadline, and then fails with {@link Status#NO_ANSWER}.
     *
     * @param credentials is called on a daemon thread, one call at a time, with the context class loader
     *     of the thread that calls this method
     * @return this
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} if the URL has a password, or the store has no
     *     login
     */
    public ClientBuilder credentials(Credentials credentials) {
        var source = new CredentialsSource(Objects.requireNonNull(credentials, "credentials"));
        try {
            Native.setCredentials(config.get(), source);
            this.credentials = source;
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private ClientBuilder setText(int option, byte[] text) {
        try {
            Native.setText(config.get(), option, text);
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private ClientBuilder set(int option, long value) {
        try {
            Native.setConfig(config.get(), option, value);
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Opens the store with these options.
     *
     * @return an open client
     * @throws LeaseholdException as {@link LeaseholdClient#connect(String)}
     */
    public LeaseholdClient connect() {
        try {
            return new LeaseholdClient(Native.open(config.get()), credentials, List.copyOf(metricsGroups));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** The same for a builder that nobody else sees. */
    LeaseholdClient connectOnce() {
        try {
            return connect();
        } finally {
            config.run();
        }
    }

    private static final class ConfigHandle extends Handle {
        private static final long serialVersionUID = 1;

        ConfigHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.freeConfig(handle);
        }
    }
}
