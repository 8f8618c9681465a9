package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static java.util.concurrent.TimeUnit.HOURS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class InterruptTest {
    private static final Duration WITHIN = ofMillis(150);
    /** The flag is looked at each 100 ms, so this is what the machine may take for itself. */
    static final Duration STALL = ofMillis(15);

    private final RedisServer redis = RedisServer.shared();
    private final LeaseholdClient client = LeaseholdClient.connect(redis.url());
    private final LeaseholdClient holder = LeaseholdClient.connect(redis.url());
    private final String name = Names.fresh();

    @AfterEach
    void close() {
        client.close();
        holder.close();
    }

    private interface Wait {
        void call() throws Exception;
    }

    @Test
    void anInterruptEndsAcquire() throws Exception {
        endsInTime(() -> client.lock(name).acquire());
        endsInTime(() -> client.lock(name).waitForever().acquire());
    }

    @Test
    void anInterruptEndsLockInterruptibly() throws Exception {
        endsInTime(() -> client.lock(name).asLock().lockInterruptibly());
    }

    @Test
    void anInterruptEndsTryLock() throws Exception {
        endsInTime(() -> client.lock(name).asLock().tryLock(1, HOURS));
        endsInTime(() -> client.lock(name).asLock().tryLock(3600, 60, SECONDS));
    }

    @Test
    void anInterruptEndsTheWaitForAnEvent() throws Exception {
        try (var events = client.events()) {
            endsInTime(() -> events.nextWithin(ofSeconds(3600)));
        }
    }

    /** At random instants of the wait, also right at its start. */
    private void endsInTime(Wait wait) throws Exception {
        try (Lease held = holder.lock(name).acquire()) {
            for (int i = 0; i < 6; i++) {
                Eventually.unlessStarved(STALL, () -> {
                    var waiter = new Waiter(wait);
                    Thread.sleep(ThreadLocalRandom.current().nextInt(150));
                    Duration took = waiter.interrupted();
                    assertTrue(took.compareTo(WITHIN) <= 0, "it took " + took);
                });
            }
            assertTrue(held.isValid());
        }
        // Nobody stands in the way, and nobody holds anything.
        Eventually.holds(ofSeconds(20), () -> !redis.exists(name));
        client.lock(name).tryAcquire().close();
    }

    private static final class Waiter {
        private final FutureTask<Long> task;
        private final Thread thread;

        Waiter(Wait wait) {
            task = new FutureTask<>(() -> {
                assertThrows(InterruptedException.class, wait::call);
                long end = System.nanoTime();
                assertFalse(Thread.currentThread().isInterrupted());
                return end;
            });
            thread = new Thread(task);
            thread.start();
        }

        Duration interrupted() throws Exception {
            long start = System.nanoTime();
            thread.interrupt();
            return Duration.ofNanos(task.get() - start);
        }
    }

    @Test
    void anInterruptBeforeTheWaitEndsItToo() throws Exception {
        LeaseholdLock lock = client.lock(name).asLock();
        List<Wait> waits = List.of(
                () -> client.lock(name).acquire(),
                lock::lockInterruptibly,
                () -> lock.tryLock(0, SECONDS),
                () -> lock.tryLock(1, SECONDS));
        for (Wait wait : waits) {
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, wait::call);
            assertFalse(Thread.currentThread().isInterrupted());
        }
        Eventually.holds(ofSeconds(20), () -> !redis.exists(name));
        assertEquals(0, client.counters().attempts());
    }

    @Test
    void aTryDoesNotMindInterrupts() {
        Thread.currentThread().interrupt();
        LeaseholdLock lock = client.lock(name).asLock();
        assertTrue(lock.tryLock());
        lock.unlock();
        client.lock(name).tryAcquire().close();
        assertTrue(Thread.interrupted());
    }

    @Test
    void lockWaitsOnAndKeepsTheFlag() throws Exception {
        Lease held = holder.lock(name).acquire();
        // A spinning waiter asks on and on, and so shows that it waits.
        LeaseholdLock lock = client.lock(name).waitMode(WaitMode.SPIN).asLock();
        var task = new FutureTask<>(() -> {
            lock.lock();
            boolean flag = Thread.currentThread().isInterrupted();
            assertTrue(lock.isHeldByCurrentThread());
            lock.unlock();
            return flag;
        });
        var thread = new Thread(task);
        thread.start();
        thread.interrupt();
        long asked = client.counters().busy();
        Eventually.holds(ofSeconds(20), () -> client.counters().busy() > asked + 5);
        assertFalse(task.isDone());
        held.release();
        assertTrue(task.get(), "the flag was lost");
    }

    /** A thread whose class asks for trouble: isInterrupted() can be overridden. */
    @Test
    void aThreadThatThrowsWhenItIsAskedEndsItsWait() throws Exception {
        try (Lease held = holder.lock(name).acquire()) {
            var thread = new Thread() {
                Throwable seen;

                @Override
                public boolean isInterrupted() {
                    throw new IllegalStateException("asked");
                }

                @Override
                public void run() {
                    try {
                        client.lock(name).acquire();
                    } catch (Throwable e) {
                        seen = e;
                    }
                }
            };
            thread.start();
            thread.join();
            assertEquals("asked", thread.seen.getMessage());
            assertTrue(held.isValid());
        }
        Eventually.holds(ofSeconds(20), () -> !redis.exists(name));
    }
}
