package dev.leasehold;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that excludes threads of all processes: from {@link NamedLock#asLock()}.
 *
 * <pre>{@code
 * LeaseholdLock stock = client.lock("stock:sku-17").asLock();
 * stock.lock();
 * try {
 *     charge(order, stock.fence());
 * } finally {
 *     stock.unlock();
 * }
 * }</pre>
 *
 * <p>It is reentrant: the thread that holds it may lock it again, and it is free after as many
 * unlocks. Two objects of one client and one name are one lock.
 *
 * <p>Unlike a lock inside one process, it can be lost: the store loses its data, or renewals fail.
 * Then {@link #unlock()} throws {@link LeaseLostException}, and so does locking it again.
 * {@link LeaseholdClient#onEvent} tells you sooner. If a thread ends while it holds the lock, the
 * lock stays held until the garbage collector finds the thread or {@code maxHold} has passed, and
 * then until its ttl has passed.
 *
 * <p>All methods that acquire it also throw {@link LeaseholdException} if they cannot reach the
 * store.
 */
public final class LeaseholdLock implements Lock {
    private final NamedLock lock;
    private final Holds holds;
    /** The lock with the last ttl that {@link #tryLock(long, long, TimeUnit)} was called with. */
    private volatile Ending ending;

    private record Ending(long ttlMs, NamedLock lock) {}

    LeaseholdLock(NamedLock lock) {
        this.lock = lock;
        this.holds = lock.client().holds();
    }

    /**
     * Acquires the lock, and waits for it without limit. Interrupting the thread does not end the
     * wait; its flag stays set.
     *
     * @throws LeaseLostException this thread locked it before, and has lost it
     * @throws LeaseholdException {@link Status#WOULD_DEADLOCK} when this thread holds the lock by a
     *     {@link Lease}
     * @throws LeaseTimeoutException {@link NamedLock#attempts(int)} ran out
     */
    @Override
    public void lock() {
        if (!enterAgain()) {
            enter(lock.takeUninterruptibly());
        }
    }

    /**
     * As {@link #lock()}, but interrupting the thread ends the wait.
     *
     * @throws InterruptedException the thread was interrupted before or while it waited; nothing
     *     was taken
     */
    @Override
    public void lockInterruptibly() throws InterruptedException {
        checkInterrupt();
        if (enterAgain()) {
            return;
        }
        enter(lock.take(Native.FOREVER));
    }

    /**
     * Acquires the lock if it is free or held by this thread. It does not wait for another holder.
     *
     * @return whether this thread holds it now
     */
    @Override
    public boolean tryLock() {
        return enterAgain() || enter(lock.tryAcquire());
    }

    /**
     * Acquires the lock, and waits for it for a limited time.
     *
     * @param wait how long to wait; zero and less try once
     * @return whether this thread holds it now
     * @throws InterruptedException the thread was interrupted before or while it waited; nothing
     *     was taken
     */
    @Override
    public boolean tryLock(long wait, TimeUnit unit) throws InterruptedException {
        return tryLock(lock, wait, unit);
    }

    /**
     * Acquires the lock for a limited time. The lock is free {@code ttl} after that, unlocked or
     * not, since it is not renewed. If this thread holds the lock already, the new {@code ttl} has
     * no effect.
     *
     * @param wait how long to wait; zero and less try once
     * @param ttl how long to hold it at most; -1: renewed until it is unlocked, as by
     *     {@link #tryLock(long, TimeUnit)}
     * @param unit of both
     * @return whether this thread holds it now
     * @throws InterruptedException the thread was interrupted before or while it waited; nothing
     *     was taken
     */
    public boolean tryLock(long wait, long ttl, TimeUnit unit) throws InterruptedException {
        return tryLock(ttl == -1 ? lock : endingAfter(toMillis(ttl, unit)), wait, unit);
    }

    private boolean tryLock(NamedLock with, long wait, TimeUnit unit) throws InterruptedException {
        Objects.requireNonNull(unit, "unit");
        checkInterrupt();
        if (enterAgain()) {
            return true;
        }
        if (wait <= 0) {
            return enter(with.tryAcquire());
        }
        try {
            return enter(with.take(toMillis(wait, unit)));
        } catch (LeaseTimeoutException e) {
            return false;
        }
    }

    /**
     * Releases the lock when it was called as often as the lock was acquired. What it throws in a
     * {@code finally} replaces what the body threw; {@code try (Lease lease = ...)} keeps both.
     *
     * @throws LeaseLostException the lock was lost, and another client may have worked on the
     *     resource at the same time
     * @throws IllegalMonitorStateException this thread does not hold the lock
     */
    @Override
    public void unlock() {
        Holds.Hold hold = held();
        hold.count--;
        if (hold.count == 0) {
            holds.remove(hold);
            hold.lease.close();
        } else {
            checkNotLost(hold);
        }
    }

    /**
     * Is not supported: no process can signal a condition to another one.
     *
     * @throws UnsupportedOperationException always
     */
    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock across processes has no conditions");
    }

    /**
     * The fencing token of this thread's lease, for the resource: see {@link Lease#fence()}.
     *
     * @return a larger number than the fence of every earlier lease on this name
     * @throws IllegalMonitorStateException this thread does not hold the lock
     */
    public long fence() {
        return held().lease.fence();
    }

    /**
     * Makes this thread hold the lock for another ttl from now on: the lock's, or the one that
     * {@link #tryLock(long, long, TimeUnit)} was called with. See {@link Lease#extend()}.
     *
     * @throws LeaseLostException the lock was lost before
     * @throws IllegalMonitorStateException this thread does not hold the lock
     */
    public void extend() {
        held().lease.extend();
    }

    /**
     * The same for another ttl. It never makes a hold shorter.
     *
     * @param ttl from now on
     * @throws LeaseLostException the lock was lost before
     * @throws IllegalMonitorStateException this thread does not hold the lock
     */
    public void extend(Duration ttl) {
        held().lease.extend(ttl);
    }

    /**
     * Whether this thread holds the lock and may rely on that at this moment. It does not contact
     * the store.
     *
     * @return false also when the lock was lost
     */
    public boolean isHeldByCurrentThread() {
        Holds.Hold hold = holds.find(lock.key());
        return hold != null && hold.lease.isValid();
    }

    /**
     * How often this thread has acquired the lock and not unlocked it, lost or not.
     *
     * @return 0 if it has not acquired it
     */
    public int getHoldCount() {
        Holds.Hold hold = holds.find(lock.key());
        return hold == null ? 0 : hold.count;
    }

    private boolean enterAgain() {
        Holds.Hold hold = holds.find(lock.key());
        if (hold == null) {
            return false;
        }
        checkNotLost(hold);
        if (hold.count == Integer.MAX_VALUE) {
            throw new Error("Maximum lock count exceeded");
        }
        hold.count++;
        return true;
    }

    private boolean enter(Lease lease) {
        if (lease == null) {
            return false;
        }
        holds.add(lock.key(), lease);
        return true;
    }

    private Holds.Hold held() {
        Holds.Hold hold = holds.find(lock.key());
        if (hold == null) {
            throw new IllegalMonitorStateException("this thread does not hold " + lock.key().quoted());
        }
        return hold;
    }

    private void checkNotLost(Holds.Hold hold) {
        if (!hold.lease.isValid()) {
            throw new LeaseLostException(
                    "this thread has lost " + lock.key().quoted() + "; unlock it as often as it was locked");
        }
    }

    private static void checkInterrupt() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    private NamedLock endingAfter(long ttlMs) {
        Ending last = ending;
        if (last == null || last.ttlMs != ttlMs) {
            last = new Ending(ttlMs, lock.endingAfter(ttlMs));
            ending = last;
        }
        return last.lock;
    }

    /** Rounded up, as elsewhere: a wait is never shorter than was asked for. */
    private static long toMillis(long time, TimeUnit unit) {
        if (time < 0) {
            throw LeaseholdException.badArgument("the ttl is negative: " + time);
        }
        long millis = unit.toMillis(time);
        return unit.convert(millis, TimeUnit.MILLISECONDS) < time ? millis + 1 : millis;
    }

    @Override
    public String toString() {
        return "LeaseholdLock(" + lock.name() + ")";
    }
}
