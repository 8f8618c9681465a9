package dev.leasehold;

import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A JVM that ends with leases held and threads that wait ends at once, and asks nobody. */
class ExitTest {
    private final RedisServer redis = RedisServer.shared();
    private final String name = Names.fresh();

    /** Holds a lease and waits for it on other threads, and then ends in one of many ways. */
    static final class Program {
        public static void main(String[] arguments) throws Exception {
            String name = arguments[2];
            var client = LeaseholdClient.connect(arguments[1]);
            client.onEvent(event -> {});
            var waiting = new CountDownLatch(5);
            for (int i = 0; i < 5; i++) {
                boolean interruptible = i % 2 == 0;
                var thread = new Thread(() -> {
                    waiting.countDown();
                    try {
                        if (interruptible) {
                            client.lock(name).asLock().lockInterruptibly();
                        } else {
                            client.lock(name).asLock().lock();
                        }
                    } catch (InterruptedException | LeaseholdException e) {
                        return; // the client was closed
                    }
                });
                thread.setDaemon(true);
                thread.start();
            }
            try (var other = LeaseholdClient.connect(arguments[1])) {
                other.lock(name + ":released").acquire();
            }
            while (client.counters().busy() < 2) {
                waiting.await();
            }
            switch (arguments[0]) {
                case "exit" -> System.exit(3);
                case "halt" -> Runtime.getRuntime().halt(4);
                case "throw" -> throw new IllegalStateException("on purpose");
                case "close" -> Runtime.getRuntime().addShutdownHook(new Thread(client::close));
                case "wait" -> {
                    System.out.println("ready");
                    Thread.sleep(1_000_000);
                }
                default -> { }
            }
            System.out.println("end of main");
        }
    }

    private void endsWith(int code, String how) throws Exception {
        try (var holder = LeaseholdClient.connect(redis.url());
                var held = holder.lock(name).acquire()) {
            ChildJvm.Result result = ChildJvm.of(Program.class, how, redis.url(), name).run();
            assertEquals(code, result.code(), result.output());
            // Starting the JVM included.
            assertTrue(result.took().compareTo(ofSeconds(30)) < 0, result.took().toString());
            assertTrue(held.isValid());
        }
    }

    @Test
    void endOfMain() throws Exception {
        endsWith(0, "return");
    }

    @Test
    void systemExit() throws Exception {
        endsWith(3, "exit");
    }

    @Test
    void runtimeHalt() throws Exception {
        endsWith(4, "halt");
    }

    @Test
    void anExceptionInMain() throws Exception {
        endsWith(1, "throw");
    }

    @Test
    void aHookThatClosesTheClient() throws Exception {
        endsWith(0, "close");
    }

    @Test
    void aSignal(@TempDir Path folder) throws Exception {
        Path output = folder.resolve("output");
        try (var holder = LeaseholdClient.connect(redis.url());
                var held = holder.lock(name).acquire()) {
            Process process = ChildJvm.of(Program.class, "wait", redis.url(), name).start(output);
            Eventually.holds(ofSeconds(60), () -> Files.readString(output).contains("ready"));
            process.destroy();
            assertTrue(process.waitFor(30, TimeUnit.SECONDS), "it did not end");
            assertEquals(143, process.exitValue());
            ChildJvm.checkOutput(Files.readString(output));
            assertTrue(held.isValid());
        }
    }

    /** Nothing is released without being asked to. */
    @Test
    void leasesStayForTheirTtl() throws Exception {
        ChildJvm.of(Holder.class, redis.url(), name).run().succeeded();
        assertTrue(redis.exists(name));
    }

    /** Ends with a lease. */
    static final class Holder {
        public static void main(String[] arguments) throws Exception {
            var client = LeaseholdClient.connect(arguments[0]);
            Lease lease = client.lock(arguments[1]).acquire();
            System.exit(lease.isValid() ? 0 : 1);
        }
    }
}
