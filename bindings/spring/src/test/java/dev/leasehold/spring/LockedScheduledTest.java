package dev.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leasehold.LeaseLostException;
import dev.leasehold.LeaseholdClient;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.MapPropertySource;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/** Jobs that every node schedules, on the server that LEASEHOLD_URL names. */
class LockedScheduledTest {
    private final LeaseholdClient other = LeaseholdClient.connect(System.getenv("LEASEHOLD_URL"));

    @AfterEach
    void close() {
        other.close();
    }

    @Configuration
    @EnableLocked
    static class Node {
        @Bean
        LeaseholdClient leasehold(@Value("${LEASEHOLD_URL}") String url) {
            return LeaseholdClient.connect(url);
        }
    }

    @Configuration
    @EnableScheduling
    static class Scheduler {}

    private static AnnotationConfigApplicationContext node(Class<?>... beans) {
        var context = new AnnotationConfigApplicationContext();
        context.getEnvironment().getPropertySources()
                .addFirst(new MapPropertySource("test", Map.of("shop.most", "30s")));
        context.register(Node.class);
        context.register(beans);
        context.refresh();
        return context;
    }

    /** A job that no other of the tests has. */
    static class Often {
        static final AtomicInteger RUNNING = new AtomicInteger();
        static final AtomicInteger OVERLAPS = new AtomicInteger();
        static final CountDownLatch RAN = new CountDownLatch(20);

        @Scheduled(fixedDelay = 5)
        @LockedScheduled(name = "scheduled:often", lockAtMostFor = "${shop.most}")
        public void run() throws InterruptedException {
            if (RUNNING.incrementAndGet() > 1) {
                OVERLAPS.incrementAndGet();
            }
            Thread.sleep(2);
            RUNNING.decrementAndGet();
            RAN.countDown();
        }
    }

    @Test
    void threeNodesRunAJobOneAtATime() throws InterruptedException {
        try (var held = other.lock("scheduled:often").acquire();
                var one = node(Often.class, Scheduler.class);
                var two = node(Often.class, Scheduler.class);
                var three = node(Often.class, Scheduler.class)) {
            assertFalse(Often.RAN.await(200, TimeUnit.MILLISECONDS));
            held.release();
            assertTrue(Often.RAN.await(60, TimeUnit.SECONDS));
            assertEquals(0, Often.OVERLAPS.get());
        }
    }

    static class Jobs {
        int runs;

        @LockedScheduled(name = "scheduled:kept", lockAtMostFor = "1h", lockAtLeastFor = "30m")
        public String kept(boolean fails) {
            runs++;
            if (fails) {
                throw new IllegalArgumentException("the job");
            }
            return CurrentLease.get().lock().name();
        }

        @LockedScheduled(name = "scheduled:brief", lockAtMostFor = "PT2H")
        public long[] brief() {
            return new long[] {CurrentLease.fence(), CurrentLease.get().remaining().toMinutes()};
        }

        @LockedScheduled(name = "scheduled:late", lockAtMostFor = "300ms")
        public void late(RuntimeException thrown) throws InterruptedException {
            while (CurrentLease.get().isValid()) {
                Thread.sleep(5);
            }
            if (thrown != null) {
                throw thrown;
            }
        }
    }

    @Test
    void theLockIsKeptForLockAtLeastForAlsoIfTheJobThrows() {
        try (var context = node(Jobs.class)) {
            Jobs jobs = context.getBean(Jobs.class);
            for (boolean fails : new boolean[] {false, true}) {
                if (fails) {
                    assertThrows(IllegalArgumentException.class, () -> jobs.kept(true));
                } else {
                    assertEquals("scheduled:kept", jobs.kept(false));
                }
                assertNull(jobs.kept(false));
                Duration left = other.lock("scheduled:kept").inspect().ttl();
                assertTrue(left.compareTo(Duration.ofMinutes(29)) > 0 && left.compareTo(Duration.ofMinutes(30)) <= 0);
                other.lock("scheduled:kept").breakHeld("the test");
            }
        }
    }

    @Test
    void withoutItTheLockIsFreeWhenTheJobHasEnded() {
        try (var context = node(Jobs.class)) {
            Jobs jobs = context.getBean(Jobs.class);
            long[] first = jobs.brief();
            assertTrue(first[1] >= 118 && first[1] <= 120, () -> "lockAtMostFor is the ttl: " + first[1]);
            assertTrue(jobs.brief()[0] > first[0]);
        }
    }

    @Test
    void aRunThatTakesTooLongSaysSo() throws InterruptedException {
        try (var context = node(Jobs.class)) {
            Jobs jobs = context.getBean(Jobs.class);
            assertThrows(LeaseLostException.class, () -> jobs.late(null));
            // A lease ends a moment before the store frees its lock.
            other.lock("scheduled:late").acquire().release();
            var thrown = new IllegalArgumentException("own");
            var own = assertThrows(IllegalArgumentException.class, () -> jobs.late(thrown));
            assertTrue(own.getSuppressed()[0] instanceof LeaseLostException);
        }
    }

    static class NoMost {
        @LockedScheduled(name = "n", lockAtMostFor = "")
        public void job() {}
    }

    static class NoDuration {
        @LockedScheduled(name = "n", lockAtMostFor = "an hour")
        public void job() {}
    }

    static class LeastBeyondMost {
        @LockedScheduled(name = "n", lockAtMostFor = "1m", lockAtLeastFor = "2m")
        public void job() {}
    }

    static class NoName {
        @LockedScheduled(name = " ", lockAtMostFor = "1m")
        public void job() {}
    }

    static class NoProperty {
        @LockedScheduled(name = "${nobody.sets.this}", lockAtMostFor = "1m")
        public void job() {}
    }

    static class Primitive {
        @LockedScheduled(name = "n", lockAtMostFor = "1m")
        public int job() {
            return 1;
        }
    }

    static class Later {
        @LockedScheduled(name = "n", lockAtMostFor = "1m")
        public CompletableFuture<Void> job() {
            return null;
        }
    }

    static class Final {
        @LockedScheduled(name = "n", lockAtMostFor = "1m")
        public final void job() {}
    }

    private static void assertRefused(Class<?> bean, String expected) {
        Throwable thrown = assertThrows(RuntimeException.class, () -> node(bean).close());
        while (thrown.getCause() != null) {
            thrown = thrown.getCause();
        }
        String said = thrown.getMessage();
        assertTrue(said.contains(expected), said);
    }

    @Test
    void aProgramWithAMistakeInOneDoesNotStart() {
        assertRefused(NoMost.class, "the @LockedScheduled method NoMost.job() has no lockAtMostFor");
        assertRefused(NoDuration.class, "has lockAtMostFor = \"an hour\", which is no duration");
        assertRefused(LeastBeyondMost.class, "lockAtLeastFor of 2m, which is longer than its lockAtMostFor of 1m");
        assertRefused(NoName.class, "has no name");
        assertRefused(NoProperty.class, "nobody.sets.this");
        assertRefused(Primitive.class, "returns int, which a run that is skipped does not have");
        assertRefused(Later.class, "lock would be released before the work is done");
        assertRefused(Final.class, "is final, so Spring cannot lock its calls");
    }
}
