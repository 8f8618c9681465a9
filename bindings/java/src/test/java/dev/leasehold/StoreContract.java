package dev.leasehold;

import static java.time.Duration.ZERO;
import static java.time.Duration.ofDays;
import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What holds on every store. */
abstract class StoreContract {
    private static final Duration LIMIT = ofSeconds(20);

    private final String name = Names.fresh();
    private LeaseholdClient client;
    private LeaseholdClient other;
    private NamedLock lock;

    abstract String url();

    @BeforeEach
    void open() {
        client = LeaseholdClient.connect(url());
        other = LeaseholdClient.connect(url());
        lock = client.lock(name).ttl(ofSeconds(10));
    }

    @AfterEach
    void close() {
        client.close();
        other.close();
    }

    private static Status statusOf(org.junit.jupiter.api.function.Executable call) {
        return assertThrows(LeaseholdException.class, call).status();
    }

    // ---- taking ----------------------------------------------------------------------------------

    @Test
    void aLeaseExcludesOthersUntilItIsReleased() throws Exception {
        long before;
        try (Lease lease = lock.acquire()) {
            before = lease.fence();
            assertTrue(before > 0);
            assertTrue(lease.isValid());
            assertTrue(lease.remaining().compareTo(ofSeconds(5)) > 0);
            assertTrue(lease.remaining().compareTo(ofSeconds(10)) <= 0);
            assertNull(other.lock(name).tryAcquire());
        }
        try (Lease lease = other.lock(name).tryAcquire()) {
            assertTrue(lease.fence() > before);
        }
    }

    @Test
    void aWaitThatRunsOutIsATimeout() throws Exception {
        try (Lease lease = lock.acquire()) {
            assertTrue(lease.isValid());
            long start = System.nanoTime();
            var timeout = assertThrows(
                    LeaseTimeoutException.class,
                    () -> other.lock(name).waitAtMost(ofMillis(200)).acquire());
            assertEquals(Status.TIMEOUT, timeout.status());
            assertTrue(System.nanoTime() - start >= ofMillis(200).toNanos());
            assertThrows(LeaseTimeoutException.class, () -> other.lock(name).acquireWithin(ofMillis(50)));
            assertThrows(LeaseTimeoutException.class, () -> other.lock(name).acquireWithin(ZERO));
            assertThrows(
                    LeaseTimeoutException.class,
                    () -> other.lock(name).waitForever().attempts(2).waitMode(WaitMode.SPIN).acquire());
        }
    }

    @Test
    void aFailureOfOneLockNamesIt() throws Exception {
        NamedLock odd = other.lock(name + "\u001b[2J");
        String named = "'" + name + "\\u{1b}[2J'";
        Lease lease = odd.acquire();
        var timeout = assertThrows(LeaseTimeoutException.class, () -> odd.acquireWithin(ZERO));
        assertTrue(timeout.getMessage().contains(named), timeout.getMessage());
        Lease attached = odd.attach(lease.token(), lease.fence());
        lease.release();
        for (Lease lost : new Lease[] {attached, lease}) {
            String said = assertThrows(LeaseLostException.class, lost::release).getMessage();
            assertTrue(said.contains(named), said);
        }
    }

    @Test
    void aWaiterGetsTheLockWhenItIsReleased() throws Exception {
        for (WaitMode mode : WaitMode.values()) {
            Lease first = lock.acquire();
            long busy = other.counters().busy();
            var waiter = CompletableFuture.supplyAsync(() -> {
                try (Lease second = other.lock(name).waitMode(mode).acquire()) {
                    return second.fence();
                } catch (Exception e) {
                    throw new AssertionError(e);
                }
            });
            Eventually.holds(LIMIT, () -> other.counters().busy() > busy);
            first.release();
            assertTrue(waiter.get() > first.fence());
        }
    }

    @Test
    void waitingForOneselfWithoutEndIsRefused() throws Exception {
        try (Lease lease = lock.acquire()) {
            assertEquals(Status.WOULD_DEADLOCK, statusOf(() -> lock.waitForever().acquire()));
            assertEquals(Status.WOULD_DEADLOCK, statusOf(() -> lock.asLock().lock()));
            assertTrue(lease.isValid());
        }
    }

    // ---- ending ----------------------------------------------------------------------------------

    @Test
    void aLeaseEndsOnce() throws Exception {
        Lease lease = lock.acquire();
        assertEquals(32, lease.token().length());
        lease.release();
        assertFalse(lease.isValid());
        assertEquals(ZERO, lease.remaining());
        assertTrue(lease.fence() > 0);
        assertThrows(IllegalStateException.class, lease::token);
        var lost = assertThrows(LeaseLostException.class, lease::release);
        assertEquals(Status.LOST, lost.status());
        assertFalse(lost.isRetriable());
        assertThrows(LeaseLostException.class, lease::extend);
        assertThrows(LeaseLostException.class, lease::letExpire);
        assertThrows(LeaseLostException.class, () -> lease.letExpireIn(ofSeconds(1)));
        assertThrows(LeaseLostException.class, lease::detach);
        lease.close();
    }

    @Test
    void aLeaseThatRanOutIsLost() throws Exception {
        NamedLock brief = lock.ttl(ofMillis(150)).renew(false);
        Lease first = brief.acquire();
        Lease second = brief.acquire();
        // Validity ends a little before the store forgets; until then it may still be given back.
        Eventually.holds(LIMIT, () -> !other.lock(name).inspect().isHeld());
        assertFalse(second.isValid());
        assertThrows(LeaseLostException.class, first::release);
        assertThrows(LeaseLostException.class, second::close);
        second.close();

        var thrown = assertThrows(IllegalArgumentException.class, () -> {
            try (Lease third = brief.acquire()) {
                Eventually.holds(LIMIT, () -> !other.lock(name).inspect().isHeld());
                throw new IllegalArgumentException("of the body");
            }
        });
        assertEquals(LeaseLostException.class, thrown.getSuppressed()[0].getClass());
    }

    @Test
    void renewalKeepsALease() throws Exception {
        try (Lease lease = lock.ttl(ofMillis(3000)).acquire()) {
            Eventually.holds(LIMIT, () -> client.counters().renewed() >= 1);
            assertTrue(lease.isValid());
        }
    }

    @Test
    void extendingMakesALeaseLonger() throws Exception {
        try (Lease lease = lock.acquire()) {
            lease.extend();
            lease.extend(ofSeconds(60));
            assertTrue(lease.remaining().compareTo(ofSeconds(40)) > 0);
            assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lease.extend(ofDays(400))));
            assertTrue(lease.isValid());
        }
    }

    @Test
    void aLeaseCanBeLeftToExpire() throws Exception {
        lock.acquire().letExpire();
        assertTrue(lock.inspect().isHeld());

        String another = Names.fresh();
        Lease lease = client.lock(another).acquire();
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lease.letExpireIn(ofDays(400))));
        assertTrue(lease.isValid());
        lease.letExpireIn(ofMillis(2000));
        assertFalse(lease.isValid());
        assertTrue(client.lock(another).inspect().isHeld());
        client.lock(another).acquire().close();
    }

    @Test
    void aLeaseCanBeHandedToAnotherProcess() throws Exception {
        Lease lease = lock.acquire();
        Handover handover = lease.detach();
        assertFalse(lease.isValid());
        assertFalse(handover.toString().contains(handover.token()));
        try (Lease there = other.lock(name).attach(handover.token(), handover.fence())) {
            assertFalse(there.isValid());
            there.extend();
            assertTrue(there.isValid());
            assertEquals(handover.fence(), there.fence());
            assertNotEquals(handover.token(), there.token());
        }
        assertFalse(lock.inspect().isHeld());
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.attach("xyz", 1)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.attach(handover.token(), -1)));
    }

    // ---- looking ---------------------------------------------------------------------------------

    @Test
    void aLockCanBeLookedAt() throws Exception {
        assertEquals(
                new LockState(false, "", ZERO, 0, 0, "", null, null, List.of(), 0), lock.inspect());
        try (Lease lease = lock.acquire()) {
            LockState view = other.lock(name).inspect();
            assertTrue(view.isHeld());
            assertTrue(lease.token().startsWith(view.tokenPrefix()));
            assertFalse(view.tokenPrefix().isEmpty());
            assertTrue(view.ttl().compareTo(ofSeconds(5)) > 0);
            assertEquals(lease.fence(), view.fence());
            assertSame(lock, lease.lock());
            assertFalse(lease.toString().contains(lease.token()));
        }
        assertTrue(lock.inspect().lastFence() > 0);
    }

    @Test
    void aHolderSaysWhoItIs() throws Exception {
        try (LeaseholdClient known = LeaseholdClient.configure(url()).label("billing").connect();
                Lease lease = known.lock(name).acquire()) {
            Eventually.holds(LIMIT, () -> lock.inspect().client() != null);
            LockState view = lock.inspect();
            ClientInfo info = view.client();
            assertEquals("java", info.language());
            assertEquals("billing", info.label());
            assertEquals(ProcessHandle.current().pid(), info.pid());
            assertTrue(lease.token().startsWith(info.id()));
            assertFalse(info.program().isEmpty() || info.host().isEmpty());
            assertTrue(view.who().contains("(java " + info.program() + ", pid " + info.pid()), view.who());
            NamedLock brief = lock.waitAtMost(ofMillis(500));
            Eventually.holds(LIMIT, () -> assertThrows(LeaseTimeoutException.class, brief::acquire)
                    .getMessage().contains("label billing"));
        }
        assertEquals(
                Status.BAD_ARGUMENT,
                statusOf(() -> LeaseholdClient.configure(url()).label("x".repeat(101))));
    }

    @Test
    void theFenceOfAFreeLockBreaksNothing() throws Exception {
        long free = lock.inspect().fence();
        try (var lease = lock.acquire()) {
            for (long fence : new long[] {free, -1}) {
                assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.breakHeld("an operator", fence)));
            }
            assertEquals(OptionalLong.empty(), lock.breakHeld("an operator", lease.fence() + 1));
            assertTrue(lease.isValid());
        }
    }

    @Test
    void whatHappensIsCounted() throws Exception {
        try (Lease lease = lock.acquire()) {
            assertTrue(lease.isValid());
            assertNull(lock.tryAcquire());
            assertThrows(LeaseTimeoutException.class, () -> lock.acquireWithin(ofMillis(10)));
        }
        Counters counters = client.counters();
        assertEquals(1, counters.granted());
        assertEquals(1, counters.timedOut());
        assertTrue(counters.busy() >= 2);
        assertTrue(counters.attempts() >= 3);
        assertEquals(0, counters.unknown() + counters.lost() + counters.releasedLate());
        client.ping();
        assertTrue(client.store().startsWith(url()), client.store());
    }

    @Test
    void metricsTellGroupsOfNamesApart() throws Exception {
        var builder = LeaseholdClient.configure(url()).metricsGroup(name + "*");
        assertThrows(LeaseholdException.class, () -> LeaseholdClient.configure(url()).metricsGroup("*"));
        var client = builder.connect();
        try (client) {
            client.lock(name + "1").acquire().release();
            try (Lease lease = client.lock("another " + name).acquire()) {
                String text = client.metricsText();
                assertTrue(text.contains("\nleasehold_hold_seconds_count{lock=\"" + name + "*\"} 1\n"), text);
                assertTrue(text.contains("\nleasehold_held{lock=\"*\"} 1\n") && lease.isValid(), text);
            }
        }
        assertTrue(client.metricsText().contains("\nleasehold_held{lock=\"*\"} 0\n"));
    }

    // ---- names and options -----------------------------------------------------------------------

    @Test
    void namesAreAnyBytes() throws Exception {
        byte[] binary = {0, -1, 'a', '\r', '\n', (byte) 0xc3, 0};
        String text = name + "\0ü\uD83D\uDE00";
        try (Lease first = client.lock(binary).acquire();
                Lease second = client.lock(text).acquire()) {
            assertTrue(first.isValid() && second.isValid());
            assertNull(other.lock(binary.clone()).tryAcquire());
            assertNull(other.lock(text).tryAcquire());
            assertNull(other.lock(text.getBytes(java.nio.charset.StandardCharsets.UTF_8)).tryAcquire());
            assertArrayEquals(binary, first.lock().nameBytes());
            assertEquals(text, second.lock().name());
        }
    }

    @Test
    void aNameIsTheCallersToChange() throws Exception {
        byte[] mine = name.getBytes();
        NamedLock taken = client.lock(mine);
        mine[0] = 'X';
        assertEquals(name, taken.name());
        taken.nameBytes()[0] = 'X';
        assertEquals(name, taken.name());
    }

    @Test
    void badNamesAreRefused() {
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> client.lock("")));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> client.lock(new byte[65537])));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> client.lock("half \uD83D of a pair")));
        assertThrows(NullPointerException.class, () -> client.lock((String) null));
    }

    @Test
    void badOptionsAreRefused() {
        Duration negative = ofMillis(-1);
        NamedLock spin = lock.waitMode(WaitMode.SPIN);
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.ttl(negative)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.waitAtMost(negative)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.ioTimeout(negative)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.ioTimeout(ZERO)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.maxHold(negative)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.attempts(-1)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> spin.attempts(0)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.attempts(2).acquire()));
        assertEquals(
                Status.BAD_ARGUMENT,
                statusOf(() -> lock.backoff(new Backoff(ofMillis(1), null)).tryAcquire()));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.ttl(ZERO)));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.ttl(ofDays(400))));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> lock.ttl(ofMillis(50)).renew(true).tryAcquire()));
        assertEquals(
                Status.BAD_ARGUMENT, statusOf(() -> spin.backoff(new Backoff(ZERO, null))));
        assertEquals(Status.BAD_ARGUMENT, statusOf(() -> new Backoff(negative, null)));
        assertThrows(NullPointerException.class, () -> lock.ttl(null));
        assertThrows(NullPointerException.class, () -> lock.waitMode(null));
    }

    @Test
    void optionsAreTakenAsTheyAre() throws Exception {
        NamedLock all = lock.ttl(ofSeconds(7))
                .waitAtMost(ofSeconds(2))
                .ioTimeout(ofSeconds(2))
                .attempts(3)
                .renew(true)
                .noMaxHold()
                .maxHold(ofSeconds(5))
                .waitMode(WaitMode.SPIN)
                .backoff(new Backoff(ofMillis(2), ofMillis(20)));
        try (Lease lease = all.acquire()) {
            // max_hold is the shorter one.
            assertTrue(lease.remaining().compareTo(ofSeconds(5)) <= 0, lease.remaining().toString());
            assertThrows(LeaseTimeoutException.class, all::acquire);
            assertTrue(client.counters().attempts() <= 4);
        }
        // Other locks of that name are not concerned.
        try (Lease lease = lock.ttl(ofSeconds(20)).ttl(ofSeconds(10)).acquire()) {
            assertTrue(lease.remaining().compareTo(ofSeconds(5)) > 0);
        }
    }

    // ---- closing ---------------------------------------------------------------------------------

    @Test
    void closingReleasesAndEndsEverything() throws Exception {
        Lease lease = lock.acquire();
        NamedLock unused = client.lock(Names.fresh());
        LeaseEvents events = client.events();
        client.close();
        client.close();
        assertFalse(lease.isValid());
        assertFalse(other.lock(name).inspect().isHeld());
        assertEquals(Status.CLOSED, statusOf(() -> lock.tryAcquire()));
        assertEquals(Status.CLOSED, statusOf(() -> lock.acquire()));
        assertEquals(Status.CLOSED, statusOf(() -> unused.tryAcquire()));
        assertEquals(Status.CLOSED, statusOf(() -> lock.inspect()));
        assertEquals(Status.CLOSED, statusOf(client::ping));
        assertEquals(Status.CLOSED, statusOf(client::events));
        assertEquals(Status.CLOSED, statusOf(events::tryNext));
        assertEquals(Status.CLOSED, statusOf(lease::extend));
        assertEquals(1, client.counters().granted());
        assertNotNull(client.store());
        events.close();
        // The holder learns that it did not hold it to the end.
        assertThrows(LeaseLostException.class, lease::close);
    }

    @Test
    void closingEndsWaits() throws Exception {
        try (Lease lease = lock.acquire()) {
            assertTrue(lease.isValid());
            var waiter = CompletableFuture.supplyAsync(
                    () -> statusOf(() -> other.lock(name).waitForever().acquire()));
            Eventually.holds(LIMIT, () -> other.counters().busy() > 0);
            other.close();
            assertEquals(Status.CLOSED, waiter.get());
        }
    }

    @Test
    void closingInNoTimeAsksNobody() throws Exception {
        assertNotNull(lock.acquire());
        client.closeWithin(ZERO);
        assertTrue(other.lock(name).inspect().isHeld());
    }
}
