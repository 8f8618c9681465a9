package dev.leasehold;

import static java.time.Duration.ZERO;
import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class EventsTest {
    private static final Duration LIMIT = ofSeconds(20);

    private final RedisServer redis = RedisServer.shared();
    private final LeaseholdClient client = LeaseholdClient.connect(redis.url());
    private final String name = Names.fresh();

    @AfterEach
    void close() {
        client.close();
    }

    /** A lease that runs out, because nobody renews it. */
    private Lease loseSoon() throws Exception {
        return loseSoon(name);
    }

    private Lease loseSoon(String name) throws Exception {
        return client.lock(name).ttl(ofMillis(150)).renew(false).acquire();
    }

    @Test
    void theEndOfALeaseIsTold() throws Exception {
        try (var events = client.events();
                var others = client.events()) {
            assertNull(events.tryNext());
            assertNull(events.nextWithin(ZERO));
            assertNull(events.nextWithin(ofMillis(120)));
            Lease lease = loseSoon();
            LeaseEvent event;
            do {
                event = events.nextWithin(LIMIT);
            } while (event.kind() == LeaseEvent.Kind.AT_RISK);
            assertEquals(LeaseEvent.Kind.LOST, event.kind());
            assertEquals(LeaseEvent.Reason.EXPIRED, event.reason());
            assertEquals(lease.fence(), event.fence());
            assertEquals(name, event.name());
            assertEquals(name, new String(event.nameBytes()));
            assertTrue(event.toString().contains("LOST EXPIRED, " + name), event.toString());
            // Each subscription has every event.
            assertEquals(lease.fence(), others.nextWithin(LIMIT).fence());
            assertEquals(0, events.dropped());
        }
    }

    @Test
    void maxHoldIsAReason() throws Exception {
        try (var events = client.events()) {
            Lease lease = client.lock(name).ttl(ofMillis(3000)).maxHold(ofMillis(3500)).acquire();
            LeaseEvent event;
            do {
                event = events.nextWithin(LIMIT);
            } while (event.kind() == LeaseEvent.Kind.AT_RISK);
            assertEquals(LeaseEvent.Reason.MAX_HOLD, event.reason());
            assertThrows(LeaseLostException.class, lease::close);
        }
    }

    @Test
    void aSubscriptionThatIsClosedEndsItsWaits() throws Exception {
        var events = client.events();
        var waiter = CompletableFuture.supplyAsync(
                () -> assertThrows(LeaseholdException.class, () -> events.nextWithin(ofSeconds(3600))).status());
        events.close();
        events.close();
        assertEquals(Status.CLOSED, waiter.get());
        assertThrows(LeaseholdException.class, events::tryNext);
        assertEquals(0, events.dropped());
    }

    @Test
    void whatCameBeforeTheCloseCanStillBeRead() throws Exception {
        try (var events = client.events()) {
            Lease lease = loseSoon();
            Eventually.holds(LIMIT, () -> client.counters().lost() == 1);
            client.close();
            LeaseEvent event = events.nextWithin(LIMIT);
            assertEquals(lease.fence(), event.fence());
        }
    }

    @Test
    void aListenerIsTold() throws Exception {
        var told = new LinkedBlockingQueue<LeaseEvent>();
        var uncaught = new LinkedBlockingQueue<Throwable>();
        Thread.setDefaultUncaughtExceptionHandler((thread, e) -> uncaught.add(e));
        Consumer<LeaseEvent> fails = event -> {
            throw new IllegalStateException("of the listener");
        };
        try (var failing = client.onEvent(fails);
                var subscription = client.onEvent(told::add)) {
            for (int i = 0; i < 2; i++) {
                Lease lease = loseSoon();
                LeaseEvent event;
                do {
                    event = told.poll(20, TimeUnit.SECONDS);
                } while (event.kind() == LeaseEvent.Kind.AT_RISK);
                assertEquals(lease.fence(), event.fence());
                assertEquals("of the listener", uncaught.poll(20, TimeUnit.SECONDS).getMessage());
            }
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(null);
        }
        Eventually.holds(LIMIT, () -> listeners() == 0);
    }

    @Test
    void aListenerEndsWithItsClient() {
        client.onEvent(event -> {});
        assertEquals(1, listeners());
        client.close();
        Eventually.holds(LIMIT, () -> listeners() == 0);
    }

    @Test
    void aLeaseTellsOfItsOwnLoss() throws Exception {
        var told = new LinkedBlockingQueue<LeaseEvent>();
        var wrong = new LinkedBlockingQueue<LeaseEvent>();
        var uncaught = new LinkedBlockingQueue<Throwable>();
        Lease kept = client.lock(name + ":kept").acquire();
        Lease lost = loseSoon(name + ":lost");
        Lease failing = loseSoon(name + ":failing");
        Lease takenBack = loseSoon(name + ":takenBack");
        Thread.setDefaultUncaughtExceptionHandler((thread, e) -> uncaught.add(e));
        try {
            kept.onLost(wrong::add);
            lost.onLost(wrong::add);
            lost.onLost(told::add);
            takenBack.onLost(wrong::add);
            takenBack.onLost(null);
            failing.onLost(event -> {
                throw new IllegalStateException("of the listener");
            });
            LeaseEvent event = told.poll(20, TimeUnit.SECONDS);
            assertEquals(LeaseEvent.Kind.LOST, event.kind());
            assertEquals(LeaseEvent.Reason.EXPIRED, event.reason());
            assertEquals(lost.fence(), event.fence());
            assertEquals(name + ":lost", event.name());
            assertEquals("of the listener", uncaught.poll(20, TimeUnit.SECONDS).getMessage());
            Eventually.holds(LIMIT, () -> client.counters().lost() == 3);
            // At once, when it was lost before; also to who listens again.
            for (int i = 0; i < 2; i++) {
                failing.onLost(told::add);
                assertEquals(failing.fence(), told.poll(20, TimeUnit.SECONDS).fence());
            }
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(null);
        }
        assertEquals(1, listeners());
        kept.close();
        assertThrows(LeaseLostException.class, () -> kept.onLost(wrong::add));
        kept.onLost(null);
        client.close();
        Eventually.holds(LIMIT, () -> listeners() == 0);
        assertThrows(LeaseholdException.class, () -> lost.onLost(wrong::add));
        assertEquals(0, wrong.size() + told.size());
    }

    @Test
    void noLossFallsBetweenBeingToldAndListening() throws Exception {
        for (int i = 0; i < 30; i++) {
            var told = new LinkedBlockingQueue<LeaseEvent>();
            Lease lease = client.lock(name).ttl(ofMillis(50)).acquire();
            Thread.sleep(Math.max(lease.remaining().toMillis() - 6, 0), i * 30_000);
            lease.onLost(told::add);
            assertEquals(lease.fence(), told.poll(20, TimeUnit.SECONDS).fence());
            assertNull(told.poll());
        }
    }

    @Test
    void aLeaseThatWasEndedTellsNobody() throws Exception {
        var told = new LinkedBlockingQueue<LeaseEvent>();
        var goOn = new CompletableFuture<Void>();
        var heldUp = new CompletableFuture<Void>();
        Lease slow = loseSoon(name + ":slow");
        slow.onLost(event -> {
            heldUp.complete(null);
            goOn.join();
        });
        heldUp.get(20, TimeUnit.SECONDS);
        Lease renewed = client.lock(name).ttl(ofMillis(3000)).acquire();
        Lease released = loseSoon(name + ":released");
        Lease last = loseSoon(name + ":last");
        released.onLost(told::add);
        last.onLost(told::add);
        Eventually.holds(LIMIT, () -> client.counters().lost() == 3 && client.counters().renewed() > 1);
        assertTrue(renewed.isValid());
        assertThrows(LeaseLostException.class, released::release);
        goOn.complete(null);
        assertEquals(last.fence(), told.poll(20, TimeUnit.SECONDS).fence());
        assertNull(told.poll());
    }

    @Test
    void aListenerOfALeaseMayDoAnything() throws Exception {
        var done = new CompletableFuture<Status>();
        Lease lease = loseSoon();
        lease.onLost(event -> {
            try {
                assertThrows(LeaseLostException.class, lease::release);
                try (Lease again = client.lock(name).acquire()) {
                    again.onLost(told -> {});
                }
                client.close();
                done.complete(assertThrows(LeaseholdException.class, client::ping).status());
            } catch (Throwable e) {
                done.completeExceptionally(e);
            }
        });
        assertEquals(Status.CLOSED, done.get(20, TimeUnit.SECONDS));
    }

    private static long listeners() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().equals("leasehold-events"))
                .count();
    }
}
