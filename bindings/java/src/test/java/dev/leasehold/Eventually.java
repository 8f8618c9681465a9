package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertFalse;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;

/** Waiting for conditions, and tests of time on a machine that is busy. */
final class Eventually {
    private Eventually() {}

    interface Test {
        void run() throws Exception;
    }

    /** Polls until the condition holds; fails when it does not within the limit. */
    static void holds(Duration limit, Callable<Boolean> condition) {
        long end = System.nanoTime() + limit.toNanos();
        try {
            boolean late = false;
            while (!condition.call()) {
                assertFalse(late, "the condition did not hold within " + limit);
                // Asked once more after the end: this thread may have been kept from it before.
                late = System.nanoTime() >= end;
                Thread.sleep(2);
            }
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    /**
     * Runs a test of something that needs the processor in time. If it fails while the machine
     * stood still for longer than {@code stall}, that proves nothing and it is run again.
     */
    static void unlessStarved(Duration stall, Test test) throws Exception {
        for (int i = 0; ; i++) {
            var metronome = new Metronome();
            try {
                test.run();
                return;
            } catch (AssertionError e) {
                Duration gap = metronome.longestGap();
                if (gap.compareTo(stall) <= 0 || i == 20) {
                    throw e;
                }
                System.err.println("the machine stood still for " + gap + "; once more");
            } finally {
                metronome.longestGap();
            }
        }
    }

    /**
     * Threads that sleep a little again and again, and one that asks the server: when one of them
     * comes late, so may any other thread.
     */
    private static final class Metronome {
        private volatile boolean over;
        private volatile long longest;
        private final List<Thread> threads = new ArrayList<>();

        Metronome() {
            for (int i = 0; i < 4; i++) {
                boolean asks = i == 0;
                var thread = new Thread(() -> beat(asks));
                thread.setDaemon(true);
                thread.start();
                threads.add(thread);
            }
        }

        private void beat(boolean asks) {
            long last = System.nanoTime();
            while (!over) {
                try {
                    Thread.sleep(5);
                    if (asks) {
                        RedisServer.shared().command("PING");
                    }
                } catch (InterruptedException e) {
                    return;
                }
                long now = System.nanoTime();
                synchronized (this) {
                    longest = Math.max(longest, now - last);
                }
                last = now;
            }
        }

        Duration longestGap() {
            over = true;
            for (Thread thread : threads) {
                try {
                    thread.join();
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }
            return Duration.ofNanos(longest);
        }
    }
}
