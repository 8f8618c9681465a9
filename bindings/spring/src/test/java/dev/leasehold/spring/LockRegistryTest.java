package dev.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.integration.leader.Candidate;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

/** What Spring Integration asks of a registry, on the server that LEASEHOLD_URL names. */
class LockRegistryTest {
    private static final AtomicInteger KEYS = new AtomicInteger();

    private final LeaseholdClient client = LeaseholdClient.connect(System.getenv("LEASEHOLD_URL"));
    private final LeaseholdClient another = LeaseholdClient.connect(System.getenv("LEASEHOLD_URL"));
    private final LeaseholdLockRegistry registry = new LeaseholdLockRegistry(client, "orders:");
    private final LeaseholdLockRegistry elsewhere = new LeaseholdLockRegistry(another, "orders:");
    private final Object key = "key" + KEYS.incrementAndGet();

    @AfterEach
    void close() {
        client.close();
        another.close();
    }

    private static <T> T elsewhere(Callable<T> call) throws Exception {
        return CompletableFuture.supplyAsync(() -> {
            try {
                return call.call();
            } catch (Exception e) {
                throw new CompletionException(e);
            }
        }).get(60, TimeUnit.SECONDS);
    }

    @Test
    void aLockIsOneInAllRegistriesAndReentrant() throws Exception {
        Lock lock = registry.obtain(key);
        lock.lock();
        registry.obtain(key).lockInterruptibly();
        assertFalse(elsewhere.obtain(key).tryLock());
        assertFalse(elsewhere(() -> registry.obtain(key).tryLock(100, TimeUnit.MILLISECONDS)));
        registry.obtain(key).unlock();
        assertFalse(elsewhere.obtain(key).tryLock());
        lock.unlock();
        assertTrue(elsewhere.obtain(key).tryLock(60, TimeUnit.SECONDS));
        elsewhere.obtain(key).unlock();
        // Another key is another lock.
        lock.lock();
        assertTrue(registry.obtain(key + ":2").tryLock());
        registry.obtain(key + ":2").unlock();
        lock.unlock();
    }

    @Test
    void oneThreadWaitsForAnother() throws Exception {
        Lock lock = registry.obtain(key);
        lock.lock();
        var waits = CompletableFuture.runAsync(() -> {
            elsewhere.obtain(key).lock();
            elsewhere.obtain(key).unlock();
        });
        Thread.sleep(100);
        assertFalse(waits.isDone());
        lock.unlock();
        waits.get(60, TimeUnit.SECONDS);
    }

    @Test
    void onlyTheThreadThatHoldsItUnlocksAndRenews() throws Exception {
        registry.obtain(key).lock();
        assertTrue(elsewhere(() -> {
            assertThrows(IllegalMonitorStateException.class, registry.obtain(key)::unlock);
            assertThrows(IllegalMonitorStateException.class, () -> registry.renewLock(key));
            return true;
        }));
        registry.renewLock(key);
        registry.renewLock(key, Duration.ofMinutes(10));
        Duration left = client.lock("orders:" + key).inspect().ttl();
        assertTrue(left.compareTo(Duration.ofMinutes(9)) > 0, left.toString());
        registry.obtain(key).unlock();
    }

    @Test
    void aLockThatWasLostSaysSo() throws Exception {
        var unrenewed = new LeaseholdLockRegistry(
                key -> client.lock("orders:" + key).ttl(Duration.ofMillis(100)).renew(false));
        Lock lock = unrenewed.obtain(key);
        lock.lock();
        elsewhere.obtain(key).lock();
        assertThrows(LeaseLostException.class, lock::unlock);
        elsewhere.obtain(key).unlock();
    }

    @Test
    void aKeyThatWouldBeAnotherLockInEachProcessIsRefused() {
        var noText = new Object();
        for (Object bad : new Object[] {null, noText, new byte[] {1}}) {
            assertThrows(IllegalArgumentException.class, () -> registry.obtain(bad));
            assertThrows(IllegalArgumentException.class, () -> registry.renewLock(bad));
        }
        String said = assertThrows(IllegalArgumentException.class, () -> registry.obtain(noText)).getMessage();
        assertTrue(said.contains("java.lang.Object") && said.contains("toString()"), said);
        record Order(int id) {}
        registry.obtain(new Order(KEYS.incrementAndGet())).lock();
        registry.obtain(new Order(KEYS.get())).unlock();
    }

    @Test
    void aBlockIsExecutedUnderItsLock() throws Exception {
        int held = registry.executeLocked(key, () -> {
            assertFalse(elsewhere.obtain(key).tryLock());
            return registry.obtain(key).getHoldCount();
        });
        assertEquals(1, held);
        assertTrue(elsewhere.obtain(key).tryLock());
        elsewhere.obtain(key).unlock();
    }

    @Test
    void oneOfTwoIsLeaderUntilItStops() throws Exception {
        BlockingQueue<String> said = new LinkedBlockingQueue<>();
        var first = initiator(registry, candidate("first", said));
        var second = initiator(elsewhere, candidate("second", said));
        first.start();
        assertEquals("first leads", said.poll(60, TimeUnit.SECONDS));
        second.start();
        assertNull(said.poll(300, TimeUnit.MILLISECONDS));
        first.stop();
        // The lock is free before the candidate is told.
        var next = Set.of(said.poll(60, TimeUnit.SECONDS), said.poll(60, TimeUnit.SECONDS));
        assertEquals(Set.of("first is over", "second leads"), next);
        second.stop();
        assertEquals("second is over", said.poll(60, TimeUnit.SECONDS));
    }

    @SuppressWarnings("unchecked")
    private static LockRegistryLeaderInitiator initiator(LeaseholdLockRegistry locks, Candidate candidate) {
        var initiator = new LockRegistryLeaderInitiator(locks, candidate);
        initiator.setHeartBeatMillis(50);
        initiator.setBusyWaitMillis(50);
        return initiator;
    }

    private Candidate candidate(String name, BlockingQueue<String> said) {
        return new DefaultCandidate(name, key.toString()) {
            @Override
            public void onGranted(Context context) {
                said.add(name + " leads");
            }

            @Override
            public void onRevoked(Context context) {
                said.add(name + " is over");
            }
        };
    }
}
