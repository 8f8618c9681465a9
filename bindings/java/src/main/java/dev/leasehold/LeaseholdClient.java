package dev.leasehold;

import dev.leasehold.settings.Settings;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/**
 * An open store, with its connections and one background thread, which renews leases. Open one per
 * process and share it between threads.
 *
 * <pre>{@code
 * try (var client = LeaseholdClient.connect("redis://127.0.0.1")) {
 *     try (var lease = client.lock("nightly").acquire()) {
 *         backUp(lease.fence());
 *     }
 * }
 * }</pre>
 *
 * <p>A program may also end without closing: it sends nothing, and its locks are free when their
 * ttl has passed. If the garbage collector finds a client with all its locks and leases, it closes
 * the client in the background and does not contact the store.
 */
public final class LeaseholdClient implements AutoCloseable {
    private final Handle handle;
    private final String store;
    /** What is to be freed with this client: native locks, waits. */
    private final Set<Handle> handles = ConcurrentHashMap.newKeySet();
    /** What each thread holds by a {@link LeaseholdLock}. */
    private final Holds holds = new Holds();
    /** Made when it is first needed. */
    private AsyncWaits asyncWaits;
    private final Losses losses = new Losses();
    /** What was counted until the client was closed. */
    private volatile Counters last;
    /** And what was measured. */
    private volatile String lastMetrics;

    /** The native half has a weak reference to it. Null where the URL has the credentials. */
    private final CredentialsSource credentials;

    private final List<String> metricsGroups;
    /** Null until the client is instrumented. */
    private volatile Telemetry telemetry;

    LeaseholdClient(long handle, CredentialsSource credentials, List<String> metricsGroups) {
        this.credentials = credentials;
        this.metricsGroups = metricsGroups;
        this.handle = new ClientHandle(handle);
        this.handle.follow(this);
        this.store = Name.decode(Native.store(handle));
    }

    /**
     * Opens the store that a URL names.
     *
     * <pre>
     * redis://[user[:password]@]host[:port][/database]   one Redis or Valkey over TCP
     * unix:///path/to/socket                             one Redis on a unix socket
     * redis+sentinel://[user:password@]host,host2/master the Redis that Sentinels call the master
     * redis+cluster://[user:password@]host,host2         a Redis Cluster, by some of its servers
     * rediss://, rediss+sentinel://, rediss+cluster://   the same over TLS
     * redis://a,redis://b,redis://c                      a quorum: an odd number of the above
     * sqlite:///path/to/file, sqlite:file                an SQLite file
     * sqlite:                                            the embedded store, one per user
     * memory:name                                        in memory, made by a test of this process
     * postgres://user[:password]@host[:port][,host2][/database]
     *                                                    a table of a PostgreSQL
     * mysql://user[:password]@host[:port][,host2]/database   tables of a MySQL or a MariaDB
     * zookeeper://[user:password@]host[:port][,host2][/chroot]
     *                                                    nodes of a ZooKeeper
     * etcd://[user:password@]host[:port][,host2], etcds://   an etcd, over TLS etcds
     * jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb:, jdbc:sqlite:
     *                                                    the same databases, as their drivers write it
     * </pre>
     *
     * <p>Any of them accepts {@code ?prefix=}, {@code io_timeout=}, {@code pool=},
     * {@code close_timeout=}, {@code claim_window=} and {@code max_ttl=}; servers also
     * {@code replicas=}, {@code guard_data_loss=} and {@code fence_life=}, and those over TLS
     * {@code ca=}, {@code cert=} and {@code key=}. A Redis store connects at its first use, so a
     * client can be opened before its server; {@link #ping()} connects at once. An SQLite file is
     * opened here. A URL of JDBC has the parameters of its driver instead; set options with
     * {@link #configure(String)}. No driver is needed.
     *
     * @param url where the locks are kept
     * @return an open client
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for the URL, {@link Status#STORAGE} for
     *     the file
     */
    public static LeaseholdClient connect(String url) {
        return configure(url).connectOnce();
    }

    /**
     * Opens the store that a URL names, with credentials that the program looks up while it runs, as
     * {@link ClientBuilder#credentials} says.
     *
     * @param url where the locks are kept, without a password
     * @param credentials returns user and secret, and until when they are good
     * @return an open client
     * @throws LeaseholdException as {@link #connect(String)}, and as {@link ClientBuilder#credentials}
     */
    public static LeaseholdClient connect(String url, Credentials credentials) {
        return configure(url).credentials(credentials).connectOnce();
    }

    /**
     * Opens a quorum of independent servers, of which a majority grants a lock.
     *
     * @param urls one for each member, an odd number
     * @return an open client
     * @throws LeaseholdException as {@link #connect(String)}
     */
    public static LeaseholdClient connect(List<String> urls) {
        return configure(urls).connectOnce();
    }

    /**
     * Opens the store that another library is configured for. The client borrows addresses,
     * database, user, password, and files for TLS. It makes connections of its own, because each
     * of its requests has a deadline.
     *
     * <pre>{@code
     * LeaseholdClient client = LeaseholdClient.from(dataSource);
     * }</pre>
     *
     * <p>It accepts:
     *
     * <ul>
     *   <li>Jedis: {@code JedisPooled}, {@code JedisPool}, {@code JedisSentinelPool},
     *       {@code JedisSentineled}, {@code JedisCluster} and other {@code UnifiedJedis},
     *       {@code HostAndPort}
     *   <li>Lettuce: {@code RedisURI}, {@code RedisClient}, {@code RedisClusterClient}
     *   <li>Redisson: {@code Config} of one server, of Sentinels or of a Cluster; {@code RedissonClient}
     *   <li>databases: a {@code HikariDataSource}, and the {@code DataSource} of PostgreSQL, MySQL,
     *       MariaDB and SQLite; Spring's {@code DriverManagerDataSource} and its wrappers
     *   <li>a URL
     * </ul>
     *
     * <p>The settings are read once. A change of the password reaches this client only if you open it
     * again; for a password that changes, see {@link ClientBuilder#credentials}.
     *
     * @param settings one of these
     * @return an open client
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for what cannot be borrowed, such as a
     *     socket factory or a callback for passwords; the message says what to write instead. Others
     *     as {@link #connect(String)}
     */
    public static LeaseholdClient from(Object settings) {
        return configureFrom(settings).connectOnce();
    }

    /**
     * Opens the store that Jedis would connect to with these two.
     *
     * @param address a {@code HostAndPort}, or several as a collection: those of a Cluster
     * @param config a {@code JedisClientConfig}
     * @return an open client
     * @throws LeaseholdException as {@link #from(Object)}
     */
    public static LeaseholdClient from(Object address, Object config) {
        return configureFrom(address, config).connectOnce();
    }

    /**
     * Begins to set up a client of the store that another library is configured for.
     *
     * @param settings as for {@link #from(Object)}
     * @return options to be set, and then to connect with
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT}, as {@link #from(Object)}
     */
    public static ClientBuilder configureFrom(Object settings) {
        return ClientBuilder.borrowing(() -> Settings.url(settings));
    }

    /**
     * Begins to set up a client of the store that Jedis would connect to with these two.
     *
     * @param address as for {@link #from(Object, Object)}
     * @param config as for {@link #from(Object, Object)}
     * @return options to be set, and then to connect with
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT}, as {@link #from(Object)}
     */
    public static ClientBuilder configureFrom(Object address, Object config) {
        return ClientBuilder.borrowing(() -> Settings.url(address, config));
    }

    /**
     * Opens the store that the environment variable {@code LEASEHOLD_URL} names, else the store in
     * {@code /etc/leasehold.conf}. If neither is set, it opens the embedded store, a file for this
     * user on this machine only, and the log says so. The command line does the same.
     *
     * @return an open client
     * @throws LeaseholdException as {@link #connect(String)}
     */
    public static LeaseholdClient fromEnvironment() {
        return configureFromEnvironment().connectOnce();
    }

    /**
     * Begins to set up a client in code.
     *
     * @param url where the locks are kept
     * @return options to be set, and then to connect with
     */
    public static ClientBuilder configure(String url) {
        return new ClientBuilder(Objects.requireNonNull(url, "url"));
    }

    /**
     * Begins to set up a client of a quorum in code.
     *
     * @param urls one for each member, an odd number
     * @return options to be set, and then to connect with
     */
    public static ClientBuilder configure(List<String> urls) {
        return configure(String.join(",", urls));
    }

    /**
     * Begins to set up a client of the store that {@link #fromEnvironment()} opens.
     *
     * @return options to be set, and then to connect with
     */
    public static ClientBuilder configureFromEnvironment() {
        return new ClientBuilder(null);
    }

    /**
     * Makes a lock on a name. It does not contact the store, and holds nothing.
     *
     * @param name any text but an empty one; its UTF-8 has 65536 bytes at most
     * @return a lock with the default options
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for the name
     */
    public NamedLock lock(String name) {
        return new NamedLock(this, new Name(name), Options.DEFAULT).checked();
    }

    /**
     * Makes a lock on a name that need not be text.
     *
     * @param name any bytes, from 1 to 65536
     * @return a lock with the default options
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for the name
     */
    public NamedLock lock(byte[] name) {
        return new NamedLock(this, new Name(name), Options.DEFAULT).checked();
    }

    /**
     * Makes a candidate for the leadership of a name: one of all candidates leads, the others stand by. It
     * does not contact the store.
     *
     * @param name as for {@link #lock(String)}
     * @return a candidate with the default options
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for the name
     */
    public Election election(String name) {
        return new Election(this, new Name(name));
    }

    /**
     * Makes a candidate for the leadership of a name that need not be text.
     *
     * @param name as for {@link #lock(byte[])}
     * @return a candidate with the default options
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for the name
     */
    public Election election(byte[] name) {
        return new Election(this, new Name(name));
    }

    /**
     * Connects to the store and logs in. It touches no lock.
     *
     * @throws LeaseholdException whatever is in the way, by {@code io_timeout}
     */
    public void ping() {
        try {
            Native.ping(open());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Declares that the servers are new, so that they grant locks at once. It is for stores that
     * guard against lost data, which otherwise wait for older leases to expire. Call it once,
     * before any client acquires a lock, and never at each start of a program: a server that has
     * come back empty looks new. {@code leasehold init} does the same.
     *
     * @param force declares that no client relies on any lease. Without it, the call fails for
     *     servers that wait already or came back with data
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for a store without that guard; others
     *     say which server is in the way
     */
    public void initialize(boolean force) {
        try {
            Native.initialize(open(), force);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Subscribes to what happens to the leases of this client from now on. Each subscription gets
     * every event.
     *
     * @return a subscription, to be closed
     */
    public LeaseEvents events() {
        return new LeaseEvents(this, Native.subscribe(open()));
    }

    /**
     * Calls {@code listener} with what happens to the leases of this client from now on. The calls
     * come from a daemon thread of their own, which ends with the client or when you close the
     * subscription. What the listener throws goes to the thread's
     * {@linkplain Thread#setDefaultUncaughtExceptionHandler handler}, and the next event still
     * comes.
     *
     * @param listener is called with one event at a time
     * @return the subscription; closing it is optional
     */
    public Subscription onEvent(Consumer<LeaseEvent> listener) {
        Objects.requireNonNull(listener, "listener");
        try {
            return new EventListener(Native.subscribe(open()), listener);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * What the client has counted since it was opened. It also works after the client was closed.
     *
     * @return the figures as they are now
     */
    public Counters counters() {
        try {
            return last != null ? last : Counters.read(open());
        } catch (LeaseholdException e) {
            if (last != null) {
                return last; // closed by another thread meanwhile
            }
            throw e;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * All counts and measurements since the client was opened, in Prometheus's text format. Serve
     * it with your program's own metrics, as {@code text/plain; version=0.0.4}. It also works after
     * the client was closed.
     *
     * @return the text as it is now
     */
    public String metricsText() {
        try {
            return lastMetrics != null ? lastMetrics : Name.decode(Native.metrics(open()));
        } catch (LeaseholdException e) {
            if (lastMetrics != null) {
                return lastMetrics; // closed by another thread meanwhile
            }
            throw e;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The store's URL without user and password.
     *
     * @return a URL without user and password
     */
    public String store() {
        return store;
    }

    /**
     * Closes the client. Every lease becomes invalid at once and is released. Threads that wait get
     * a {@link LeaseholdException} with {@link Status#CLOSED}. The background thread has ended when
     * this returns. It takes at most {@code close_timeout}, 1 s by default; a lock that was not
     * released by then is free when its ttl has passed. Closing twice does no harm.
     */
    @Override
    public void close() {
        close(Native.NOT_SET);
    }

    /**
     * Closes the client as {@link #close()} does, within another limit.
     *
     * @param limit how long to keep releasing leases; with zero, it does not contact the store
     */
    public void closeWithin(Duration limit) {
        close(Times.toMillis("the limit", limit));
    }

    private void close(long timeoutMs) {
        long client = handle.get();
        if (client == 0) {
            return;
        }
        try {
            Native.close(client, timeoutMs);
            last = Counters.read(client);
            lastMetrics = Name.decode(Native.metrics(client));
        } catch (LeaseholdException e) {
            if (handle.get() == 0) {
                return; // closed by another thread meanwhile
            }
            throw e;
        }
        if (handle.take() != 0) {
            Native.freeClient(client);
        }
        // Whatever still belongs to the client keeps its connections open.
        handles.forEach(Handle::run);
    }

    /** The native handle, as long as the client is open. */
    long open() {
        long client = handle.get();
        if (client == 0) {
            throw LeaseholdException.closed();
        }
        return client;
    }

    boolean isClosed() {
        return handle.get() == 0;
    }

    Set<Handle> handles() {
        return handles;
    }

    synchronized AsyncWaits asyncWaits() {
        if (asyncWaits == null) {
            open();
            asyncWaits = new AsyncWaits(this);
        }
        return asyncWaits;
    }

    Telemetry telemetry() {
        return telemetry;
    }

    synchronized void telemetry(Telemetry told) {
        if (telemetry != null) {
            throw LeaseholdException.badArgument("the client is instrumented already");
        }
        telemetry = told;
    }

    List<String> metricsGroups() {
        return metricsGroups;
    }

    Losses losses() {
        return losses;
    }

    Holds holds() {
        return holds;
    }

    @Override
    public String toString() {
        return "LeaseholdClient(" + store + ")";
    }

    private static final class ClientHandle extends Handle {
        private static final long serialVersionUID = 1;

        ClientHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.abandonClient(handle);
        }
    }
}
