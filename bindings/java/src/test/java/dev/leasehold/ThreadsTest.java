package dev.leasehold;

import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Hundreds of threads around one resource that remembers the largest fence. */
class ThreadsTest {
    private static final int THREADS = 300;

    private final RedisServer redis = RedisServer.shared();
    private final String name = Names.fresh();

    /** What the lock protects: not safe for threads by itself. */
    private static final class Resource {
        private long fence;
        private int writes;

        void write(long by) {
            assertTrue(by > fence, by + " comes after " + fence);
            int before = writes;
            Thread.yield();
            fence = by;
            writes = before + 1;
        }
    }

    private static <T> List<FutureTask<T>> start(int count, Callable<T> work) {
        var tasks = new ArrayList<FutureTask<T>>();
        for (int i = 0; i < count; i++) {
            var task = new FutureTask<>(work);
            new Thread(task).start();
            tasks.add(task);
        }
        return tasks;
    }

    @Test
    void theyTakeTurns() throws Exception {
        var resource = new Resource();
        try (var client = LeaseholdClient.connect(redis.url());
                var other = LeaseholdClient.connect(redis.url())) {
            var number = new AtomicInteger();
            var tasks = start(THREADS, () -> {
                var lock = (number.incrementAndGet() % 2 == 0 ? client : other).lock(name).asLock();
                lock.lock();
                try {
                    lock.lock();
                    resource.write(lock.fence());
                    lock.unlock();
                } finally {
                    lock.unlock();
                }
                return null;
            });
            for (var task : tasks) {
                task.get();
            }
            assertEquals(THREADS, resource.writes);
            assertEquals(0, client.counters().lost() + other.counters().lost());
        }
        assertFalse(redis.exists(name));
    }

    @Test
    void interruptsAtAnyInstantLoseNothing() throws Exception {
        var resource = new Resource();
        var waiting = new CountDownLatch(THREADS);
        var ended = new AtomicInteger();
        try (var client = LeaseholdClient.connect(redis.url())) {
            var lock = client.lock(name).waitAtMost(ofSeconds(120));
            var threads = new ArrayList<Thread>();
            var failures = new ArrayList<Throwable>();
            for (int i = 0; i < THREADS; i++) {
                var thread = new Thread(() -> {
                    waiting.countDown();
                    try (Lease lease = lock.acquire()) {
                        resource.write(lease.fence());
                    } catch (InterruptedException e) {
                        ended.incrementAndGet();
                    } catch (Throwable e) {
                        synchronized (failures) {
                            failures.add(e);
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            assertTrue(waiting.await(60, TimeUnit.SECONDS));
            // Every other one, while the rest goes on.
            for (int i = 0; i < THREADS; i += 2) {
                threads.get(i).interrupt();
                if (ThreadLocalRandom.current().nextInt(8) == 0) {
                    Thread.sleep(1);
                }
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(List.of(), failures);
            assertEquals(THREADS, resource.writes + ended.get());
            assertTrue(resource.writes >= THREADS / 2);
            assertFalse(redis.exists(name));
            assertEquals(resource.writes, client.counters().granted());
        }
    }

    @Test
    void closingWhileTheyAllWaitHarmsNobody() throws Exception {
        try (var holder = LeaseholdClient.connect(redis.url());
                var held = holder.lock(name).acquire()) {
            var client = LeaseholdClient.connect(redis.url());
            var tasks = start(100, () -> {
                try {
                    client.lock(name).asLock().lock();
                    return null;
                } catch (LeaseholdException e) {
                    return e.status();
                }
            });
            Eventually.holds(ofSeconds(60), () -> client.counters().busy() > 0);
            client.close();
            for (var task : tasks) {
                assertEquals(Status.CLOSED, task.get());
            }
            assertTrue(held.isValid());
        }
    }

    /** Threads that use and end one lease at the same time: one of them ends it. */
    @Test
    void oneOfManyEndsALease() throws Exception {
        try (var client = LeaseholdClient.connect(redis.url())) {
            for (int round = 0; round < 30; round++) {
                Lease lease = client.lock(name).acquire();
                var go = new CountDownLatch(1);
                var tasks = start(8, () -> {
                    go.await();
                    try {
                        lease.remaining();
                        lease.extend();
                        lease.release();
                        return 1;
                    } catch (LeaseLostException e) {
                        return 0;
                    }
                });
                go.countDown();
                int enders = 0;
                for (var task : tasks) {
                    enders += task.get();
                }
                assertEquals(1, enders);
                assertFalse(lease.isValid());
            }
            assertEquals(0, client.counters().lost());
        }
    }
}
