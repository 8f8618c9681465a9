package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;

/** What the garbage collector finds: renewal stops, and nothing is released. */
class ForgottenTest {
    private static final Duration LIMIT = ofSeconds(60);

    private final RedisServer redis = RedisServer.shared();
    private final String name = Names.fresh();

    private static void collect(Eventually.Test until) {
        Eventually.holds(LIMIT, () -> {
            System.gc();
            try {
                until.run();
                return true;
            } catch (AssertionError e) {
                return false;
            }
        });
    }

    @Test
    void aLeaseThatWasForgottenRunsOut() throws Exception {
        try (var client = LeaseholdClient.connect(redis.url())) {
            NamedLock lock = client.lock(name);
            long before = Native.handleCount();
            long fence = lock.ttl(ofSeconds(30)).acquire().fence();
            // The lease's handle and that of its own lock.
            collect(() -> assertEquals(before, Native.handleCount()));
            LockState view = lock.inspect();
            assertTrue(view.isHeld(), "it was released");
            assertEquals(fence, view.fence());

            lock = client.lock(name + ":brief").ttl(ofMillis(1200));
            lock.acquire();
            collect(() -> assertEquals(before, Native.handleCount() - 1));
            long renewed = client.counters().renewed();
            String key = lock.name();
            Eventually.holds(LIMIT, () -> !redis.exists(key));
            assertEquals(renewed, client.counters().renewed());
            // A caller that forgot it wanted to know nothing of it either.
            assertEquals(0, client.counters().lost());
        }
    }

    @Test
    void aListenerDoesNotKeepItsLease() throws Exception {
        try (var client = LeaseholdClient.connect(redis.url())) {
            NamedLock lock = client.lock(name).ttl(ofMillis(1200));
            listenAndForget(lock);
            long before = Native.handleCount();
            collect(() -> assertEquals(before - 1, Native.handleCount()));
            Eventually.holds(LIMIT, () -> !redis.exists(name));
        }
    }

    private static void listenAndForget(NamedLock lock) throws Exception {
        Lease lease = lock.acquire();
        lease.onLost(event -> lease.close());
    }

    @Test
    void aLeaseThatIsInUseIsNotForgotten() throws Exception {
        Lease lease;
        {
            var client = LeaseholdClient.connect(redis.url());
            lease = client.lock(name).ttl(ofSeconds(3)).acquire();
        }
        long renewed = lease.lock().client().counters().renewed();
        Eventually.holds(LIMIT, () -> {
            System.gc();
            return lease.lock().client().counters().renewed() > renewed + 2;
        });
        assertTrue(lease.isValid());
        lease.lock().client().close();
    }

    @Test
    void aClientThatWasForgottenIsClosed() throws Exception {
        collect(() -> assertEquals(0, Native.handleCount()));
        assertEquals(0, keepers());
        useAndForget();
        collect(() -> assertEquals(0, Native.handleCount()));
        Eventually.holds(LIMIT, () -> keepers() == 0);
        assertTrue(redis.exists(name), "it was released");
        redis.command("DEL", name);
    }

    private void useAndForget() throws Exception {
        var client = LeaseholdClient.connect(redis.url());
        client.lock(name).acquire().onLost(event -> {});
        client.events();
        client.onEvent(event -> {});
        client.lock(name).tryAcquire();
        // A thread gives itself its name once it runs.
        Eventually.holds(LIMIT, () -> keepers() == 1);
    }

    /** The native threads that renew leases. */
    private static int keepers() throws IOException {
        int count = 0;
        try (var tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path task : tasks) {
                try {
                    count += Files.readString(task.resolve("comm")).equals("leasehold\n") ? 1 : 0;
                } catch (IOException e) {
                    continue; // it has ended meanwhile
                }
            }
        }
        return count;
    }

    @Test
    void closingFreesWhatTheClientHad() throws Exception {
        collect(() -> assertEquals(0, Native.handleCount()));
        var client = LeaseholdClient.connect(redis.url());
        var lock = client.lock(name);
        var events = client.events();
        Lease lease = lock.acquire();
        assertFalse(lock.ttl(ofSeconds(1)).inspect().ttl().isZero());
        lease.close();
        events.close();
        client.close();
        assertEquals(0, Native.handleCount());
        assertEquals("NamedLock(" + name + ")", lock.toString());
    }
}
