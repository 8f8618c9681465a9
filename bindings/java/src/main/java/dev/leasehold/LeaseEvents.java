package dev.leasehold;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.time.Duration;

/**
 * A subscription to the events of a client's leases, from {@link LeaseholdClient#events()}. It is
 * for programs that have a thread of their own for it; {@link LeaseholdClient#onEvent} starts one.
 *
 * <p>A slow reader may miss {@link LeaseEvent.Kind#AT_RISK}, which {@link #dropped()} counts, but
 * never {@link LeaseEvent.Kind#LOST}. If several threads read one subscription, each event goes to
 * one of them.
 */
public final class LeaseEvents implements AutoCloseable {
    /** How soon a thread that waits notices that it was interrupted. */
    private static final long SLICE_MS = 100;

    /** Keeps the client from being forgotten while somebody waits for its events. */
    private final LeaseholdClient client;

    private final EventsHandle handle;
    private final Cleaner.Cleanable watch;

    LeaseEvents(LeaseholdClient client, long handle) {
        this.client = client;
        this.handle = new EventsHandle(handle);
        this.watch = this.handle.follow(this);
    }

    /**
     * Returns an unread event, or {@code null} if there is none.
     *
     * @return an event, or {@code null}
     * @throws LeaseholdException {@link Status#CLOSED} when the client is closed and nothing is left
     *     to read, or this was closed
     */
    public LeaseEvent tryNext() {
        try {
            return handle.next(0);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Waits for the next event.
     *
     * @return an event
     * @throws InterruptedException the thread was interrupted before or while it waited
     * @throws LeaseholdException as for {@link #tryNext()}
     */
    public LeaseEvent next() throws InterruptedException {
        LeaseEvent event;
        do {
            event = next(Native.FOREVER);
        } while (event == null);
        return event;
    }

    /**
     * Waits for the next event for a limited time.
     *
     * @param wait for how long at most
     * @return an event, or {@code null} when there was none
     * @throws InterruptedException the thread was interrupted before or while it waited
     * @throws LeaseholdException as for {@link #tryNext()}
     */
    public LeaseEvent nextWithin(Duration wait) throws InterruptedException {
        return next(Times.toMillis("the wait", wait));
    }

    private LeaseEvent next(long leftMs) throws InterruptedException {
        long start = System.nanoTime();
        try {
            while (true) {
                if (Thread.interrupted()) {
                    throw new InterruptedException("interrupted while waiting for an event");
                }
                long slice = Math.min(leftMs - elapsedMs(start), SLICE_MS);
                LeaseEvent event = slice(Math.max(slice, 0));
                if (event != null || slice <= 0) {
                    return event;
                }
            }
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private LeaseEvent slice(long waitMs) throws InterruptedException {
        if (waitMs == 0 || !LentThread.isNeeded()) {
            return handle.next(waitMs);
        }
        return LentThread.lend(() -> handle.next(waitMs));
    }

    private static long elapsedMs(long start) {
        return (System.nanoTime() - start) / 1_000_000;
    }

    /**
     * How many {@link LeaseEvent.Kind#AT_RISK} events were dropped because they were not read in
     * time.
     *
     * @return 0 when this was closed
     */
    public long dropped() {
        try {
            long events = handle.get();
            return events == 0 ? 0 : Native.dropped(events);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends the subscription. Threads that wait for its events get a {@link LeaseholdException} with
     * {@link Status#CLOSED} within 200 ms.
     */
    @Override
    public void close() {
        watch.clean();
    }

    @Override
    public String toString() {
        return "LeaseEvents(" + client.store() + ")";
    }
}
