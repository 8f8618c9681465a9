package dev.leasehold;

import java.util.function.Consumer;

/**
 * A thread that tells a listener of events. It refers to the subscription only, not to the client:
 * a client that everybody else has forgotten is closed, and that ends the thread.
 */
final class EventListener implements Subscription, Runnable {
    private final EventsHandle events;
    private final Consumer<LeaseEvent> listener;

    EventListener(long events, Consumer<LeaseEvent> listener) {
        this.events = new EventsHandle(events);
        this.listener = listener;
        Thread thread = new Thread(null, this, "leasehold-events", 0, false);
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void run() {
        try {
            while (true) {
                LeaseEvent event = events.next(Native.FOREVER);
                if (event != null) {
                    tell(listener, event);
                }
            }
        } catch (LeaseholdException e) {
            // Closed: the client, or this.
            close();
        }
    }

    /** What a listener throws is for the thread's handler, and ends nothing. */
    static void tell(Consumer<LeaseEvent> listener, LeaseEvent event) {
        try {
            listener.accept(event);
        } catch (Throwable e) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, e);
        }
    }

    /** The number by which its events name the lease of a handle; one that was lost is told of again. */
    long watch(long lease) {
        return Native.watch(lease, events.get());
    }

    @Override
    public void close() {
        events.run();
    }
}
