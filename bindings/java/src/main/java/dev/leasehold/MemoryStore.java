package dev.leasehold;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Collectors;

/**
 * A store in the memory of this process, for the tests of a program, and the controls of a test: it
 * needs no server, and has a lease lost, a lock busy or a request fail when the test says so.
 *
 * <pre>{@code
 * try (var store = MemoryStore.create(); var client = LeaseholdClient.connect(store.url())) {
 *     store.busy("orders:42");                    // another client holds it
 *     assertFalse(shop.ship(client, 42));
 * }
 * }</pre>
 *
 * <p>All clients that open its {@link #url()} exclude each other, as on a server. Locks are named as
 * the store has them: with the {@linkplain ClientBuilder#prefix(String) prefix} of the client, if that
 * has one. A control that is called mistakenly throws {@link Status#BAD_ARGUMENT}, such as
 * {@link #lose} of a lock that no client holds; the message names the locks that are held. Any thread
 * may call any method.
 *
 * <p>{@link #advance} moves the clock of the store. The client has a clock of its own, the machine's,
 * which no test can move: {@link Lease#remaining()}, the next renewal, the end of a wait and
 * {@link NamedLock#maxHold} count real time. To test these, set short times.
 *
 * <p>With JUnit, {@link dev.leasehold.junit.MemoryStoreExtension} hands one to each test.
 */
public final class MemoryStore implements AutoCloseable {
    private final StoreHandle handle;
    private final String url;
    private final Queue<Effect> effects = new ConcurrentLinkedQueue<>();
    private final Queue<LeaseholdClient> clients = new ConcurrentLinkedQueue<>();

    private MemoryStore(byte[] name) {
        handle = new StoreHandle(Native.openMemory(name));
        handle.follow(this);
        url = Name.decode(Native.memoryUrl(handle.get()));
    }

    /**
     * Makes a store that no other test has.
     *
     * @return a store without locks
     */
    public static MemoryStore create() {
        return new MemoryStore(null);
    }

    /**
     * Makes or finds the store of this name in this process: for a program whose URL stands in a file,
     * such as {@code memory:orders}.
     *
     * @param name what follows {@code memory:} in the URL
     * @return the store that such a URL opens
     */
    public static MemoryStore named(String name) {
        return new MemoryStore(Name.encode("the name", name));
    }

    /**
     * What a program opens, in this process. Options may follow, such as {@code ?io_timeout=50ms}.
     *
     * @return a URL for {@link LeaseholdClient#connect(String)}
     */
    public String url() {
        return url;
    }

    /**
     * Opens a client on this store. {@link #close()} closes it.
     *
     * @return another client than those of your program
     */
    public LeaseholdClient connect() {
        LeaseholdClient client = LeaseholdClient.connect(url);
        clients.add(client);
        return client;
    }

    /**
     * Ends the lease of the holder, as if its ttl had run out. The lock is free, or the first waiter's.
     * When this returns, the lease is invalid, and its event is on its way. A lease that is not renewed
     * learns it when it is extended or released, as on a server. While the store is paused, the holder
     * learns it at its next renewal.
     *
     * @param name a lock that a client holds
     */
    public void lose(String name) {
        try {
            Native.loseHeld(open(), Name.encode("the name", name));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Holds the lock as another client would, until the effect is closed. Then the store hands it to the
     * first waiter. Neither real time nor {@link #advance} ends it.
     *
     * @param name a lock that is free
     * @return what ends it; {@link #close()} does, too
     */
    public Effect busy(String name) {
        try {
            return begun(Native.makeBusy(open(), Name.encode("the name", name)));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Fails the next request of a call with this status, as a store would that did not carry it out.
     * With {@link Status#UNKNOWN} the store carries it out, and its reply is lost. Renewals and all else
     * that a client does in the background do not count. Called several times, it fails as many
     * requests, in that order.
     *
     * <p>A call tries again after a status that {@linkplain Status#isRetriable() is retriable}, so one
     * failed request only delays it. To have the call itself fail, use {@link #failing}.
     * {@link NamedLock#tryAcquire()} alone throws {@link Status#REFUSED} and
     * {@link Status#NOT_REPLICATED} at once.
     *
     * @param status one that a store gives
     */
    public void failNext(Status status) {
        try {
            Native.failNext(open(), status.code());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Fails every request of a call with this status, as {@link #failNext} fails one, until the effect
     * is closed. A call that tries again fails in the end, after {@code io_timeout} or its wait.
     *
     * @param status one that a store gives
     * @return what ends it; {@link #close()} does, too
     */
    public Effect failing(Status status) {
        try {
            return begun(Native.failing(open(), status.code()));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The store answers nothing, neither calls nor renewals, until {@link #resume()}. A request that is
     * waiting then is answered. One that has given up was not carried out. Leases expire meanwhile.
     */
    public void pause() {
        setPaused(true);
    }

    /** The store answers again. */
    public void resume() {
        setPaused(false);
    }

    private void setPaused(boolean paused) {
        try {
            Native.pauseMemory(open(), paused);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Moves the clock of the store forward. Leases expire there as if so much time had passed without a
     * request, and a lock that this frees is handed to its first waiter. The holder of an ended lease
     * has been told when this returns, as after {@link #lose}. The clock of the client stays.
     *
     * @param by how far
     */
    public void advance(Duration by) {
        try {
            Native.advanceMemory(open(), Times.toMillis("the time", by));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The names of the locks that are held, also by {@link #busy}.
     *
     * @return names in the order of their bytes
     */
    public List<String> held() {
        try {
            var held = new ArrayList<String>();
            for (byte[] name : Native.heldNames(open())) {
                held.add(Name.decode(name));
            }
            return held;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Fails the test if no client holds the lock.
     *
     * @param name the lock
     * @throws AssertionError with the locks that are held
     */
    public void assertHeld(String name) {
        check(held().contains(Objects.requireNonNull(name, "name")), "no client holds " + quoted(name));
    }

    /**
     * Fails the test if a client holds the lock.
     *
     * @param name the lock
     * @throws AssertionError with the locks that are held
     */
    public void assertFree(String name) {
        check(!held().contains(Objects.requireNonNull(name, "name")), quoted(name) + " is held");
    }

    /**
     * Fails the test if any lock is held.
     *
     * @throws AssertionError with the locks that are held
     */
    public void assertNothingHeld() {
        check(held().isEmpty(), "not every lock was released");
    }

    private void check(boolean so, String otherwise) {
        if (!so) {
            String held = held().stream().map(MemoryStore::quoted).collect(Collectors.joining(", "));
            throw new AssertionError(
                    otherwise + "; locks held in " + url + ": " + (held.isEmpty() ? "none" : held));
        }
    }

    private static String quoted(String name) {
        return new Name(name).quoted();
    }

    /**
     * Ends all effects, resumes the store, and closes the clients that {@link #connect()} opened. Other
     * clients go on. Closing twice does no harm.
     */
    @Override
    public void close() {
        effects.forEach(Effect::close);
        handle.run(); // resumes it
        clients.forEach(LeaseholdClient::close);
    }

    @Override
    public String toString() {
        return "MemoryStore(" + url + ")";
    }

    private long open() {
        long store = handle.get();
        if (store == 0) {
            throw new LeaseholdException(Status.CLOSED, "this MemoryStore is closed");
        }
        return store;
    }

    private Effect begun(long begun) {
        var effect = new Effect(begun);
        // Until it is closed: a test need not keep it in a variable.
        effects.add(effect);
        return effect;
    }

    /**
     * What goes on in a store until it is closed: a lock that another client holds, or requests that
     * fail.
     */
    public static final class Effect implements AutoCloseable {
        private final EffectHandle handle;

        private Effect(long begun) {
            handle = new EffectHandle(begun);
            handle.follow(this);
        }

        /** Releases the lock, or has requests succeed again. Closing twice does no harm. */
        @Override
        public void close() {
            handle.run();
        }
    }

    private static final class StoreHandle extends Handle {
        private static final long serialVersionUID = 1;

        StoreHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.freeMemory(handle);
        }
    }

    private static final class EffectHandle extends Handle {
        private static final long serialVersionUID = 1;

        EffectHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.freeEffect(handle);
        }
    }
}
