package dev.leasehold;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/**
 * The proof that you hold a lock, for as long as {@link #isValid()} says so. It is renewed in the
 * background unless you switched that off.
 *
 * <p>Any thread may use it and release it. A lease ends with {@link #release()}, {@link #close()},
 * {@link #letExpire()}, {@link #letExpireIn(Duration)} or {@link #detach()}. A lease that is
 * garbage-collected is no longer renewed and <em>not</em> released: the lock is free when the ttl
 * has passed.
 */
public final class Lease implements AutoCloseable {
    /**
     * Keeps the client, which renews the lease, from being forgotten. So that this lasts until a
     * native call has returned, each one is followed by a fence.
     */
    private final NamedLock lock;

    private final long fence;
    private final LeaseHandle handle;
    private final Cleaner.Cleanable watch;
    /** Who is told that it is lost, if anybody. */
    private volatile Losses.Listener listener;
    /** Who else is told, while this lease goes on; made when it is first needed. */
    private volatile Set<Losses.Listener> others;

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
     * The fencing token: larger than the fence of every earlier lease on this name. Send it to the
     * resource with each write, and let the resource reject a smaller one. It is from 1 to 2^53 - 1
     * (16 digits), so a {@code BIGINT} holds it.
     *
     * @return the fence, also after the lease has ended
     */
    public long fence() {
        return fence;
    }

    /**
     * The token that identifies this lease in the store. A program that knows it can release the
     * lock.
     *
     * @return 32 hexadecimal digits
     * @throws IllegalStateException the lease has ended, and its token is of no more use
     */
    public String token() {
        try {
            long lease = handle.get();
            String token = lease == 0 ? "" : Name.decode(Native.token(lease));
            if (token.isEmpty()) {
                throw new IllegalStateException("the lease has ended, and its token with it");
            }
            return token;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The lock that this is a lease on.
     *
     * @return the lock, with the options that it was acquired with
     */
    public NamedLock lock() {
        return lock;
    }

    /**
     * For how much longer you may rely on the lease. It does not contact the store.
     *
     * @return zero if it has ended or was lost
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
     * Whether you may rely on the lease at this moment. It does not contact the store.
     *
     * @return false if it has ended or was lost
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
     * Makes the lease valid for its ttl from now on. A renewed lease does not need it. It never
     * goes beyond {@code maxHold}, and never makes a lease shorter.
     *
     * @throws LeaseLostException it was not ours any more
     * @throws LeaseholdException the store did not confirm it; the lease is valid until the time
     *     that it had before
     */
    public void extend() {
        extend(Native.NOT_SET);
    }

    /**
     * Makes the lease valid for another ttl than the lock's: see {@link #extend()}.
     *
     * @param ttl from now on
     * @throws LeaseLostException it was not ours any more
     * @throws LeaseholdException as for {@link #extend()}, and {@link Status#BAD_ARGUMENT} for a
     *     ttl out of range
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
     * Calls {@code told} if this lease is lost, or at once if it was lost already. Another listener
     * replaces it; {@code null} removes it.
     *
     * <p>The client calls it at most once. It does not call it after the lease has ended, for
     * example by {@link #close()}, after the lease was garbage-collected, or after the client was
     * closed. A call that has begun goes on.
     *
     * <p>One daemon thread calls all listeners of a client's leases, one after the other, and does
     * nothing else. A slow listener delays the others, but no renewal. What a listener throws goes
     * to the thread's {@linkplain Thread#setDefaultUncaughtExceptionHandler handler}, and ends
     * nothing else.
     *
     * @param told is called with the {@link LeaseEvent.Kind#LOST} event, or {@code null}
     * @throws LeaseLostException the lease was ended before
     * @throws LeaseholdException {@link Status#CLOSED} when its client was closed;
     *     {@link Status#EXHAUSTED} when there is no descriptor for it
     */
    public void onLost(Consumer<LeaseEvent> told) {
        forgetListener();
        if (told != null) {
            listener = listen(told);
        }
    }

    /**
     * Interrupts the calling thread if this lease is lost, or at once if it was lost already, until
     * you close the scope.
     *
     * <pre>{@code
     * try (Lease lease = client.lock("reindex").acquire();
     *         LossScope scope = lease.interruptOnLoss()) {
     *     reindex(lease.fence()); // InterruptedException when the lease is lost
     * }
     * }</pre>
     *
     * <p>The lease is not valid any more when the interrupt comes, so {@link #isValid()} tells it
     * from an interrupt of another origin. Close the scope on the thread that opened it. It never
     * interrupts after that, and clears the flag if nothing has noticed its interrupt by then:
     * {@link LossScope#close()} says what that means for other scopes and other interrupts.
     *
     * @return the scope, to be closed by this thread
     * @throws LeaseLostException the lease was ended before
     * @throws LeaseholdException as for {@link #onLost(Consumer)}
     */
    public LossScope interruptOnLoss() {
        var scope = new LossScope(this);
        scope.listener(keep(scope::interrupt));
        return scope;
    }

    /**
     * The loss of this lease as a future, which completes if the lease is lost, or at once if it was
     * lost already. It never completes for a lease that ends in another way, such as by
     * {@link #close()}.
     *
     * <p>It completes on the thread of {@link #onLost(Consumer)}. Dependent stages must not block
     * it: use {@code thenAcceptAsync} and similar methods. Completing or cancelling the future
     * yourself changes nothing of the lease.
     *
     * @return another future at each call, of the {@link LeaseEvent.Kind#LOST} event
     * @throws LeaseLostException the lease was ended before
     * @throws LeaseholdException as for {@link #onLost(Consumer)}
     */
    public CompletableFuture<LeaseEvent> whenLost() {
        var lost = new CompletableFuture<LeaseEvent>();
        forgetWhenDone(lost, keep(lost::complete));
        return lost;
    }

    private void forgetWhenDone(CompletableFuture<LeaseEvent> lost, Losses.Listener kept) {
        // Weakly: who keeps the future does not keep the lease by that.
        var lease = new WeakReference<>(this);
        var listening = new WeakReference<>(kept);
        lost.whenComplete((event, failure) -> {
            Lease owner = lease.get();
            Losses.Listener done = listening.get();
            if (owner != null && done != null) {
                owner.forget(done);
            }
        });
    }

    /** Tells {@code told} as well, for as long as the lease goes on. */
    private Losses.Listener keep(Consumer<LeaseEvent> told) {
        synchronized (handle) {
            if (others == null) {
                others = ConcurrentHashMap.newKeySet();
            }
        }
        Losses.Listener kept = listen(told);
        others.add(kept);
        if (handle.get() == 0) {
            forget(kept); // ended by another thread meanwhile
        }
        return kept;
    }

    void forget(Losses.Listener kept) {
        others.remove(kept);
        lock.client().losses().forget(kept);
    }

    private Losses.Listener listen(Consumer<LeaseEvent> told) {
        LeaseholdClient client = lock.client();
        long lease = handle.get();
        try {
            if (lease == 0) {
                throw over();
            }
            return client.losses().listen(client, lease, told);
        } catch (LeaseholdException e) {
            if (handle.get() == 0) {
                throw over(); // ended by another thread meanwhile
            }
            throw e;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Has it told how this lease ends: there, without a reference to the lease. */
    void tell(Telemetry.Hold hold) {
        handle.telemetry = hold;
        try {
            keep(hold::lost);
        } catch (LeaseholdException e) {
            return; // closed already, or no descriptor is left: then the end of the lease tells
        }
    }

    private void told(String how) {
        Telemetry.Hold hold = handle.telemetry;
        if (hold != null) {
            hold.ended(how);
        }
    }

    private <E extends LeaseholdException> E told(E failure) {
        Telemetry.Hold hold = handle.telemetry;
        if (hold != null) {
            hold.failed(failure);
        }
        return failure;
    }

    private void forgetListener() {
        Losses.Listener former = listener;
        if (former != null) {
            lock.client().losses().forget(former);
        }
    }

    /**
     * Releases the lock and waits for the store to confirm it. The lease has ended at once, even if
     * this throws.
     *
     * @throws LeaseLostException it was lost, or had ended before by this or another call
     * @throws LeaseholdException {@link Status#UNKNOWN} if the store did not confirm it: then the
     *     client releases it in the background, or it is free when its ttl has passed; others if
     *     the store rejected it
     */
    public void release() {
        try {
            Native.release(end());
            told("released");
        } catch (LeaseholdException e) {
            throw told(e);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Releases the lock, unless the lease has ended before.
     *
     * <p>If the lease was valid up to this call but the store does not confirm the release, this
     * returns without an exception. Your work was protected. The client releases the lock in the
     * background, or it is free when its ttl has passed. {@link #release()} throws in this case.
     *
     * @throws LeaseLostException it was lost, and another client may have worked on the resource at
     *     the same time. At the end of a {@code try} whose body throws, it is a suppressed
     *     exception of what the body throws.
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
            told("released");
        } catch (LeaseLostException e) {
            throw told(e);
        } catch (LeaseholdException e) {
            throw told(new LeaseLostException("the lease was lost before it was released: " + e.getMessage(), e));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the lease without releasing the lock. The lock stays held until its ttl has passed. Use
     * it for "once per interval". It contacts the store in two cases only: the lock was handed over
     * to this lease a moment ago and is not yet confirmed for its whole ttl, or the lease was
     * attached and never extended.
     *
     * @throws LeaseLostException it had ended before
     * @throws LeaseholdException the store did not confirm it: then the lease has ended, and the
     *     lock may be free as soon as {@code claimWindow} has passed
     */
    public void letExpire() {
        try {
            Native.letExpire(end());
            told("left_to_expire");
        } catch (LeaseholdException e) {
            throw told(e);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the lease without releasing the lock, which is free {@code after} from now, whatever its
     * ttl was.
     *
     * @param after from now on
     * @throws LeaseLostException it was not ours any more
     * @throws LeaseholdException {@link Status#BAD_ARGUMENT} if {@code after} is no valid ttl: then
     *     the lease goes on. Others if the store did not confirm it: then the lease has ended, and
     *     the lock is free when the ttl that it had has passed, or {@code claimWindow} if it was
     *     handed over a moment ago
     */
    public void letExpireIn(Duration after) {
        long afterMs = Times.toMillis("the time to expire in", after);
        long lease = take();
        try {
            Native.letExpireIn(lease, afterMs);
            told("left_to_expire");
        } catch (LeaseholdException e) {
            if (e.status() == Status.BAD_ARGUMENT) {
                handle.set(lease);
                throw e;
            }
            throw told(e);
        } finally {
            if (handle.get() == 0) {
                ended();
            }
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the lease in this process, so that another process can continue it. The lock stays held
     * for one ttl from now, and belongs to no process until one attaches it.
     *
     * @return what that process needs for {@link NamedLock#attach(String, long)}
     * @throws LeaseLostException it had ended before
     * @throws LeaseholdException the store did not confirm it: perhaps no process can attach it,
     *     and the lock is free when the ttl that it had has passed
     */
    public Handover detach() {
        long lease = end();
        try {
            var handover = new Handover(Name.decode(Native.token(lease)), fence);
            Native.detach(lease);
            told("detached");
            return handover;
        } catch (LeaseholdException e) {
            throw told(e);
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
        Set<Losses.Listener> kept = others;
        if (kept != null) {
            kept.forEach(this::forget);
        }
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

        /** Who is told how the lease ends; null without telemetry. */
        private transient volatile Telemetry.Hold telemetry;

        LeaseHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.abandonLease(handle);
            Telemetry.Hold hold = telemetry;
            if (hold != null) {
                hold.ended("forgotten");
            }
        }
    }
}
