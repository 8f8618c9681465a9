package dev.leasehold;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * A name and options, from {@link LeaseholdClient#lock(String)}. It holds nothing itself; each time
 * you acquire it, you get a {@link Lease}. Any number of threads may use it at once. It is
 * immutable: each option returns a new object, so keep the one that you have set up.
 *
 * <pre>{@code
 * NamedLock stock = client.lock("stock:sku-17").ttl(ofSeconds(10)).waitAtMost(ofSeconds(5));
 *
 * try (Lease lease = stock.tryAcquire()) { // does not wait for the holder if (lease == null) {
 * return reject(order); // another client holds it } charge(order, lease.fence()); // the database
 * rejects a smaller fence } }</pre>
 *
 * <p>It is not a {@link java.util.concurrent.locks.Lock}, because what you hold is a {@link Lease}.
 * Redisson's {@code lock()}, {@code tryLock(wait, lease, unit)} and {@code unlock()}, with
 * reentrancy for each thread, are those of {@link #asLock()}; {@code isLocked()} is
 * {@link #inspect()}, and {@code forceUnlock()} is {@link #breakHeld(String)}.
 *
 * <p>An option that is out of range throws when you set it. Options that contradict each other
 * throw when you acquire the lock. Both are a {@link LeaseholdException} with
 * {@link Status#BAD_ARGUMENT}.
 */
@CheckReturnValue
public final class NamedLock {
    private final LeaseholdClient client;
    private final Name name;
    private final Options options;
    /** The native lock, made when it is first needed. */
    private volatile LockHandle handle;

    NamedLock(LeaseholdClient client, Name name, Options options) {
        this.client = client;
        this.name = name;
        this.options = options;
    }

    // ---- options ---------------------------------------------------------------------------------

    /**
     * Sets how soon the lock is free after its holder died: 30 s by default. A renewed lease does
     * not end with its ttl.
     *
     * @param ttl from 3 ms to 366 days, or to what the URL has as {@code max_ttl}
     * @return a lock with this option
     */
    public NamedLock ttl(Duration ttl) {
        return with(options.withTtl(Times.toMillis("ttl", ttl)));
    }

    /**
     * Sets how long {@link #acquire()} waits: 60 s by default.
     *
     * @param wait zero tries once
     * @return a lock with this option
     */
    public NamedLock waitAtMost(Duration wait) {
        return with(options.withWait(Times.toMillis("waitAtMost", wait)));
    }

    /**
     * Makes {@link #acquire()} wait without limit.
     *
     * @return a lock with this option
     */
    public NamedLock waitForever() {
        return with(options.withWait(Native.FOREVER));
    }

    /**
     * Sets how long the store may take to answer when you acquire this lock: by default the
     * client's {@code io_timeout}, 1 s. While the store does not answer, {@link #tryAcquire()} and
     * shorter waits take this long: with 50 ms, there is an answer or an exception within 50 ms.
     *
     * @param most from 1 ms to 1 h
     * @return a lock with this option
     */
    public NamedLock ioTimeout(Duration most) {
        return with(options.withIoTimeout(Times.toMillis("ioTimeout", most)));
    }

    /**
     * Sets how often a wait with {@link WaitMode#SPIN} tries at most. The wait ends after that many
     * tries or when its time has passed, whichever comes first. In other modes, acquiring the lock
     * then throws {@link Status#BAD_ARGUMENT}.
     *
     * @param most at least 1; there is no limit by default
     * @return a lock with this option
     */
    public NamedLock attempts(int most) {
        if (most < 0) {
            throw LeaseholdException.badArgument("attempts is negative: " + most);
        }
        return with(options.withAttempts(most));
    }

    /**
     * Sets whether leases are renewed in the background. By default they are, if the ttl is at
     * least 100 ms. Without renewal, a lease ends with its ttl.
     *
     * @param renew false: the holder must finish within the ttl
     * @return a lock with this option
     */
    public NamedLock renew(boolean renew) {
        return with(options.withRenew(renew));
    }

    /**
     * Sets how long a living holder may keep a renewed lease: an hour by default.
     *
     * @param most how long
     * @return a lock with this option
     */
    public NamedLock maxHold(Duration most) {
        return with(options.withMaxHold(Times.toMillis("maxHold", most)));
    }

    /**
     * Lets a living holder keep a renewed lease without limit.
     *
     * @return a lock with this option
     */
    public NamedLock noMaxHold() {
        return with(options.withMaxHold(Native.FOREVER));
    }

    /**
     * Sets how waiters wait: by default in a queue, if the store has one.
     *
     * @param mode the way of waiting
     * @return a lock with this option
     */
    public NamedLock waitMode(WaitMode mode) {
        return with(options.withWaitMode(Objects.requireNonNull(mode, "waitMode")));
    }

    /**
     * Sets how long a wait with {@link WaitMode#SPIN} pauses between tries. In other modes,
     * acquiring the lock then throws {@link Status#BAD_ARGUMENT}.
     *
     * @param backoff the pauses
     * @return a lock with this option
     */
    public NamedLock backoff(Backoff backoff) {
        return with(options.withBackoff(Objects.requireNonNull(backoff, "backoff")));
    }

    private NamedLock with(Options changed) {
        return new NamedLock(client, name, changed).checked();
    }

    /** What can never be is refused where it is said: by a native lock that is made for that. */
    NamedLock checked() {
        if (!client.isClosed()) {
            try {
                Native.freeLock(make());
            } finally {
                Reference.reachabilityFence(client);
            }
        }
        return this;
    }

    private long make() {
        long lock = Native.lock(client.open(), name.bytes());
        try {
            options.apply(lock);
            return lock;
        } catch (LeaseholdException e) {
            Native.freeLock(lock);
            throw e;
        }
    }

    // ---- taking it -------------------------------------------------------------------------------

    /**
     * Acquires the lock if it is free. It never waits for the holder. It does wait for the store's
     * answer, up to {@link #ioTimeout(Duration)}, 1 s by default.
     *
     * @return a lease, or {@code null} if another client holds the lock;
     *     {@code try (Lease lease = ...)} accepts both
     * @throws LeaseholdException {@link Status#UNKNOWN}, or the reason why the store did not
     *     answer; you do not hold the lock
     */
    public Lease tryAcquire() {
        Telemetry telemetry = client.telemetry();
        return telemetry == null ? tryNow() : telemetry.told(this, this::tryNow);
    }

    private Lease tryNow() {
        try {
            long lease = Native.tryAcquire(open());
            return lease == 0 ? null : Lease.of(this, lease);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Acquires the lock, and waits for it up to {@link #waitAtMost(Duration)}. While the store does
     * not answer, it takes at least {@link #ioTimeout(Duration)}, 1 s by default. Interrupting the
     * thread ends the wait within 150 ms. While the store does not answer, it ends the wait within
     * {@code ioTimeout}.
     *
     * @return a lease
     * @throws InterruptedException the thread was interrupted; nothing is held
     * @throws LeaseTimeoutException the lock stayed taken
     * @throws LeaseholdException {@link Status#CLOSED} if the client was closed during the wait;
     *     {@link Status#WOULD_DEADLOCK} if the wait has no limit and this thread itself acquired
     *     the lease that holds the lock; others as for {@link #tryAcquire()}. Once the store has
     *     answered this client, a wait outlasts an outage of the store.
     */
    public Lease acquire() throws InterruptedException {
        return take(options.waitMs() == Native.FOREVER ? Native.FOREVER : Native.NOT_SET);
    }

    /**
     * As {@link #acquire()}, with another limit to the wait.
     *
     * @param wait zero tries once
     * @return a lease
     * @throws InterruptedException the thread was interrupted; nothing is held
     * @throws LeaseTimeoutException the lock stayed taken
     * @throws LeaseholdException as for {@link #acquire()}
     */
    public Lease acquireWithin(Duration wait) throws InterruptedException {
        return take(Times.toMillis("the wait", wait));
    }

    /** Waits until the thread is interrupted, the lock is ours, or {@code waitMs} is over. */
    Lease take(long waitMs) throws InterruptedException {
        Telemetry telemetry = client.telemetry();
        return telemetry == null ? takeNow(waitMs) : telemetry.told(this, () -> takeNow(waitMs));
    }

    private Lease takeNow(long waitMs) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException("interrupted before the wait for " + name.quoted());
        }
        try {
            long lock = open();
            return Lease.of(
                    this,
                    LentThread.isNeeded()
                            ? LentThread.lend(() -> Native.acquire(lock, withEnd(waitMs), true))
                            : Native.acquire(lock, waitMs, true));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Waits until the lock is ours, interrupted or not; leaves the flag as it is. */
    Lease takeUninterruptibly() {
        Telemetry telemetry = client.telemetry();
        return telemetry == null ? takeNowUninterruptibly() : telemetry.told(this, this::takeNowUninterruptibly);
    }

    private Lease takeNowUninterruptibly() {
        try {
            long lock = open();
            return Lease.of(
                    this,
                    LentThread.isNeeded()
                            ? LentThread.lendUninterruptibly(
                                    () -> Native.acquire(lock, withEnd(Native.FOREVER), false))
                            : Native.acquire(lock, Native.FOREVER, false));
        } catch (InterruptedException e) {
            throw new AssertionError(e); // an interrupt does not end this wait
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * A thread that is lent to one virtual thread after another is not the one that holds what it
     * took. Only waits without any end are refused because a thread would wait for itself.
     */
    private static long withEnd(long waitMs) {
        return waitMs == Native.FOREVER ? Native.FOREVER - 1 : waitMs;
    }

    /**
     * Acquires the lock without a waiting thread, and waits up to {@link #waitAtMost(Duration)}.
     * Any number of these waits need only a few threads of the client, and one that completes the
     * futures. They queue with all other waiters. Dependent stages run on the thread that completes
     * the future and must not block it: use {@code thenApplyAsync} and similar methods, or
     * {@link #acquireAsync(Duration, Executor)}.
     *
     * <pre>{@code
     * stock.acquireAsync().thenAcceptAsync(lease -> {
     *     try (lease) {
     *         charge(order, lease.fence());
     *     }
     * });
     * }</pre>
     *
     * @return a future lease. It completes exceptionally with what {@link #acquire()} throws.
     *     If you cancel this future, or complete it yourself, the wait leaves the queue and holds
     *     no lock. That is true for this future only, not for dependent stages.
     */
    public CompletableFuture<Lease> acquireAsync() {
        return acquireAsync(Native.NOT_SET, Runnable::run);
    }

    /**
     * As {@link #acquireAsync()}, with another limit to the wait.
     *
     * @param wait zero tries once
     * @return a future lease, as of {@link #acquireAsync()}
     */
    public CompletableFuture<Lease> acquireAsync(Duration wait) {
        return acquireAsync(wait, Runnable::run);
    }

    /**
     * As {@link #acquireAsync()}, with another limit to the wait, and completed by an executor. Dependent stages
     * run there and may block.
     *
     * @param wait zero tries once
     * @param executor completes the future
     * @return a future lease, as of {@link #acquireAsync()}
     */
    public CompletableFuture<Lease> acquireAsync(Duration wait, Executor executor) {
        long waitMs = Times.toMillis("the wait", wait);
        return acquireAsync(waitMs, Objects.requireNonNull(executor, "executor"));
    }

    private CompletableFuture<Lease> acquireAsync(long waitMs, Executor executor) {
        try {
            Telemetry telemetry = client.telemetry();
            return client.asyncWaits().start(
                    this, open(), waitMs, executor, telemetry == null ? null : telemetry.begin(this));
        } catch (LeaseholdException e) {
            return CompletableFuture.failedFuture(e);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Continues a lease that another process has acquired and handed over with
     * {@link Lease#detach()}: a web request acquires it, a worker releases it. It does not contact
     * the store. Rely on the lease only after its first successful {@link Lease#extend()}. If
     * several processes attach the same lease, the {@code extend()} of only one succeeds. With a
     * wrong token or fence, none does.
     *
     * @param token the token there
     * @param fence the fence there
     * @return a lease, not valid yet
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} if the token or fence is malformed
     */
    public Lease attach(String token, long fence) {
        try {
            Lease lease = Lease.of(this, Native.attach(open(), Name.encode("the token", token), fence));
            Telemetry telemetry = client.telemetry();
            if (telemetry != null) {
                lease.tell(telemetry.attached(this, fence));
            }
            return lease;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Asks the store who holds the lock and who waits for it. It changes nothing.
     *
     * @return the state of the lock when the store answered
     * @throws LeaseholdException what kept the store from answering, by {@code io_timeout}
     */
    public LockState inspect() {
        long[] figures = new long[5];
        try {
            return LockState.of(Native.inspect(open(), figures), figures);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Frees a lock whose holder does not release it. It is for operators, not for programs. The
     * store hands the lock to the first waiter at once, with a larger fence. The holder learns of
     * it at its next renewal: its lease is lost, and its event, exception and log name {@code by}.
     *
     * @param by who does it, such as {@code root@web-3}
     * @return the fence of the lease that it ended; empty if the lock was free
     * @throws LeaseholdException what kept the store from answering, by {@code io_timeout}
     */
    public OptionalLong breakHeld(String by) {
        return end(by, 0);
    }

    /**
     * Frees the lock as {@link #breakHeld(String)} does, but only from the lease with this fence.
     *
     * @param by who does it
     * @param ifFence the {@link LockState#fence()} of a held lock
     * @return its fence; empty if the lock was free, or another lease holds it
     * @throws LeaseholdException what kept the store from answering, by {@code io_timeout}; or that
     *     {@code ifFence} is no fence, such as the 0 of a free lock
     */
    public OptionalLong breakHeld(String by, long ifFence) {
        if (ifFence < 1) {
            throw LeaseholdException.badArgument(ifFence + " is no fence");
        }
        return end(by, ifFence);
    }

    private OptionalLong end(String by, long ifFence) {
        try {
            long fence = Native.breakHeld(open(), ifFence, Name.encode("who breaks it", by));
            return fence < 0 ? OptionalLong.empty() : OptionalLong.of(fence);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * This lock for code that is written against {@link java.util.concurrent.locks.Lock}.
     *
     * @return a lock that belongs to the thread that acquires it
     */
    public LeaseholdLock asLock() {
        return new LeaseholdLock(this);
    }

    // ---- what it is ------------------------------------------------------------------------------

    /**
     * The name; where it is not UTF-8, with replacement characters.
     *
     * @return the name as text
     */
    public String name() {
        return name.toString();
    }

    /**
     * The name as it is.
     *
     * @return a copy
     */
    public byte[] nameBytes() {
        return name.bytes().clone();
    }

    LeaseholdClient client() {
        return client;
    }

    Name key() {
        return name;
    }

    /** The same name without renewal, for {@link LeaseholdLock}. */
    NamedLock endingAfter(long ttlMs) {
        return with(options.withTtl(ttlMs).withRenew(false));
    }

    @Override
    public String toString() {
        return "NamedLock(" + name + ")";
    }

    // ---- the native lock -------------------------------------------------------------------------

    private long open() {
        LockHandle opened = handle;
        long lock = (opened == null ? openFirst() : opened).get();
        if (lock == 0) {
            throw LeaseholdException.closed();
        }
        return lock;
    }

    private synchronized LockHandle openFirst() {
        if (handle == null) {
            LockHandle opened = new LockHandle(make(), client.handles());
            opened.follow(this);
            handle = opened;
            if (client.isClosed()) {
                opened.run();
            }
        }
        return handle;
    }

    private static final class LockHandle extends Handle {
        private static final long serialVersionUID = 1;

        private final transient Set<Handle> all;

        LockHandle(long handle, Set<Handle> all) {
            super(handle);
            this.all = all;
            all.add(this);
        }

        @Override
        void abandon(long handle) {
            all.remove(this);
            Native.freeLock(handle);
        }
    }
}
