package dev.leasehold;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Who is told that a lease of one client was lost, on a thread that there is from the first listener
 * on. Like that thread, it refers to neither client nor leases: those that are forgotten go.
 */
final class Losses implements Consumer<LeaseEvent> {
    /** Kept by its lease alone: it may refer to the lease, and both can be forgotten together. */
    record Listener(long lease, Consumer<LeaseEvent> told) {}

    private static final class Entry extends WeakReference<Listener> {
        private final long lease;

        Entry(Listener listener, ReferenceQueue<Listener> forgotten) {
            super(listener, forgotten);
            this.lease = listener.lease();
        }
    }

    private final Map<Long, Entry> byLease = new HashMap<>();
    private final ReferenceQueue<Listener> forgotten = new ReferenceQueue<>();
    private EventListener thread;

    /** The lease of a handle tells {@code told} from now on, and nobody else. */
    synchronized Listener listen(LeaseholdClient client, long handle, Consumer<LeaseEvent> told) {
        for (Reference<?> gone = forgotten.poll(); gone != null; gone = forgotten.poll()) {
            byLease.remove(((Entry) gone).lease, gone);
        }
        if (thread == null) {
            thread = new EventListener(Native.subscribe(client.open()), this);
        }
        // The thread may read of a loss before its number is known here; then it waits.
        var listener = new Listener(thread.watch(handle), told);
        byLease.put(listener.lease(), new Entry(listener, forgotten));
        return listener;
    }

    /** That listener is not told any more. */
    synchronized void forget(Listener listener) {
        byLease.remove(listener.lease());
    }

    @Override
    public void accept(LeaseEvent event) {
        Listener listener = event.kind() == LeaseEvent.Kind.LOST ? take(event.lease()) : null;
        if (listener != null) {
            listener.told().accept(event);
        }
    }

    private synchronized Listener take(long lease) {
        Entry entry = byLease.remove(lease);
        return entry == null ? null : entry.get();
    }
}
