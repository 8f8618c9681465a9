package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class LeaseholdLockTest {
    private final RedisServer redis = RedisServer.shared();
    private final LeaseholdClient client = LeaseholdClient.connect(redis.url());
    private final String name = Names.fresh();
    private final LeaseholdLock lock = client.lock(name).asLock();

    @AfterEach
    void close() {
        client.close();
    }

    private static <T> T onAnotherThread(Callable<T> call) throws Exception {
        var task = new FutureTask<>(call);
        var thread = new Thread(task);
        thread.start();
        return task.get();
    }

    @Test
    void itIsReentrantByClientNameAndThread() throws Exception {
        LeaseholdLock twin = client.lock(name).ttl(ofSeconds(5)).asLock();
        lock.lock();
        twin.lock();
        twin.lockInterruptibly();
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock(1, SECONDS));
        assertTrue(lock.tryLock(1, 1, SECONDS));
        assertEquals(6, twin.getHoldCount());
        assertTrue(twin.isHeldByCurrentThread());
        assertEquals(lock.fence(), twin.fence());
        assertEquals(1, client.counters().granted());

        assertFalse(onAnotherThread(() -> lock.tryLock()));
        assertFalse(onAnotherThread(() -> lock.tryLock(10, MILLISECONDS)));
        assertEquals(0, onAnotherThread(lock::getHoldCount));
        assertFalse(onAnotherThread(lock::isHeldByCurrentThread));
        try (var other = LeaseholdClient.connect(redis.url())) {
            assertFalse(other.lock(name).asLock().tryLock());
        }

        for (int i = 0; i < 6; i++) {
            assertTrue(redis.exists(name));
            lock.unlock();
        }
        assertFalse(redis.exists(name));
        assertFalse(lock.isHeldByCurrentThread());
        assertTrue(onAnotherThread(() -> {
            boolean taken = lock.tryLock();
            lock.unlock();
            return taken;
        }));
    }

    @Test
    void aHoldIsExtended() throws Exception {
        assertThrows(IllegalMonitorStateException.class, lock::extend);
        assertTrue(lock.tryLock(0, 10, SECONDS));
        onAnotherThread(() -> assertThrows(IllegalMonitorStateException.class, lock::extend));
        lock.extend(ofSeconds(60));
        lock.extend(); // for the 10 s that it was taken with, which makes it no shorter
        assertTrue(client.lock(name).inspect().ttl().compareTo(ofSeconds(20)) > 0);
        redis.command("DEL", name);
        var lost = assertThrows(LeaseLostException.class, lock::extend);
        assertTrue(lost.getMessage().contains("'" + name + "'"), lost.getMessage());
        assertThrows(LeaseLostException.class, lock::unlock);
    }

    @Test
    void otherNamesAreOtherLocks() {
        LeaseholdLock first = client.lock(Names.fresh()).asLock();
        LeaseholdLock second = client.lock(Names.fresh()).asLock();
        lock.lock();
        first.lock();
        second.lock();
        assertNotEquals(first.fence(), lock.fence());
        // From the middle, from the front, and the last one.
        first.unlock();
        assertEquals(0, first.getHoldCount());
        second.unlock();
        assertEquals(1, lock.getHoldCount());
        lock.unlock();
        assertEquals(0, lock.getHoldCount());
    }

    @Test
    void onlyTheHolderUnlocks() throws Exception {
        var stranger = assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertEquals(IllegalMonitorStateException.class, stranger.getClass());
        assertThrows(IllegalMonitorStateException.class, lock::fence);
        lock.lock();
        onAnotherThread(() -> assertThrows(IllegalMonitorStateException.class, lock::unlock));
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void aLossIsTold() throws Exception {
        assertTrue(lock.tryLock(0, 200, MILLISECONDS));
        lock.lock();
        Eventually.holds(ofSeconds(20), () -> !lock.isHeldByCurrentThread());
        assertThrows(LeaseLostException.class, lock::lock);
        assertThrows(LeaseLostException.class, lock::lockInterruptibly);
        assertThrows(LeaseLostException.class, lock::tryLock);
        assertThrows(LeaseLostException.class, () -> lock.tryLock(1, SECONDS));
        assertEquals(2, lock.getHoldCount());
        assertThrows(LeaseLostException.class, lock::unlock);
        assertThrows(LeaseLostException.class, lock::unlock);
        var stranger = assertThrows(IllegalMonitorStateException.class, lock::unlock);
        assertEquals(IllegalMonitorStateException.class, stranger.getClass());
        // It can be taken anew.
        lock.lock();
        lock.unlock();
    }

    @Test
    void aTtlOfOnesOwnIsNotRenewed() throws Exception {
        assertTrue(lock.tryLock(1, 300, MILLISECONDS));
        assertTrue(onAnotherThread(() -> {
            boolean taken = lock.tryLock(10, SECONDS);
            lock.unlock();
            return taken;
        }));
        assertThrows(LeaseLostException.class, lock::unlock);

        assertTrue(lock.tryLock(1, -1, SECONDS));
        assertTrue(client.lock(name).inspect().ttl().compareTo(ofSeconds(20)) > 0);
        lock.unlock();
        assertThrows(LeaseholdException.class, () -> lock.tryLock(1, -2, SECONDS));
        // A ttl below a millisecond is rounded up, and then refused by its name.
        assertThrows(LeaseholdException.class, () -> lock.tryLock(0, 1, NANOSECONDS));
    }

    @Test
    void aWaitForAnotherThreadEndsWithItsUnlock() throws Exception {
        lock.lock();
        var waiter = CompletableFuture.supplyAsync(() -> {
            lock.lock();
            try {
                return lock.fence();
            } finally {
                lock.unlock();
            }
        });
        Eventually.holds(ofSeconds(20), () -> client.counters().busy() > 0);
        long fence = lock.fence();
        lock.unlock();
        assertTrue(waiter.get() > fence);
    }

    @Test
    void aThreadThatEndedLeavesItToItsTtl() throws Exception {
        LeaseholdLock brief = client.lock(name).ttl(ofMillis(1500)).asLock();
        onAnotherThread(() -> {
            brief.lock();
            return null;
        });
        // Renewed for as long as the garbage collector has not noticed.
        Eventually.holds(ofSeconds(60), () -> {
            System.gc();
            return !redis.exists(name);
        });
        assertEquals(0, client.counters().lost());
    }

    @Test
    void thereAreNoConditions() {
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }
}
