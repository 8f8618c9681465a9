package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** A loss as an interrupt, and as a future. */
class LossTest {
    private final LeaseholdClient client = LeaseholdClient.connect(RedisServer.shared().url() + "?advise=no");

    @AfterEach
    void close() {
        client.close();
    }

    private Lease acquire(String name) throws InterruptedException {
        return client.lock(name).ttl(ofSeconds(3)).acquire();
    }

    private void lose(String name) {
        assertTrue(client.lock(name).breakHeld("an operator").isPresent());
    }

    /** Without a sleep, which would notice the interrupt. */
    private static void untilLost(LossScope scope) {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (scope.loss() == null) {
            assertTrue(System.nanoTime() < until);
            Thread.yield();
        }
    }

    @Test
    void aLossInterruptsWhatIsDoneUnderTheLease() throws Exception {
        String name = Names.fresh();
        var thrown = assertThrows(InterruptedException.class, () -> {
            try (Lease lease = acquire(name);
                    LossScope scope = lease.interruptOnLoss()) {
                assertNull(scope.loss());
                lose(name);
                try {
                    Thread.sleep(60_000);
                } finally {
                    assertFalse(lease.isValid());
                    assertEquals(LeaseEvent.Reason.BROKEN, scope.loss().reason());
                }
            }
        });
        // The end of the lease says what happened, too.
        assertEquals(LeaseLostException.class, thrown.getSuppressed()[0].getClass());
        assertFalse(Thread.interrupted());
    }

    @Test
    void aWaitForAnotherLockIsInterruptedAsWell() throws Exception {
        String name = Names.fresh();
        String other = Names.fresh();
        try (Lease elsewhere = client.lock(other).acquire();
                Lease lease = acquire(name)) {
            lose(name);
            CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
            Thread waiter = new Thread(() -> {
                try (LossScope scope = lease.interruptOnLoss()) {
                    client.lock(other).acquireWithin(ofSeconds(60)).release();
                    interrupted.complete(false);
                } catch (InterruptedException e) {
                    interrupted.complete(true);
                }
            });
            waiter.start();
            assertTrue(interrupted.get(60, TimeUnit.SECONDS));
            assertTrue(elsewhere.isValid());
            assertThrows(LeaseLostException.class, lease::release);
        }
    }

    @Test
    void aScopeClearsTheInterruptThatNothingHasNoticed() throws Exception {
        String name = Names.fresh();
        Lease lease = acquire(name);
        try (LossScope scope = lease.interruptOnLoss()) {
            lose(name);
            untilLost(scope);
            assertTrue(Thread.currentThread().isInterrupted());
        }
        assertFalse(Thread.currentThread().isInterrupted());
        // One that is opened after the loss interrupts as well.
        try (LossScope scope = lease.interruptOnLoss()) {
            untilLost(scope);
            assertThrows(InterruptedException.class, () -> Thread.sleep(60_000));
        }
        assertThrows(LeaseLostException.class, lease::release);
    }

    @Test
    void anInterruptOfAnotherOriginStays() throws Exception {
        String name = Names.fresh();
        Lease lease = acquire(name);
        try (LossScope scope = lease.interruptOnLoss()) {
            Thread.currentThread().interrupt();
            client.lock(name).breakHeld("an operator");
            untilLost(scope);
        }
        assertTrue(Thread.interrupted());
        assertThrows(LeaseLostException.class, lease::release);
        // And where nothing was lost.
        try (Lease kept = acquire(Names.fresh());
                LossScope scope = kept.interruptOnLoss()) {
            Thread.currentThread().interrupt();
            assertNull(scope.loss());
        }
        assertTrue(Thread.interrupted());
    }

    @Test
    void aClosedScopeInterruptsNothing() throws Exception {
        String name = Names.fresh();
        Lease lease = acquire(name);
        LossScope scope = lease.interruptOnLoss();
        scope.close();
        scope.close();
        var lost = new CountDownLatch(1);
        lease.onLost(event -> lost.countDown());
        lose(name);
        assertTrue(lost.await(60, TimeUnit.SECONDS));
        assertFalse(Thread.currentThread().isInterrupted());
        assertNull(scope.loss());
        assertThrows(LeaseLostException.class, lease::release);
        assertThrows(LeaseLostException.class, lease::interruptOnLoss);
    }

    @Test
    void anotherThreadDoesNotCloseAScope() throws Exception {
        try (Lease lease = acquire(Names.fresh())) {
            LossScope scope = lease.interruptOnLoss();
            var wrong = CompletableFuture.runAsync(scope::close);
            var thrown = assertThrows(ExecutionException.class, () -> wrong.get(60, TimeUnit.SECONDS));
            assertEquals(IllegalStateException.class, thrown.getCause().getClass());
            scope.close();
        }
    }

    @Test
    void twoScopesOfOneThreadAreApart() throws Exception {
        String outer = Names.fresh();
        Lease first = acquire(outer);
        try (LossScope scope = first.interruptOnLoss();
                Lease second = acquire(Names.fresh())) {
            try (LossScope inner = second.interruptOnLoss()) {
                lose(outer);
                untilLost(scope);
                assertNull(inner.loss());
            }
            assertTrue(Thread.currentThread().isInterrupted(), "by the outer one, which is open");
        }
        assertFalse(Thread.currentThread().isInterrupted());
        assertThrows(LeaseLostException.class, first::release);
    }

    @Test
    void anInnerScopeLeavesTheInterruptToAnOuterOneThatIsLostToo() throws Exception {
        String outer = Names.fresh();
        String inner = Names.fresh();
        Lease first = acquire(outer);
        Lease second = acquire(inner);
        for (boolean isInnerFirst : new boolean[] {true, false}) {
            try (LossScope scope = first.interruptOnLoss()) {
                try (LossScope within = second.interruptOnLoss()) {
                    lose(isInnerFirst ? inner : outer);
                    untilLost(isInnerFirst ? within : scope);
                    lose(isInnerFirst ? outer : inner);
                    untilLost(isInnerFirst ? scope : within);
                }
                assertTrue(Thread.currentThread().isInterrupted(), "by the outer one, which is open");
            }
            assertFalse(Thread.interrupted());
            assertThrows(LeaseLostException.class, first::release);
            assertThrows(LeaseLostException.class, second::release);
            first = acquire(outer);
            second = acquire(inner);
        }
        first.release();
        second.release();
    }

    @Test
    void aLossThatWasNoticedIsNotLeftToAnOuterScope() throws Exception {
        String outer = Names.fresh();
        String inner = Names.fresh();
        Lease first = acquire(outer);
        Lease second = acquire(inner);
        try (LossScope scope = first.interruptOnLoss()) {
            try (LossScope within = second.interruptOnLoss()) {
                lose(outer);
                untilLost(scope);
                assertTrue(Thread.interrupted());
                lose(inner);
                untilLost(within);
                assertTrue(Thread.currentThread().isInterrupted());
            }
            assertFalse(Thread.currentThread().isInterrupted());
        }
        assertThrows(LeaseLostException.class, first::release);
        assertThrows(LeaseLostException.class, second::release);
    }

    @Test
    void anInterruptBeforeBothLossesStays() throws Exception {
        String outer = Names.fresh();
        String inner = Names.fresh();
        Lease first = acquire(outer);
        Lease second = acquire(inner);
        lose(outer);
        lose(inner);
        Thread.currentThread().interrupt();
        try (LossScope scope = first.interruptOnLoss();
                LossScope within = second.interruptOnLoss()) {
            untilLost(within);
            untilLost(scope);
        }
        assertTrue(Thread.interrupted());
        assertThrows(LeaseLostException.class, first::release);
        assertThrows(LeaseLostException.class, second::release);
    }

    @Test
    void aFutureThatIsDoneIsNotKept() throws Exception {
        var kept = Lease.class.getDeclaredField("others");
        kept.setAccessible(true);
        String name = Names.fresh();
        Lease lease = acquire(name);
        var cancelled = lease.whenLost();
        var lost = lease.whenLost();
        assertEquals(2, ((Set<?>) kept.get(lease)).size());
        assertTrue(cancelled.cancel(true));
        assertEquals(1, ((Set<?>) kept.get(lease)).size());
        lose(name);
        lost.get(60, TimeUnit.SECONDS);
        // Who waits can be awake before what follows the future has run.
        Eventually.holds(ofSeconds(60), () -> ((Set<?>) kept.get(lease)).isEmpty());
        assertThrows(LeaseLostException.class, lease::release);
    }

    @Test
    void aLossCompletesEachFuture() throws Exception {
        String name = Names.fresh();
        Lease lease = acquire(name);
        BlockingQueue<LeaseEvent> told = new LinkedBlockingQueue<>();
        lease.onLost(told::add);
        List<CompletableFuture<LeaseEvent>> futures = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            futures.add(lease.whenLost());
        }
        assertTrue(futures.get(0).cancel(true));
        assertTrue(lease.isValid());
        lose(name);
        for (var future : futures.subList(1, 3)) {
            assertEquals(lease.fence(), future.get(60, TimeUnit.SECONDS).fence());
        }
        assertNotNull(told.poll(60, TimeUnit.SECONDS));
        // At once, now that it is known.
        assertEquals(LeaseEvent.Reason.BROKEN, lease.whenLost().get(60, TimeUnit.SECONDS).reason());
        assertThrows(LeaseLostException.class, lease::release);
        assertThrows(LeaseLostException.class, lease::whenLost);
    }

    @Test
    void whoeverIsFirstDecides() throws Exception {
        String name = Names.fresh();
        Lease lease = acquire(name);
        CompletableFuture<String> work = new CompletableFuture<>();
        var either = CompletableFuture.anyOf(work, lease.whenLost());
        lose(name);
        assertEquals(LeaseEvent.class, either.get(60, TimeUnit.SECONDS).getClass());
        work.cancel(true);
        assertThrows(LeaseLostException.class, lease::close);
    }

    /** Releases that meet the renewal, every third of the ttl: what was released was not lost. */
    @Test
    void noReleaseIsToldAsALoss() throws Exception {
        int most = Integer.getInteger("leasehold.test.releases", 5_000);
        var released = new ConcurrentLinkedQueue<AtomicInteger>();
        var failed = new LinkedBlockingQueue<Throwable>();
        var held = new Semaphore(1_000);
        ScheduledExecutorService pool = Executors.newScheduledThreadPool(8);
        String name = Names.fresh();
        long begin = System.nanoTime();
        long enough = TimeUnit.SECONDS.toNanos(most > 5_000 ? 600 : 8);
        long limit = Math.max(enough, TimeUnit.SECONDS.toNanos(60)); // for a slow machine
        for (int i = 0; System.nanoTime() - begin < limit; i++) {
            if ((i >= most || System.nanoTime() - begin > enough) && released.size() >= 1_000) {
                break;
            }
            held.acquire();
            Lease lease = client.lock(name + i).ttl(ofMillis(1500)).acquire();
            var told = new AtomicInteger();
            lease.onLost(event -> told.incrementAndGet());
            lease.whenLost().thenRun(told::incrementAndGet);
            // From a little before its renewal to a little after it; some wait for the second one.
            long after = (i % 8 == 0 ? 1000 : 500) - 15 + ThreadLocalRandom.current().nextInt(30);
            pool.schedule(() -> {
                try (LossScope scope = lease.interruptOnLoss()) {
                    lease.release();
                    assertNull(scope.loss());
                    released.add(told);
                } catch (LeaseholdException e) {
                    // The machine stood still: it was lost indeed, or is not known to be released.
                    if (e.status() != Status.LOST && e.status() != Status.UNKNOWN) {
                        failed.add(e);
                    }
                } catch (Throwable e) {
                    failed.add(e);
                } finally {
                    held.release();
                }
            }, after, TimeUnit.MILLISECONDS);
        }
        pool.shutdown();
        assertTrue(pool.awaitTermination(60, TimeUnit.SECONDS));
        Thread.sleep(300); // what would be told now
        assertEquals(List.of(), List.copyOf(failed));
        assertEquals(0, released.stream().filter(told -> told.get() != 0).count());
        assertTrue(released.size() >= 1_000, "only " + released.size());
    }
}
