package dev.leasehold;

import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The waits of a client that no thread stands in, and the one thread that completes their futures. It
 * refers to the waits only, not to the client: a client that everybody else has forgotten is closed,
 * and that ends the thread.
 */
final class AsyncWaits implements Runnable {
    private final WaitsHandle handle = new WaitsHandle(Native.openWaits());
    private final AtomicLong last = new AtomicLong();
    private final Map<Long, Wait> waits = new ConcurrentHashMap<>();

    private record Wait(NamedLock lock, Executor executor, CompletableFuture<Lease> future) {}

    AsyncWaits(LeaseholdClient client) {
        client.handles().add(handle);
        handle.follow(client);
        if (client.isClosed()) {
            handle.run();
        }
        Thread thread = new Thread(null, this, "leasehold-async", 0, false);
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        thread.start();
    }

    CompletableFuture<Lease> start(NamedLock lock, long nativeLock, long waitMs, Executor executor) {
        long number = last.incrementAndGet();
        var future = new CompletableFuture<Lease>();
        waits.put(number, new Wait(lock, executor, future));
        // Where the program has completed it, the wait is still there.
        future.whenComplete((lease, failure) -> stop(number));
        try {
            Native.startWait(handle.get(), nativeLock, waitMs, number);
        } catch (LeaseholdException e) {
            future.completeExceptionally(e);
        }
        return future;
    }

    private void stop(long number) {
        waits.remove(number);
        Native.stopWait(handle.get(), number);
    }

    @Override
    public void run() {
        try {
            while (true) {
                long number = Native.nextWait(handle.get());
                Wait wait = waits.get(number);
                if (wait != null) {
                    tell(number, wait);
                }
            }
        } catch (LeaseholdException e) {
            // Closed: nothing more is told.
            waits.values().forEach(wait -> wait.future.completeExceptionally(LeaseholdException.closed()));
        }
    }

    private void tell(long number, Wait wait) {
        try {
            wait.executor.execute(() -> complete(number, wait));
        } catch (RuntimeException e) { // of the executor
            wait.future.completeExceptionally(e);
        }
    }

    private void complete(long number, Wait wait) {
        if (wait.future.isDone()) {
            return; // and stopped
        }
        try {
            Lease lease = Lease.of(wait.lock, Native.takeWait(handle.get(), number));
            if (!wait.future.complete(lease)) {
                lease.close();
            }
        } catch (RuntimeException | Error e) {
            wait.future.completeExceptionally(e);
        }
    }

    /** A native set of waits. Freeing it stops them all, and ends the thread. */
    private static final class WaitsHandle extends Handle {
        private static final long serialVersionUID = 1;

        WaitsHandle(long handle) {
            super(handle);
        }

        @Override
        void abandon(long handle) {
            Native.freeWaits(handle);
        }
    }
}
