package dev.leasehold;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;
import java.util.function.Consumer;

/**
 * One holder's turn: the proof that a lock is yours, for as long as it says so. It is renewed in
 * the background unless that was switched off.
 *
 * <p>Any thread may use it, and release it. The end of a lease is its {@link #release()}, its
 * {@link #close()}, or one of {@link #letExpire()}, {@link #letExpireIn(Duration)} and
 * {@link #detach()}. One that is forgotten is not renewed any more, once the garbage collector has
 * noticed, and not released either: its ttl frees the lock.
 */
public final class Lease implements AutoCloseable {
    /**
     * Keeps the client, which renews the lease, from being forgotten. So that this lasts until a
     * native call has returned, each one is followed by a fence.
     */
    private final NamedLock lock;

    private final long fence;
    private final Handle handle;
    private final Cleaner.Cleanable watch;
    /** Who is told that it is lost, if anybody. */
    private volatile Losses.Listener listener;

    private Lease(NamedLock lock, long handle) {
        this.lock = lock;
        this.fence = Native.fence(handle);
        this.handle = new LeaseHandle(handle);
        this.watch = this.handle.follow(this);
    }

    static Lease of(NamedLock lock, long handle) {
        try {
            return new Lease(lock, handle);
        } catch (OutOfMemoryError | StackOverflowError e) {
            Native.release(handle);
            throw e;
        }
    }

    /**
     * The fence: larger than that of every turn on the name before it, from 1 to 2^53 - 1, which is 16
     * digits: a {@code BIGINT} holds it. Give it to the resource with each write, and let the resource
     * refuse a smaller one.
     *
     * @return the same number also when the lease is over
     */
    public long fence() {
        return fence;
    }

    /**
     * The token that marks the grant in the store. A program that has it can release the lock.
     *
     * @return 32 hexadecimal digits
     * @throws IllegalStateException the lease was ended, and its token is of no use any more
     */
    public String token() {
        try {
            long lease = handle.get();
            String token = lease == 0 ? "" : Name.decode(Native.token(lease));
            if (token.isEmpty()) {
                throw new IllegalStateException("the lease was ended, and its token with it");
            }
            return token;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The lock that this is a lease on.
     *
     * @return with the options that it was taken with
     */
    public NamedLock lock() {
        return lock;
    }

    /**
     * For how long the lease may still be relied on, without asking anybody.
     *
     * @return zero when it is over or lost
     */
    public Duration remaining() {
        try {
            long lease = handle.get();
            return lease == 0 ? Duration.ZERO : Duration.ofMillis(Native.remaining(lease));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Whether the lease may be relied on at this moment, without asking anybody.
     *
     * @return false when it is over or lost
     */
    public boolean isValid() {
        try {
            long lease = handle.get();
            return lease != 0 && Native.isValid(lease);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Makes the lease valid for its ttl from now on. Renewed leases do not need it. It never goes
     * beyond {@code maxHold}, and never makes a lease shorter.
     *
     * @throws LeaseLostException it was not ours any more
     * @throws LeaseholdException the store did not confirm it; the lease stays valid for as long
     *     as it was
     */
    public void extend() {
        extend(Native.NOT_SET);
    }

    /**
     * The same for another ttl than the lock's.
     *
     * @param ttl from now on
     * @throws LeaseLostException it was not ours any more
     * @throws LeaseholdException as for {@link #extend()}, and {@link Status#BAD_ARGUMENT} for a ttl
     *     that no lock could have
     */
    public void extend(Duration ttl) {
        extend(Times.toMillis("ttl", ttl));
    }

    private void extend(long ttlMs) {
        long lease = handle.get();
        try {
            if (lease == 0) {
                throw over();
            }
            Native.extend(lease, ttlMs);
        } catch (LeaseholdException e) {
            if (handle.get() == 0) {
                throw over(); // ended by another thread meanwhile
            }
            throw e;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Has {@code told} called if this lease is lost; at once if it was lost before. Another one
     * takes its place, and {@code null} takes it back.
     *
     * <p>It is called once at most, and not when the lease was ended, by {@link #close()} for
     * example, was forgotten, or its client was closed. (A call that is under way goes on.) All of a
     * client's are called on one thread that does nothing else, a daemon, one after the other: a slow one
     * holds up the others, and no renewal. What it throws goes to the thread's
     * {@linkplain Thread#setDefaultUncaughtExceptionHandler handler}, and ends nothing else.
     *
     * @param told is called with the {@link LeaseEvent.Kind#LOST} event, or {@code null}
     * @throws LeaseLostException the lease was ended before
     * @throws LeaseholdException {@link Status#CLOSED} when its client was closed;
     *     {@link Status#EXHAUSTED} when there is no descriptor for it
     */
    public void onLost(Consumer<LeaseEvent> told) {
        LeaseholdClient client = lock.client();
        forgetListener();
        if (told == null) {
            return;
        }
        long lease = handle.get();
        try {
            if (lease == 0) {
                throw over();
            }
            listener = client.losses().listen(client, lease, told);
        } catch (LeaseholdException e) {
            if (handle.get() == 0) {
                throw over(); // ended by another thread meanwhile
            }
            throw e;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private void forgetListener() {
        Losses.Listener former = listener;
        if (former != null) {
            lock.client().losses().forget(former);
        }
    }

    /**
     * Gives the lock back and waits for the store to say so. The lease is over at once and
     * whatever comes of it.
     *
     * @throws LeaseLostException it was lost before, or ended before by this or another call
     * @throws LeaseholdException {@link Status#UNKNOWN} when the store did not confirm it: then it
     *     is given back in the background, or by its ttl; others when the store refused
     */
    public void release() {
        try {
            Native.release(end());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Gives the lock back, unless the lease was ended before.
     *
     * <p>If it could be relied on up to this call, but the store does not confirm the release,
     * this returns all the same: what was done is safe, and the lock is given back in the
     * background, or by its ttl. {@link #release()} tells.
     *
     * @throws LeaseLostException it was lost: what was done under it may have met somebody else's
     *     work. Thrown at the end of a {@code try} whose body throws, it is suppressed in favour
     *     of that.
     */
    @Override
    public void close() {
        long lease = handle.take();
        if (lease == 0) {
            return;
        }
        ended();
        try {
            Native.closeLease(lease);
        } catch (LeaseLostException e) {
            throw e;
        } catch (LeaseholdException e) {
            throw new LeaseLostException("the lease was over before it was released: " + e.getMessage(), e);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the lease without giving the lock back: it stays taken until its ttl runs out. Useful
     * for "once per interval". Asks the store only where the lease was handed over a moment ago and
     * is not yet claimed for its whole ttl, or was attached and never extended.
     *
     * @throws LeaseLostException it had ended before
     * @throws LeaseholdException the store did not confirm that claim: then the lease is over, and
     *     the lock may be free when the claim window is
     */
    public void letExpire() {
        try {
            Native.letExpire(end());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The same, with the lock free {@code after} from now, whatever its ttl was.
     *
     * @param after from now on
     * @throws LeaseLostException it was not ours any more
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} for what no ttl can be: then the lease
     *     goes on; others when the store did not confirm it: then the lease is over, and the lock
     *     runs out by the ttl that it had (the claim window, where it was handed over a moment ago)
     */
    public void letExpireIn(Duration after) {
        long afterMs = Times.toMillis("the time to expire in", after);
        long lease = take();
        try {
            Native.letExpireIn(lease, afterMs);
        } catch (LeaseholdException e) {
            if (e.status() == Status.BAD_ARGUMENT) {
                handle.set(lease);
            }
            throw e;
        } finally {
            if (handle.get() == 0) {
                ended();
            }
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the lease here for another process to go on with it. The lock stays taken for a
     * ttl from now, and nobody holds it until then.
     *
     * @return what that process needs for {@link NamedLock#attach(String, long)}
     * @throws LeaseLostException it had ended before
     * @throws LeaseholdException the store did not confirm it: perhaps nobody can attach it, and
     *     the lock runs out by the ttl that it had
     */
    public Handover detach() {
        long lease = end();
        try {
            var handover = new Handover(Name.decode(Native.token(lease)), fence);
            Native.detach(lease);
            return handover;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Takes the handle for a call that ends the lease and frees it. */
    private long end() {
        long lease = take();
        ended();
        return lease;
    }

    private void ended() {
        watch.clean();
        forgetListener();
    }

    private long take() {
        long lease = handle.take();
        if (lease == 0) {
            throw over();
        }
        return lease;
    }

    private LeaseLostException over() {
        return new LeaseLostException(
                "the lease on " + lock.key().quoted() + " was ended before: released, left to expire, or detached");
    }

    @Override
    public String toString() {
        return "Lease(" + lock.name() + ", fence " + fence + ")";
    }

    private static final class LeaseHandle extends Handle {
        private static final long serialVersionUID = 1;

        LeaseHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.abandonLease(handle);
        }
    }
}
