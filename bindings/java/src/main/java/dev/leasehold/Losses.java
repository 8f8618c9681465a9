package dev.leasehold;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Predicate;

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

    private final Map<Long, List<Entry>> byLease = new HashMap<>();
    private final ReferenceQueue<Listener> forgotten = new ReferenceQueue<>();
    private EventListener thread;

    /** The lease of a handle tells {@code told} too from now on. */
    synchronized Listener listen(LeaseholdClient client, long handle, Consumer<LeaseEvent> told) {
        for (Reference<?> gone = forgotten.poll(); gone != null; gone = forgotten.poll()) {
            var entry = (Entry) gone;
            removeIf(entry.lease, each -> each == entry);
        }
        if (thread == null) {
            thread = new EventListener(Native.subscribe(client.open()), this);
        }
        // The thread may read of a loss before its number is known here; then it waits.
        var listener = new Listener(thread.watch(handle), told);
        byLease.computeIfAbsent(listener.lease(), lease -> new ArrayList<>(1)).add(new Entry(listener, forgotten));
        return listener;
    }

    /** That listener is not told any more. */
    synchronized void forget(Listener listener) {
        removeIf(listener.lease(), entry -> entry.refersTo(listener));
    }

    private void removeIf(long lease, Predicate<Entry> isGone) {
        List<Entry> entries = byLease.get(lease);
        if (entries != null && entries.removeIf(isGone) && entries.isEmpty()) {
            byLease.remove(lease);
        }
    }

    @Override
    public void accept(LeaseEvent event) {
        if (event.kind() != LeaseEvent.Kind.LOST) {
            return;
        }
        for (Entry entry : take(event.lease())) {
            Listener listener = entry.get();
            if (listener != null) {
                EventListener.tell(listener.told(), event);
            }
        }
    }

    private synchronized List<Entry> take(long lease) {
        List<Entry> entries = byLease.remove(lease);
        return entries == null ? List.of() : entries;
    }
}
