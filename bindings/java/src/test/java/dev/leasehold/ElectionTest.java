package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** One of many leads, and its work is told when that is over. */
class ElectionTest {
    private static final Duration LIMIT = ofSeconds(60);

    private final RedisServer redis = RedisServer.shared();
    private final String name = Names.fresh();
    private LeaseholdClient client;

    @BeforeEach
    void open() {
        client = LeaseholdClient.connect(redis.url() + "?io_timeout=20s");
    }

    @AfterEach
    void close() {
        client.close();
    }

    /** A node that runs an election on a thread of its own, with work that waits until it is told. */
    private static final class Node implements AutoCloseable {
        final Election election;
        final BlockingQueue<Long> led = new LinkedBlockingQueue<>();
        final BlockingQueue<String> stopped = new LinkedBlockingQueue<>();
        final AtomicReference<Throwable> thrown = new AtomicReference<>();
        private final Thread thread;

        Node(Election election) {
            this.election = election;
            thread = new Thread(this::run);
            thread.start();
        }

        private void run() {
            try {
                election.runAsLeader(term -> {
                    led.add(term.fence());
                    try {
                        Thread.sleep(LIMIT.toMillis());
                    } catch (InterruptedException e) {
                        stopped.add(term.end() + "");
                        throw e;
                    }
                });
                assertFalse(Thread.currentThread().isInterrupted(), "the interrupt is left");
            } catch (Throwable e) {
                thrown.set(e);
            }
        }

        long nextFence() throws InterruptedException {
            Long fence = led.poll(LIMIT.toSeconds(), TimeUnit.SECONDS);
            assertTrue(fence != null, "it was not elected");
            return fence;
        }

        String nextEnd() throws InterruptedException {
            return stopped.poll(LIMIT.toSeconds(), TimeUnit.SECONDS);
        }

        void join() throws InterruptedException {
            thread.join(LIMIT.toMillis());
            assertFalse(thread.isAlive(), "it still runs");
        }

        @Override
        public void close() throws InterruptedException {
            election.stop();
            join();
            assertNull(thrown.get(), () -> thrown.get().toString());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"redis", "postgres", "etcd"})
    void anotherOneLeadsWhenTheLeaderResigns(String store) throws Exception {
        try (var kit = store.equals("redis") ? null : new Kit(store);
                var here = LeaseholdClient.connect((kit == null ? redis.url() : kit.url()) + "?io_timeout=20s");
                var there = LeaseholdClient.connect((kit == null ? redis.url() : kit.url()) + "?io_timeout=20s")) {
            if (store.equals("postgres")) {
                here.initialize(false);
            }
            try (var first = new Node(here.election(name))) {
                long fence = first.nextFence();
                assertTrue(first.election.isLeader());
                assertEquals(OptionalLong.of(fence), first.election.fence());
                try (var second = new Node(there.election(name))) {
                    Eventually.holds(LIMIT, () -> second.election.state() == Election.State.STANDBY);
                    LockState leader = second.election.leader();
                    assertTrue(leader.isHeld());
                    assertEquals(fence, leader.fence());
                    assertTrue(second.election.isHealthy());
                    assertEquals(OptionalLong.empty(), second.election.fence());
                    first.election.resign();
                    assertEquals("RESIGNED", first.nextEnd());
                    long next = second.nextFence();
                    assertTrue(next > fence, next + " after " + fence);
                    // It stands again once it has rested, and is elected once more.
                    Eventually.holds(LIMIT, () -> here.lock(name).inspect().waiters().size() == 1);
                    second.election.resign();
                    assertTrue(first.nextFence() > next);
                }
            }
        }
    }

    @Test
    void aLossInterruptsTheWorkAndIsTold() throws Exception {
        var changes = new CopyOnWriteArrayList<Leadership>();
        try (var node = new Node(client.election(name).ttl(ofSeconds(3)).onChange(changes::add))) {
            long fence = node.nextFence();
            client.lock(name).breakHeld("an operator");
            node.nextEnd();
            long next = node.nextFence();
            assertTrue(next > fence);
            assertEquals(
                    List.of(
                            new Leadership(fence, null, LeaseEvent.Reason.NONE),
                            new Leadership(fence, Term.End.LOST, LeaseEvent.Reason.BROKEN),
                            new Leadership(next, null, LeaseEvent.Reason.NONE)),
                    changes);
            assertTrue(changes.get(0).isElected());
            assertFalse(changes.get(1).isElected());
        }
        assertEquals(new Leadership(changes.get(2).fence(), Term.End.RESIGNED, LeaseEvent.Reason.NONE), changes.get(3));
        assertFalse(client.lock(name).inspect().isHeld());
    }

    /** What a listener throws ends nothing. */
    @Test
    void aListenerMayThrow() throws Exception {
        var told = new AtomicInteger();
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, e) -> told.incrementAndGet());
        try {
            client.election(name).onChange(change -> {
                throw new IllegalStateException("on purpose");
            }).runAsLeader(term -> { });
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        assertEquals(2, told.get());
    }

    @Test
    void workThatReturnsEndsItUnlessItStandsAgain() throws Exception {
        var runs = new AtomicInteger();
        client.election(name).runAsLeader(term -> runs.incrementAndGet());
        assertEquals(1, runs.get());
        assertFalse(client.lock(name).inspect().isHeld());
        Election again = client.election(name).standAgain(true);
        again.runAsLeader(term -> {
            if (runs.incrementAndGet() == 3) {
                again.stop();
            }
        });
        assertEquals(3, runs.get());
        assertEquals(Election.State.IDLE, again.state());
        again.runAsLeader(term -> runs.incrementAndGet());
        assertEquals(3, runs.get(), "a stopped one stood");
    }

    @Test
    void whatTheWorkThrowsIsThrown() throws Exception {
        Election election = client.election(name);
        var checked = new IOException("on purpose");
        Election.Work<IOException> fails = term -> {
            throw checked;
        };
        assertSame(checked, assertThrows(IOException.class, () -> election.runAsLeader(fails)));
        assertFalse(client.lock(name).inspect().isHeld());
        // So is what it throws because it was interrupted, if it makes another exception of that.
        Election.Work<RuntimeException> wraps = term -> {
            election.resign();
            try {
                Thread.sleep(LIMIT.toMillis());
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        };
        assertThrows(IllegalStateException.class, () -> election.runAsLeader(wraps));
        assertFalse(Thread.interrupted());
    }

    @Test
    void workThatAsksIsNotInterrupted() throws Exception {
        Election election = client.election(name);
        var saw = new AtomicReference<String>();
        election.runAsLeader(term -> {
            assertFalse(term.endedWithin(ofMillis(1)));
            assertTrue(term.isLeader());
            assertNull(term.end());
            assertTrue(term.remaining().compareTo(Duration.ZERO) > 0);
            election.stop();
            assertTrue(term.endedWithin(LIMIT));
            assertFalse(term.isLeader());
            assertEquals(Term.End.RESIGNED, term.end());
            // It has time to stop in.
            Thread.sleep(100);
            saw.set(term.toString());
        });
        assertEquals(saw.get(), saw.get().replaceAll("^Term\\(" + name + ", fence [0-9]+\\)$", "$0"));
        assertFalse(Thread.interrupted());
    }

    /** The interrupt may come after the work has looked last. */
    @Test
    void anInterruptThatNothingHasNoticedIsTakenBack() throws Exception {
        Election election = client.election(name);
        for (int i = 0; i < 3; i++) {
            var runs = new AtomicInteger();
            election.runAsLeader(term -> {
                if (runs.incrementAndGet() == 1) {
                    election.resign();
                    while (!Thread.currentThread().isInterrupted()) {
                        Thread.onSpinWait();
                    }
                }
            });
            assertEquals(2, runs.get(), "it has not stood again");
            assertFalse(Thread.interrupted());
        }
    }

    @Test
    void aThreadThatOthersInterruptStandsAndLeadsNoLonger() throws Exception {
        Election election = client.election(name);
        assertThrows(InterruptedException.class, () -> election.runAsLeader(term -> {
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> term.endedWithin(LIMIT));
            assertTrue(term.isLeader());
            Thread.currentThread().interrupt();
            Thread.sleep(LIMIT.toMillis());
        }));
        assertFalse(client.lock(name).inspect().isHeld());
        try (Lease held = client.lock(name).acquire();
                var other = LeaseholdClient.connect(redis.url() + "?io_timeout=20s")) {
            Election waits = other.election(name);
            Thread me = Thread.currentThread();
            var interrupter = new Thread(() -> {
                Eventually.holds(LIMIT, () -> waits.state() == Election.State.STANDBY);
                me.interrupt();
            });
            interrupter.start();
            assertThrows(InterruptedException.class, () -> waits.runAsLeader(term -> { }));
            interrupter.join();
            assertTrue(held.isValid());
        }
    }

    /** Two interrupts, one of them by others: the work throws the first, and the second comes in its cleanup. */
    private void othersEndTheElection(Election election, Eventually.Test waits, Eventually.Test cleansUp)
            throws Exception {
        var runs = new AtomicInteger();
        var thrown = new AtomicReference<InterruptedException>();
        Election.Work<Exception> work = term -> {
            if (runs.incrementAndGet() > 1) {
                election.stop(); // the interrupt was lost
                return;
            }
            try {
                waits.run();
            } catch (InterruptedException e) {
                thrown.set(e);
                cleansUp.run();
                throw e;
            }
        };
        var e = assertThrows(InterruptedException.class, () -> election.runAsLeader(work));
        assertSame(thrown.get(), e);
        assertFalse(Thread.interrupted(), "one interrupt is told twice");
        assertFalse(client.lock(name).inspect().isHeld());
    }

    @Test
    void othersInterruptTheCleanupAfterTheTermHasInterruptedTheWork() throws Exception {
        Election election = client.election(name);
        othersEndTheElection(
                election,
                () -> {
                    election.resign();
                    Thread.sleep(LIMIT.toMillis());
                },
                () -> Thread.currentThread().interrupt());
    }

    @Test
    void theTermInterruptsTheCleanupAfterOthersHaveInterruptedTheWork() throws Exception {
        Election election = client.election(name);
        othersEndTheElection(
                election,
                () -> {
                    Thread.currentThread().interrupt();
                    Thread.sleep(LIMIT.toMillis());
                },
                () -> {
                    election.resign();
                    while (!Thread.currentThread().isInterrupted()) {
                        Thread.onSpinWait();
                    }
                });
    }

    /** So it is where no thread can be started to tell of the end. */
    @Test
    void aTermThatCannotBeginEndsAndIsToldSo() throws Exception {
        var changes = new CopyOnWriteArrayList<Leadership>();
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, e) -> {
            throw new IllegalStateException("the handler");
        });
        try {
            Election election = client.election(name).onChange(change -> {
                changes.add(change);
                if (change.isElected()) {
                    throw new IllegalStateException("the listener");
                }
            });
            var error = assertThrows(IllegalStateException.class, () -> election.runAsLeader(term -> { }));
            assertEquals("the handler", error.getMessage());
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        assertEquals(2, changes.size(), changes.toString());
        assertEquals(
                new Leadership(changes.get(0).fence(), Term.End.RESIGNED, LeaseEvent.Reason.NONE), changes.get(1));
        assertFalse(client.lock(name).inspect().isHeld());
    }

    @Test
    void oneThatWaitsCanBeStopped() throws Exception {
        try (Lease held = client.lock(name).acquire();
                var other = LeaseholdClient.connect(redis.url() + "?io_timeout=20s");
                var node = new Node(other.election(name))) {
            Eventually.holds(LIMIT, () -> node.election.state() == Election.State.STANDBY);
            node.election.stop();
            node.join();
            assertEquals(0, node.led.size());
            assertTrue(held.isValid());
        }
    }

    @Test
    void itIsUnhealthyWhileTheWorkOutlivesItsLease() throws Exception {
        try (var server = RedisServer.start();
                var own = LeaseholdClient.connect(server.url() + "?io_timeout=200ms&advise=no")) {
            var letGo = new CountDownLatch(1);
            Election election = own.election(name).ttl(ofSeconds(3));
            var failed = new AtomicReference<Throwable>();
            var thread = new Thread(() -> {
                try {
                    election.runAsLeader(term -> {
                        while (letGo.getCount() > 0) { // it hangs
                            try {
                                letGo.await();
                            } catch (InterruptedException e) {
                                continue;
                            }
                        }
                        election.stop();
                    });
                } catch (Throwable e) {
                    failed.set(e);
                }
            });
            thread.start();
            Eventually.holds(LIMIT, election::isLeader);
            assertTrue(election.isHealthy());
            server.stop(true);
            Eventually.holds(LIMIT, () -> !election.isHealthy());
            assertEquals(Election.State.OVERDUE, election.state());
            server.stop(false);
            letGo.countDown();
            thread.join();
            assertNull(failed.get(), () -> failed.get().toString());
            assertTrue(election.isHealthy());
        }
    }

    @Test
    void optionsAreChecked() {
        var error = assertThrows(LeaseholdException.class, () -> client.election(name).ttl(ofMillis(1)));
        assertEquals(Status.BAD_ARGUMENT, error.status());
        assertTrue(error.getMessage().contains("ttl"), error.getMessage());
        assertThrows(LeaseholdException.class, () -> client.election(""));
        assertThrows(NullPointerException.class, () -> client.election(name).runAsLeader(null));
        assertEquals("Election(" + name + ")", client.election(name).grace(ofSeconds(1)).toString());
    }

    @Test
    void aClientThatIsClosedEndsIt() throws Exception {
        var node = new Node(client.election(name));
        node.nextFence();
        client.close();
        node.join();
        assertEquals(Status.CLOSED, ((LeaseholdException) node.thrown.get()).status());
        assertEquals(Election.State.IDLE, node.election.state());
        assertThrows(LeaseholdException.class, node.election::resign);
        assertThrows(LeaseholdException.class, () -> client.election(name));
    }

    @Test
    void nothingIsLeft() throws Exception {
        long before = Native.handleCount();
        client.election(name).runAsLeader(term -> assertTrue(term.isLeader()));
        Eventually.holds(LIMIT, () -> {
            System.gc();
            return Native.handleCount() <= before;
        });
    }
}
