package dev.leasehold;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;

/**
 * A lock that can be taken: a name and options, from {@link LeaseholdClient#lock(String)}. It holds
 * nothing itself, any number of threads may use it at once, and any number of leases can come from
 * it. It does not change: each option gives another one, so keep the one that you have set up.
 *
 * <pre>{@code
 * NamedLock stock = client.lock("stock:sku-17").ttl(ofSeconds(10)).waitAtMost(ofSeconds(5));
 *
 * try (Lease lease = stock.tryAcquire()) {   // never waits
 *     if (lease == null) {
 *         return reject(order);              // somebody else has it
 *     }
 *     charge(order, lease.fence());          // the database refuses a smaller fence
 * }
 * }</pre>
 *
 * <p>It is not a {@link java.util.concurrent.locks.Lock}, because what is held is a {@link Lease}.
 * Redisson's {@code lock()}, {@code tryLock(wait, lease, unit)} and {@code unlock()}, with reentrancy for
 * each thread, are those of {@link #asLock()}; {@code isLocked()} is {@link #inspect()}, and
 * {@code forceUnlock()} is {@link #breakHeld(String)}.
 *
 * <p>What an option can never be is refused where it is set, and what does not go together when the
 * lock is taken: a {@link LeaseholdException} with {@link Status#BAD_ARGUMENT}.
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
     * Sets how soon the lock is free after its holder died: 30 s by default. It does not end a
     * lease that is renewed.
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
     * Sets how long the store may take to answer when this lock is taken: by default the client's
     * {@code io_timeout}, 1 s. While the store is silent, {@link #tryAcquire()} and shorter waits
     * take so long: with 50 ms, there is an answer or an exception within that.
     *
     * @param most from 1 ms to 1 h
     * @return a lock with this option
     */
    public NamedLock ioTimeout(Duration most) {
        return with(options.withIoTimeout(Times.toMillis("ioTimeout", most)));
    }

    /**
     * Sets how often a wait with {@link WaitMode#SPIN} asks for the lock at most. Whichever of this
     * and the time comes first ends the wait. In other modes, taking the lock is then
     * {@link Status#BAD_ARGUMENT}.
     *
     * @param most 1 is the least, and there is no limit by default
     * @return a lock with this option
     */
    public NamedLock attempts(int most) {
        if (most < 0) {
            throw LeaseholdException.badArgument("attempts is negative: " + most);
        }
        return with(options.withAttempts(most));
    }

    /**
     * Sets whether leases are renewed in the background. By default they are where the ttl is at
     * least 100 ms; without renewal the ttl is the limit.
     *
     * @param renew false: the holder has to be done within the ttl
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
     * Sets how a wait goes: in a queue where the store has one, by default.
     *
     * @param mode the way of waiting
     * @return a lock with this option
     */
    public NamedLock waitMode(WaitMode mode) {
        return with(options.withWaitMode(Objects.requireNonNull(mode, "waitMode")));
    }

    /**
     * Sets how long a wait with {@link WaitMode#SPIN} pauses. In other modes, taking the lock is then
     * {@link Status#BAD_ARGUMENT}.
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
     * Takes the lock if it is free, without waiting for a holder. While the store is silent, it
     * takes as long as {@link #ioTimeout(Duration)} says, 1 s by default.
     *
     * @return a lease, or {@code null} when somebody else has it; {@code try (Lease lease = ...)}
     *     accepts both
     * @throws LeaseholdException {@link Status#UNKNOWN}, with nothing held, or what kept the store
     *     from answering
     */
    public Lease tryAcquire() {
        try {
            long lease = Native.tryAcquire(open());
            return lease == 0 ? null : Lease.of(this, lease);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Takes the lock, waiting for it as long as {@link #waitAtMost(Duration)} says. While the store
     * is silent, it takes as long as {@link #ioTimeout(Duration)} says at least, 1 s by default.
     * Interrupting the thread ends the wait within 150 ms, or within that time while the store does
     * not answer.
     *
     * @return a lease
     * @throws InterruptedException the thread was interrupted; nothing is held
     * @throws LeaseTimeoutException the lock stayed taken
     * @throws LeaseholdException {@link Status#CLOSED} when the client was closed meanwhile;
     *     {@link Status#WOULD_DEADLOCK} when the wait has no limit and this thread took the lock
     *     that is held; others as for {@link #tryAcquire()}. Once the store has answered this
     *     client, a wait outlasts an outage of it.
     */
    public Lease acquire() throws InterruptedException {
        return take(options.waitMs() == Native.FOREVER ? Native.FOREVER : Native.NOT_SET);
    }

    /**
     * The same with a limit of its own.
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
     * Takes the lock without a thread that waits, for as long as {@link #waitAtMost(Duration)} says.
     * Any number of such waits, in the order of coming among all who wait, need a few threads of the
     * client and one that completes the futures. What depends on a future runs on that one, and must
     * not block it: use {@code thenApplyAsync} and the like, or
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
     *     Cancelling it, or completing it in another way, leaves the queue and no lock behind; so it
     *     is with this future itself, not with one that was made of it.
     */
    public CompletableFuture<Lease> acquireAsync() {
        return acquireAsync(Native.NOT_SET, Runnable::run);
    }

    /**
     * The same with a limit of its own.
     *
     * @param wait zero tries once
     * @return a future lease, as of {@link #acquireAsync()}
     */
    public CompletableFuture<Lease> acquireAsync(Duration wait) {
        return acquireAsync(wait, Runnable::run);
    }

    /**
     * The same, completed by an executor. What depends on the future runs there and may block.
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
            return client.asyncWaits().start(this, open(), waitMs, executor);
        } catch (LeaseholdException e) {
            return CompletableFuture.failedFuture(e);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Goes on with a lease that another process took and let go of with {@link Lease#detach()}: a
     * web request takes it, a worker releases it. Asks nobody; the lease may be relied on after
     * its first successful {@link Lease#extend()}, which only one of several gets who attach it, and
     * nobody where it was not detached with this token and fence.
     *
     * @param token the token there
     * @param fence the fence there
     * @return a lease, not valid yet
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for what can be no token or fence
     */
    public Lease attach(String token, long fence) {
        try {
            return Lease.of(this, Native.attach(open(), Name.encode("the token", token), fence));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Looks who has the lock and who waits for it, without touching it.
     *
     * @return what was to be seen
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
     * Frees a lock that somebody else has and does not give: for people, not for programs. The first
     * waiter is handed it at once, under a larger fence. Nothing stops the holder before its next
     * renewal, when its lease is lost, and its event, exception and log say who broke it.
     *
     * @param by who does it, such as {@code root@web-3}
     * @return the fence of the lease that is over; empty when nobody has the lock
     * @throws LeaseholdException what kept the store from answering, by {@code io_timeout}
     */
    public OptionalLong breakHeld(String by) {
        return end(by, 0);
    }

    /**
     * The same for the lease with this fence alone.
     *
     * @param by who does it
     * @param ifFence as {@link LockState#fence()} tells it of a lock that is held with one
     * @return its fence; empty when nobody has the lock, or another lease
     * @throws LeaseholdException what kept the store from answering, by {@code io_timeout}; or that this
     *     is no fence, such as the 0 of a lock that was free
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
     * @return a lock that belongs to the thread that takes it
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
