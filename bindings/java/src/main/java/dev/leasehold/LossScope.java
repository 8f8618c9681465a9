package dev.leasehold;

import java.util.Map;
import java.util.WeakHashMap;

/**
 * The part of a program that a loss interrupts: from {@link Lease#interruptOnLoss()} until it is
 * closed. Close it on the thread that opened it, as {@code try} does.
 */
public final class LossScope implements AutoCloseable {
    /**
     * The interrupt flag of one thread, which all of its scopes share. It refers to no scope: one that
     * is never closed must not keep its lease.
     */
    private static final class Flag {
        /** Counts how often a scope has found the flag clear: what was set before that was noticed. */
        private long round;
        /** How many open scopes were lost in this round. */
        private int lost;
        /** A scope has set the flag in this round, and nobody else. */
        private boolean isOurs;
    }

    /** No {@link ThreadLocal}, by which a thread of a pool would keep these classes loaded. */
    private static final Map<Thread, Flag> FLAGS = new WeakHashMap<>();

    private final Lease lease;
    private final Thread thread = Thread.currentThread();
    private final Flag flag;
    private Losses.Listener listener;
    private boolean isOpen = true;
    private LeaseEvent loss;
    /** The round of the loss. */
    private long lostIn;

    LossScope(Lease lease) {
        this.lease = lease;
        synchronized (FLAGS) {
            flag = FLAGS.computeIfAbsent(thread, key -> new Flag());
        }
    }

    void listener(Losses.Listener told) {
        listener = told;
    }

    void interrupt(LeaseEvent event) {
        synchronized (flag) {
            if (!isOpen) {
                return;
            }
            loss = event;
            if (!thread.isInterrupted()) {
                flag.round++;
                flag.lost = 0;
                flag.isOurs = true;
                thread.interrupt();
            } else if (flag.lost == 0) {
                flag.isOurs = false;
            }
            lostIn = flag.round;
            flag.lost++;
        }
    }

    /**
     * Whether the lease was lost while the scope was open.
     *
     * @return the {@link LeaseEvent.Kind#LOST} event, or {@code null}
     */
    public LeaseEvent loss() {
        synchronized (flag) {
            return loss;
        }
    }

    /**
     * Ends the scope: it interrupts nothing from now on. If it has set the interrupt flag of the thread,
     * and nothing has noticed that, it clears the flag. The flag stays set for another open scope of
     * the thread whose loss was not noticed either. If other code interrupts the thread after it has
     * noticed the loss and before the scope is closed, that interrupt is cleared, too: the flag does not
     * tell who has set it. Closing twice does no harm.
     *
     * @throws IllegalStateException another thread has opened it, whose flag cannot be cleared from
     *     here; the scope has ended
     */
    @Override
    public void close() {
        synchronized (flag) {
            if (!isOpen) {
                return;
            }
            isOpen = false;
            if (loss != null && lostIn == flag.round) {
                flag.lost--;
                if (flag.lost == 0 && flag.isOurs && Thread.currentThread() == thread) {
                    Thread.interrupted();
                }
            }
        }
        lease.forget(listener);
        if (Thread.currentThread() != thread) {
            throw new IllegalStateException("a LossScope was closed by another thread than the one that opened it");
        }
    }
}
