package dev.leasehold;

import static java.time.Duration.ofDays;
import static java.time.Duration.ofMillis;
import static java.time.Duration.ofMinutes;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** A store for tests: each control, with the client that it happens to and another one. */
class MemoryStoreTest {
    private final MemoryStore store = MemoryStore.create();
    private final LeaseholdClient client = store.connect();
    private final LeaseholdClient other = store.connect();

    @AfterEach
    void close() {
        store.close();
    }

    private LeaseholdClient hasty() {
        return LeaseholdClient.connect(store.url() + "?io_timeout=60ms");
    }

    private static boolean isFree(LeaseholdClient client, String name) {
        try (Lease lease = client.lock(name).tryAcquire()) {
            return lease != null;
        }
    }

    private static Lease held(LeaseholdClient client, String name) {
        Lease lease = client.lock(name).tryAcquire();
        assertNotNull(lease);
        return lease;
    }

    private static Status failure(Runnable call) {
        return assertThrows(LeaseholdException.class, call::run).status();
    }

    @Test
    void eachIsAStoreOfItsOwnAndItsClientsExcludeEachOther() {
        try (var apart = MemoryStore.create(); var lease = held(client, "a")) {
            assertTrue(lease.isValid());
            assertFalse(isFree(other, "a"));
            assertTrue(isFree(apart.connect(), "a"));
            assertNotEquals(apart.url(), store.url());
        }
        assertTrue(isFree(other, "a"));
    }

    @Test
    void clientsOfSeveralThreadsAreNeverInsideAtOnce() throws Exception {
        var inside = new AtomicInteger();
        var most = new AtomicInteger();
        var turns = new AtomicInteger();
        var threads = new ArrayList<CompletableFuture<Void>>();
        for (int i = 0; i < 4; i++) {
            threads.add(CompletableFuture.runAsync(() -> {
                try (var own = LeaseholdClient.connect(store.url() + "?io_timeout=20s")) {
                    for (int turn = 0; turn < 50; turn++) {
                        try (var lease = own.lock("shared").acquire()) {
                            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                            turns.incrementAndGet();
                            inside.decrementAndGet();
                        } catch (InterruptedException e) {
                            throw new AssertionError(e);
                        }
                    }
                }
            }, work -> new Thread(work).start()));
        }
        for (var thread : threads) {
            thread.get(60, TimeUnit.SECONDS);
        }
        assertEquals(1, most.get());
        assertEquals(200, turns.get());
    }

    @Test
    void oneThatHasANameIsTheStoreOfThisUrl() {
        try (var named = MemoryStore.named("50 %?"); var again = LeaseholdClient.connect("memory:50%20%25%3F")) {
            assertEquals("memory:50%20%25%3F", named.url());
            named.busy("a");
            assertFalse(isFree(again, "a"));
            try (var same = MemoryStore.named("50 %?")) {
                assertEquals(List.of("a"), same.held());
            }
        }
    }

    @Test
    void aLostLeaseIsToldAtOnceAndTheLockIsAnothers() throws Exception {
        var told = new CompletableFuture<LeaseEvent>();
        Lease lease = held(client, "a");
        Lease kept = held(client, "b");
        lease.onLost(told::complete);
        store.lose("a");
        assertFalse(lease.isValid());
        assertTrue(kept.isValid());
        assertEquals(LeaseEvent.Reason.NOT_HELD, told.get(20, TimeUnit.SECONDS).reason());
        Lease next = held(other, "a");
        assertTrue(next.fence() > lease.fence());
        assertThrows(LeaseLostException.class, lease::release);
        assertTrue(next.isValid());
    }

    @Test
    void aBusyLockIsHeldUntilItsEnd() throws Exception {
        store.busy("for long"); // it needs no variable
        CompletableFuture<Lease> waiting;
        try (var busy = store.busy("a")) {
            assertNotNull(busy);
            assertFalse(isFree(client, "a"));
            store.advance(ofDays(1000));
            assertFalse(isFree(other, "a"));
            assertThrows(LeaseTimeoutException.class, () -> client.lock("a").acquireWithin(ofMillis(20)));
            waiting = client.lock("a").acquireAsync();
        }
        waiting.get(20, TimeUnit.SECONDS).release();
        assertEquals(List.of("for long"), store.held());
    }

    @Test
    void oneRequestFails() throws Exception {
        store.failNext(Status.PERMISSION);
        store.failNext(Status.AUTH);
        assertEquals(Status.PERMISSION, failure(() -> client.lock("a").tryAcquire()));
        assertEquals(Status.AUTH, failure(client::ping));
        store.failNext(Status.UNAVAILABLE);
        client.lock("a").acquire().release(); // it was tried again
    }

    private static final EnumSet<Status> OF_CLIENTS = EnumSet.range(Status.BUSY, Status.LOST);

    static {
        OF_CLIENTS.addAll(EnumSet.range(Status.BAD_ARGUMENT, Status.WOULD_DEADLOCK));
        OF_CLIENTS.add(Status.OTHER);
    }

    @ParameterizedTest
    @EnumSource(Status.class)
    void allRequestsFailUntilTheEndWithWhatAStoreGives(Status status) throws Exception {
        if (OF_CLIENTS.contains(status)) {
            assertEquals(Status.BAD_ARGUMENT, failure(() -> store.failing(status)));
            assertEquals(Status.BAD_ARGUMENT, failure(() -> store.failNext(status)));
            client.ping();
            return;
        }
        try (var hasty = hasty()) {
            try (var failing = store.failing(status)) {
                assertNotNull(failing);
                assertEquals(status, failure(() -> hasty.lock("a").tryAcquire()));
            }
            client.lock("a").acquireWithin(ofSeconds(20)).release();
        }
    }

    @Test
    void aPausedStoreAnswersNobodyUntilItIsResumedOrClosed() {
        try (var hasty = hasty()) {
            store.pause();
            assertEquals(Status.NO_ANSWER, failure(hasty::ping));
            store.resume();
            hasty.ping();
            store.pause();
            store.close();
            hasty.ping();
        }
    }

    @Test
    void leasesEndAsTheClockOfTheStoreGoesOn() {
        Lease brief = client.lock("short").ttl(ofSeconds(60)).tryAcquire();
        Lease lasting = client.lock("long").ttl(ofMinutes(60)).tryAcquire();
        assertEquals(List.of("long", "short"), store.held());
        store.advance(ofMinutes(30));
        assertFalse(brief.isValid());
        assertTrue(lasting.isValid());
        assertEquals(List.of("long"), store.held());
    }

    @Test
    void closingEndsWhatTheTestHadBegun() {
        try (var stays = LeaseholdClient.connect(store.url())) {
            store.busy("a");
            var failing = store.failing(Status.AUTH);
            store.close();
            store.close();
            assertTrue(isFree(stays, "a"));
            failing.close();
            assertEquals(Status.CLOSED, failure(client::ping));
            assertEquals(Status.CLOSED, failure(store::held));
        }
    }

    @Test
    void aMistakenControlSaysWhatIsHeld() {
        store.busy("orders:24");
        String ends = "; locks held in " + store.url() + ": 'orders:24'";
        var lose = assertThrows(LeaseholdException.class, () -> store.lose("orders:42"));
        assertEquals(Status.BAD_ARGUMENT, lose.status());
        assertTrue(lose.getMessage().endsWith("lose('orders:42'): no client holds this lock" + ends));
        assertEquals(Status.BAD_ARGUMENT, failure(() -> store.busy("orders:24")));
        assertEquals(Status.BAD_ARGUMENT, failure(() -> store.advance(ofMillis(-1))));
        assertEquals("no client holds 'orders:42'" + ends, said(() -> store.assertHeld("orders:42")));
        assertEquals("'orders:24' is held" + ends, said(() -> store.assertFree("orders:24")));
        assertEquals("not every lock was released" + ends, said(store::assertNothingHeld));
        store.assertHeld("orders:24");
        store.assertFree("orders:42");
        assertThrows(NullPointerException.class, () -> store.lose(null));
    }

    private static String said(Runnable assertion) {
        return assertThrows(AssertionError.class, assertion::run).getMessage();
    }
}
