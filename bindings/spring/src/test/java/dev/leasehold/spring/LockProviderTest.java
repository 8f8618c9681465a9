package dev.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import dev.leasehold.LeaseholdException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.LockingTaskExecutor;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/** What ShedLock asks of a provider, on the server that LEASEHOLD_URL names. */
class LockProviderTest {
    private static final AtomicInteger NAMES = new AtomicInteger();

    private final LeaseholdClient client = LeaseholdClient.connect(System.getenv("LEASEHOLD_URL"));
    private final LockProvider provider = new LeaseholdLockProvider(client, "jobs:");
    private String name;

    @BeforeEach
    void another() {
        name = "job" + NAMES.incrementAndGet();
    }

    @AfterEach
    void close() {
        client.close();
    }

    private Optional<SimpleLock> lock(Duration atMost, Duration atLeast) {
        return provider.lock(new LockConfiguration(ClockProvider.now(), name, atMost, atLeast));
    }

    private Optional<SimpleLock> lock() {
        return lock(Duration.ofMinutes(5), Duration.ZERO);
    }

    private boolean isLocked() {
        return client.lock("jobs:" + name).inspect().isHeld();
    }

    @Test
    void oneHasItUntilItIsUnlocked() {
        for (int i = 0; i < 10; i++) {
            SimpleLock lock = lock().orElseThrow();
            assertTrue(lock().isEmpty());
            lock.unlock();
            assertThrows(IllegalStateException.class, lock::unlock);
        }
        assertFalse(isLocked());
    }

    @Test
    void whatIsNotUnlockedIsFreeAfterLockAtMostFor() throws InterruptedException {
        lock(Duration.ofMillis(50), Duration.ZERO).orElseThrow();
        eventuallyFree();
        lock().orElseThrow().unlock();
        // Longer than leases go on by default.
        SimpleLock lock = lock(Duration.ofHours(20), Duration.ZERO).orElseThrow();
        Duration left = client.lock("jobs:" + name).inspect().ttl();
        assertTrue(left.compareTo(Duration.ofHours(19)) > 0, left.toString());
        lock.unlock();
    }

    @Test
    void itIsKeptForLockAtLeastFor() throws InterruptedException {
        lock(Duration.ofMinutes(5), Duration.ofSeconds(2)).orElseThrow().unlock();
        assertTrue(lock().isEmpty());
        eventuallyFree();
        // What is nearly over is freed at once.
        lock(Duration.ofMinutes(5), Duration.ofMillis(1)).orElseThrow().unlock();
        eventuallyFree();
    }

    @Test
    void itIsExtendedWhileItIsHeld() throws InterruptedException {
        SimpleLock first = lock(Duration.ofSeconds(1), Duration.ZERO).orElseThrow();
        SimpleLock second = first.extend(Duration.ofMinutes(5), Duration.ofSeconds(60)).orElseThrow();
        assertThrows(IllegalStateException.class, first::unlock);
        Thread.sleep(1100);
        assertTrue(isLocked());
        second.unlock();
        assertTrue(isLocked(), "for 60 s");
    }

    @Test
    void whatRanOutIsNotExtended() throws InterruptedException {
        SimpleLock lock = lock(Duration.ofMillis(50), Duration.ZERO).orElseThrow();
        SimpleLock other = lock(Duration.ofMillis(50), Duration.ZERO).orElse(null);
        eventuallyFree();
        assertTrue(other == null && lock.extend(Duration.ofMinutes(5), Duration.ZERO).isEmpty());
        assertFalse(isLocked());
    }

    @Test
    void aJobThatTookTooLongIsLoggedAndKeepsItsOwnException() {
        List<LogRecord> logged = new CopyOnWriteArrayList<>();
        var handler = new Handler() {
            @Override
            public void publish(LogRecord record) {
                logged.add(record);
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger log = Logger.getLogger("dev.leasehold.spring");
        log.addHandler(handler);
        try {
            var wanted = new LockConfiguration(ClockProvider.now(), name, Duration.ofMillis(50), Duration.ZERO);
            LockingTaskExecutor.Task job = () -> {
                eventuallyFree();
                throw new IllegalStateException("of the job");
            };
            var thrown = assertThrows(IllegalStateException.class,
                    () -> new DefaultLockingTaskExecutor(provider).executeWithLock(job, wanted));
            assertEquals("of the job", thrown.getMessage());
        } finally {
            log.removeHandler(handler);
        }
        assertEquals(1, logged.size());
        assertEquals(Level.WARNING, logged.get(0).getLevel());
        assertTrue(logged.get(0).getMessage().contains(name), logged.get(0).getMessage());
        assertEquals(LeaseLostException.class, logged.get(0).getThrown().getClass());
    }

    @Test
    void whatNoLockCanHaveIsAnError() {
        assertThrows(LeaseholdException.class, () -> lock(Duration.ofDays(400), Duration.ZERO));
        assertFalse(isLocked());
    }

    @Test
    void threadsExcludeEachOther() throws InterruptedException {
        int[] counter = {0};
        var threads = Executors.newFixedThreadPool(4);
        for (int i = 0; i < 4; i++) {
            threads.execute(() -> {
                for (int done = 0; done < 25; ) {
                    Optional<SimpleLock> lock = lock();
                    if (lock.isPresent()) {
                        int before = counter[0];
                        Thread.yield();
                        counter[0] = before + 1;
                        lock.get().unlock();
                        done++;
                    }
                }
            });
        }
        threads.shutdown();
        assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS));
        assertEquals(100, counter[0]);
    }

    private void eventuallyFree() throws InterruptedException {
        for (int i = 0; isLocked(); i++) {
            assertTrue(i < 2000, "it is still locked");
            Thread.sleep(10);
        }
    }

    /** As README has it. */
    @EnableScheduling
    @EnableSchedulerLock(defaultLockAtMostFor = "10m")
    static class Jobs {
        static final CountDownLatch RAN = new CountDownLatch(2);

        @Bean
        LeaseholdClient leasehold(@Value("${LEASEHOLD_URL}") String url) {
            var client = LeaseholdClient.connect(url);
            client.ping();
            return client;
        }

        @Bean
        LockProvider lockProvider(LeaseholdClient client) {
            return new LeaseholdLockProvider(client, "jobs:");
        }

        @Bean
        LeaseholdLockRegistry lockRegistry(LeaseholdClient client) {
            return new LeaseholdLockRegistry(key -> client.lock("orders:" + key).ttl(Duration.ofSeconds(10)));
        }

        @Bean
        Job job() {
            return new Job();
        }
    }

    static class Job {
        @Scheduled(fixedDelay = 20)
        @SchedulerLock(name = "nightly")
        public void run() {
            Jobs.RAN.countDown();
        }
    }

    @Test
    void springRunsAJobWhileNobodyElseDoes() throws InterruptedException {
        var elsewhere = client.lock("jobs:nightly").tryAcquire();
        try (var context = new AnnotationConfigApplicationContext(Jobs.class)) {
            assertFalse(Jobs.RAN.await(300, TimeUnit.MILLISECONDS));
            elsewhere.release();
            assertTrue(Jobs.RAN.await(60, TimeUnit.SECONDS));
            context.getBean(LeaseholdLockRegistry.class).executeLocked("spring", () -> {});
        }
    }
}
