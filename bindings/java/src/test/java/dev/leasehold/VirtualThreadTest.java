package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static java.util.concurrent.TimeUnit.HOURS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledForJreRange;
import org.junit.jupiter.api.condition.JRE;

/** Virtual threads, where the JDK has them. The tests are compiled for one that has not. */
@EnabledForJreRange(min = JRE.JAVA_21)
class VirtualThreadTest {
    private final LeaseholdClient client = LeaseholdClient.connect(RedisServer.shared().url());
    private final String name = Names.fresh();

    @AfterEach
    void close() {
        client.close();
    }

    private static Thread start(Runnable work) throws Exception {
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        return (Thread) start.invoke(null, work);
    }

    /** More of them than there are threads to carry them wait for one that sleeps. */
    @Test
    void waitersDoNotKeepTheHolderFromGoingOn() throws Exception {
        LeaseholdLock lock = client.lock(name).asLock();
        int[] turns = {0};
        var tasks = new ArrayList<FutureTask<Void>>();
        for (int i = 0; i < 100; i++) {
            var task = new FutureTask<Void>(() -> {
                lock.lock();
                try {
                    Thread.sleep(1);
                    turns[0]++;
                } finally {
                    lock.unlock();
                }
                return null;
            });
            start(task);
            tasks.add(task);
        }
        for (var task : tasks) {
            task.get(60, TimeUnit.SECONDS);
        }
        assertEquals(100, turns[0]);
    }

    @Test
    void interruptsEndTheirWaits() throws Exception {
        try (Lease held = client.lock(name).acquire();
                var events = client.events()) {
            endsInTime(() -> client.lock(name).acquire());
            endsInTime(() -> client.lock(name).asLock().lockInterruptibly());
            endsInTime(() -> client.lock(name).asLock().tryLock(1, HOURS));
            endsInTime(() -> events.nextWithin(ofSeconds(3600)));
            assertTrue(held.isValid());
        }
        assertFalse(RedisServer.shared().exists(name));
    }

    @Test
    void theyStandAndLead() throws Exception {
        Election election = client.election(name).standAgain(true);
        int[] terms = {0};
        var task = new FutureTask<Void>(() -> {
            election.runAsLeader(term -> {
                terms[0]++;
                if (terms[0] == 3) {
                    election.stop();
                }
                if (terms[0] == 2) {
                    election.resign();
                    assertThrows(InterruptedException.class, () -> Thread.sleep(60_000));
                } else {
                    assertFalse(term.endedWithin(ofMillis(1)) && terms[0] == 1);
                }
            });
            return null;
        });
        start(task);
        task.get(60, TimeUnit.SECONDS);
        assertEquals(3, terms[0]);
    }

    private interface Wait {
        void call() throws Exception;
    }

    private void endsInTime(Wait wait) throws Exception {
        for (int i = 0; i < 10; i++) {
            Eventually.unlessStarved(InterruptTest.STALL, () -> {
                var task = new FutureTask<>(() -> {
                    assertThrows(InterruptedException.class, wait::call);
                    return System.nanoTime();
                });
                Thread thread = start(task);
                Thread.sleep(ThreadLocalRandom.current().nextInt(30));
                long start = System.nanoTime();
                thread.interrupt();
                var took = Duration.ofNanos(task.get() - start);
                assertTrue(took.compareTo(ofMillis(150)) <= 0, "it took " + took);
            });
        }
    }

    @Test
    void lockWaitsOnAndKeepsTheFlag() throws Exception {
        Lease held = client.lock(name).acquire();
        var task = new FutureTask<>(() -> {
            client.lock(name).waitMode(WaitMode.SPIN).asLock().lock();
            return Thread.currentThread().isInterrupted();
        });
        Thread thread = start(task);
        thread.interrupt();
        Eventually.holds(ofSeconds(20), () -> client.counters().busy() > 5);
        assertFalse(task.isDone());
        held.release();
        assertTrue(task.get());
    }

    @Test
    void timeoutsAndErrorsArriveAsTheyAre() throws Exception {
        try (Lease held = client.lock(name).acquire()) {
            assertTrue(held.isValid());
            var task = new FutureTask<>(() -> {
                assertThrows(
                        LeaseTimeoutException.class, () -> client.lock(name).acquireWithin(ofMillis(10)));
                var refused = assertThrows(LeaseholdException.class, () -> client.lock("").acquire());
                assertEquals(Status.BAD_ARGUMENT, refused.status());
                // For a virtual thread this is not a wait for itself.
                return assertThrows(LeaseTimeoutException.class, () -> client.lock(name)
                        .waitForever()
                        .attempts(2)
                        .waitMode(WaitMode.SPIN)
                        .acquire());
            });
            start(task);
            assertEquals(Status.TIMEOUT, task.get().status());
        }
    }

    @Test
    void lentThreadsEnd() throws Exception {
        var task = new FutureTask<>(() -> client.lock(name).acquire());
        start(task);
        task.get().release();
        Eventually.holds(ofSeconds(20), () -> Thread.getAllStackTraces().keySet().stream()
                .noneMatch(thread -> thread.getName().equals("leasehold-wait")));
    }
}
