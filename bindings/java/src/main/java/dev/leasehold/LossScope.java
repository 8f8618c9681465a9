package dev.leasehold;

/**
 * The part of a program that a loss interrupts: from {@link Lease#interruptOnLoss()} until it is
 * closed. Close it on the thread that opened it, as {@code try} does.
 */
public final class LossScope implements AutoCloseable {
    private final Lease lease;
    private final Thread thread = Thread.currentThread();
    private Losses.Listener listener;
    private boolean isOpen = true;
    /** This scope has set the flag of the thread, which had not been set. */
    private boolean hasInterrupted;
    private LeaseEvent loss;

    LossScope(Lease lease) {
        this.lease = lease;
    }

    synchronized void listener(Losses.Listener told) {
        listener = told;
    }

    synchronized void interrupt(LeaseEvent event) {
        if (isOpen) {
            loss = event;
            hasInterrupted = !thread.isInterrupted();
            thread.interrupt();
        }
    }

    /**
     * Whether the lease was lost while the scope was open.
     *
     * @return the {@link LeaseEvent.Kind#LOST} event, or {@code null}
     */
    public synchronized LeaseEvent loss() {
        return loss;
    }

    /**
     * Ends the scope: it interrupts nothing from now on. If it has set the interrupt flag of the thread,
     * and nothing has noticed that, it clears the flag. Closing twice does no harm.
     *
     * @throws IllegalStateException another thread has opened it, whose flag cannot be cleared from
     *     here; the scope has ended
     */
    @Override
    public void close() {
        synchronized (this) {
            if (!isOpen) {
                return;
            }
            isOpen = false;
        }
        lease.forget(listener);
        if (Thread.currentThread() != thread) {
            throw new IllegalStateException("a LossScope was closed by another thread than the one that opened it");
        }
        if (hasInterrupted) {
            Thread.interrupted();
        }
    }
}
