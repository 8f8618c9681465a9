package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import org.junit.jupiter.api.Test;

/** What a cycle of taking and releasing leaves to the garbage collector. */
class GarbageTest {
    private static final int CYCLES = 5_000;
    /** The lease, its handle, and what the {@link java.lang.ref.Cleaner} watches it with. */
    private static final long LEASE = 128;

    private final com.sun.management.ThreadMXBean threads =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();

    private interface Cycle {
        void run() throws Exception;
    }

    private long bytesOf(Cycle cycle) throws Exception {
        for (int i = 0; i < CYCLES; i++) {
            cycle.run(); // classes are loaded, and code compiled
        }
        long thread = Thread.currentThread().getId();
        long before = threads.getThreadAllocatedBytes(thread);
        for (int i = 0; i < CYCLES; i++) {
            cycle.run();
        }
        return (threads.getThreadAllocatedBytes(thread) - before) / CYCLES;
    }

    @Test
    void thereIsNothingBesideTheLease() throws Exception {
        try (var client = LeaseholdClient.connect(RedisServer.shared().url())) {
            NamedLock lock = client.lock(Names.fresh());
            long tried = bytesOf(() -> lock.tryAcquire().close());
            long acquired = bytesOf(() -> lock.acquire().release());
            System.out.println("a cycle allocates " + tried + " bytes");
            assertTrue(tried <= LEASE, tried + " bytes by tryAcquire");
            assertEquals(tried, acquired, "bytes by acquire");

            try (Lease lease = lock.acquire()) {
                long looks = bytesOf(() -> {
                    assertTrue(lease.isValid());
                    assertTrue(lease.fence() > 0);
                });
                assertEquals(0, looks);
                assertEquals(0, bytesOf(() -> assertEquals(null, lock.tryAcquire())));
            }
        }
    }
}
