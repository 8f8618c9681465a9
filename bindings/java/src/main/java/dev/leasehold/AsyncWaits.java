package dev.leasehold;

import java.util.Map;
import java.util.concurrent.CancellationException;
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

    /** With whom to tell of it, or null. */
    private record Wait(
            NamedLock lock, Executor executor, CompletableFuture<Lease> future, Telemetry.Wait telemetry) {
        void ended(Throwable failure) {
            if (telemetry != null) {
                // Completed by the program: then it wants no lease.
                telemetry.failed(failure == null ? new CancellationException() : failure);
            }
        }

        /** It is told first: whoever waits for the future may look at what was told. */
        void fail(Throwable failure) {
            try {
                ended(failure);
            } finally {
                future.completeExceptionally(failure);
            }
        }

        Lease granted(Lease lease) {
            return telemetry == null ? lease : telemetry.granted(lease);
        }
    }

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

    CompletableFuture<Lease> start(
            NamedLock lock, long nativeLock, long waitMs, Executor executor, Telemetry.Wait telemetry) {
        long number = last.incrementAndGet();
        var future = new CompletableFuture<Lease>();
        var wait = new Wait(lock, executor, future, telemetry);
        waits.put(number, wait);
        // Where the program has completed it, the wait is still there.
        future.whenComplete((lease, failure) -> {
            stop(number);
            wait.ended(failure);
        });
        try {
            Native.startWait(handle.get(), nativeLock, waitMs, number);
        } catch (LeaseholdException e) {
            wait.fail(e);
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
            waits.values().forEach(wait -> wait.fail(LeaseholdException.closed()));
        }
    }

    private void tell(long number, Wait wait) {
        try {
            wait.executor.execute(() -> complete(number, wait));
        } catch (RuntimeException e) { // of the executor
            wait.fail(e);
        }
    }

    private void complete(long number, Wait wait) {
        if (wait.future.isDone()) {
            return; // and stopped
        }
        try {
            Lease lease = wait.granted(Lease.of(wait.lock, Native.takeWait(handle.get(), number)));
            if (!wait.future.complete(lease)) {
                lease.close();
            }
        } catch (RuntimeException | Error e) {
            wait.fail(e);
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
