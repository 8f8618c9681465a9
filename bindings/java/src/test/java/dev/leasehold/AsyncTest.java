package dev.leasehold;

import static java.time.Duration.ZERO;
import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Waiting without a thread for each wait. */
class AsyncTest {
    private static final Duration LIMIT = ofSeconds(20);
    /** The threads of a client that ask for its waits: its connections, and two more. */
    private static final int CREW = 8 + 2;

    private final RedisServer redis = RedisServer.shared();
    private final String name = Names.fresh();
    private LeaseholdClient client;
    private LeaseholdClient holder;

    @BeforeEach
    void open() {
        client = LeaseholdClient.connect(redis.url());
        holder = LeaseholdClient.connect(redis.url());
    }

    @AfterEach
    void close() {
        client.close();
        holder.close();
    }

    private static Lease get(CompletableFuture<Lease> future) throws Exception {
        return future.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    }

    private static Throwable failureOf(CompletableFuture<Lease> future) {
        return assertThrows(ExecutionException.class, () -> get(future)).getCause();
    }

    private static long threads() throws Exception {
        try (var tasks = Files.list(Path.of("/proc/self/task"))) {
            return tasks.count();
        }
    }

    private static long javaThreads() {
        return Thread.getAllStackTraces().size();
    }

    @Test
    void hundredsOfWaitsShareOneThread() throws Exception {
        var held = new ArrayList<Lease>();
        for (int i = 0; i < 600; i++) {
            held.add(holder.lock(name + ":" + i).acquire());
        }
        Lease one = holder.lock(name).acquire();
        long before = threads();
        long javaBefore = javaThreads();
        var waits = new ArrayList<CompletableFuture<Lease>>();
        for (int i = 0; i < 600; i++) {
            waits.add(client.lock(name + ":" + i).acquireAsync());
        }
        var ofOneName = new ArrayList<CompletableFuture<Lease>>();
        var inOrder = new ArrayList<Integer>();
        for (int i = 0; i < 200; i++) {
            int turn = i;
            ofOneName.add(client.lock(name).acquireAsync());
            ofOneName.get(i).thenAccept(lease -> {
                inOrder.add(turn);
                lease.close();
            });
        }
        Eventually.holds(LIMIT, () -> client.counters().attempts() > 600);
        assertEquals(javaBefore + 1, javaThreads());
        assertTrue(threads() <= before + 1 + CREW, threads() + " threads after " + before);

        one.close();
        for (var wait : ofOneName) {
            get(wait);
        }
        assertEquals(200, inOrder.size());
        for (int i = 0; i < 200; i++) {
            assertEquals(i, inOrder.get(i));
        }
        for (int i = 0; i < 600; i++) {
            assertFalse(waits.get(i).isDone());
            held.get(i).close();
            try (Lease lease = get(waits.get(i))) {
                assertTrue(lease.isValid() && lease.fence() > held.get(i).fence());
            }
        }
        assertEquals(javaBefore + 1, javaThreads());
    }

    @Test
    void aWaitThatIsCancelledLeavesNoLockBehind() throws Exception {
        for (int i = 0; i < 50; i++) {
            Lease held = holder.lock(name).acquire();
            var wait = client.lock(name).acquireAsync(ofSeconds(600));
            if (i % 2 == 0) {
                Thread.sleep(i / 10);
            } else {
                held.close(); // perhaps it gets the lock first
            }
            assertTrue(wait.cancel(true) || wait.isDone());
            if (!wait.isCancelled()) {
                get(wait).close();
            } else {
                assertThrows(CancellationException.class, wait::join);
            }
            held.close();
            try (Lease next = holder.lock(name).acquireWithin(LIMIT)) {
                assertTrue(next.isValid());
            }
        }
        // The program's own end of a future counts as well.
        try (Lease held = holder.lock(name).acquire()) {
            var wait = client.lock(name).acquireAsync().orTimeout(20, TimeUnit.MILLISECONDS);
            assertInstanceOf(java.util.concurrent.TimeoutException.class, failureOf(wait));
            assertTrue(held.isValid());
        }
        Eventually.holds(LIMIT, () -> !holder.lock(name).inspect().isHeld());
    }

    @Test
    void aFailureIsTheFutures() throws Exception {
        try (Lease held = holder.lock(name).acquire()) {
            var timeout = assertInstanceOf(
                    LeaseTimeoutException.class, failureOf(client.lock(name).acquireAsync(ofMillis(50))));
            assertTrue(timeout.getMessage().contains(name), timeout.getMessage());
            assertInstanceOf(LeaseTimeoutException.class, failureOf(client.lock(name).acquireAsync(ZERO)));
            assertTrue(held.isValid());
        }
        NamedLock impossible = client.lock(name).ttl(ofMillis(50)).renew(true);
        var refused = assertInstanceOf(LeaseholdException.class, failureOf(impossible.acquireAsync()));
        assertEquals(Status.BAD_ARGUMENT, refused.status());
        assertThrows(LeaseholdException.class, () -> client.lock(name).acquireAsync(ofMillis(-1)));
    }

    @Test
    void closingCompletesTheRest() throws Exception {
        long before = threads();
        var waits = new ArrayList<CompletableFuture<Lease>>();
        try (Lease held = holder.lock(name).acquire()) {
            for (int i = 0; i < 100; i++) {
                waits.add(client.lock(name).acquireAsync());
            }
            Eventually.holds(LIMIT, () -> client.counters().busy() > 0);
            NamedLock lock = client.lock(name);
            client.close();
            waits.add(lock.acquireAsync());
            for (var wait : waits) {
                var closed = assertInstanceOf(LeaseholdException.class, failureOf(wait));
                assertEquals(Status.CLOSED, closed.status());
            }
            assertTrue(held.isValid());
        }
        Eventually.holds(LIMIT, () -> threads() <= before);
    }

    @Test
    void anExecutorCompletes() throws Exception {
        var executor = Executors.newSingleThreadExecutor(work -> new Thread(work, "the program's own"));
        var by = new CompletableFuture<String>();
        try (Lease held = holder.lock(name).acquire()) {
            var wait = client.lock(name).acquireAsync(LIMIT, executor);
            wait.thenAccept(lease -> {
                lease.close();
                by.complete(Thread.currentThread().getName());
            });
            held.close();
            assertEquals("the program's own", by.get(LIMIT.toSeconds(), TimeUnit.SECONDS));
        }
        executor.shutdown();
        assertInstanceOf(
                RejectedExecutionException.class,
                failureOf(client.lock(name).acquireAsync(LIMIT, executor)));
        Eventually.holds(LIMIT, () -> !holder.lock(name).inspect().isHeld());
    }

    @Test
    void aFreeLockComesAtOnce() throws Exception {
        for (String url : List.of(redis.url(), "sqlite:" + Files.createTempDirectory("async") + "/locks.db")) {
            try (var other = LeaseholdClient.connect(url)) {
                NamedLock lock = other.lock(name);
                try (Lease lease = get(lock.acquireAsync())) {
                    assertTrue(lease.isValid());
                    assertNull(lock.tryAcquire());
                }
            }
        }
    }
}
