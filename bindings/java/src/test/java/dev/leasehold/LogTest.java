package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

/** The library's log is that of System.Logger, without a call of the user's. */
class LogTest {
    private final RedisServer redis = RedisServer.shared();
    private final String name = Names.fresh();

    /** Has something logged on the thread that calls, and something in the background. */
    private static void lose(String url, String name) throws Exception {
        try (var client = LeaseholdClient.connect(url)) {
            var nobodys = client.lock(name).attach("0123456789abcdef0123456789abcdef", 1);
            assertThrows(LeaseLostException.class, nobodys::extend);
            Lease lease = client.lock(name).ttl(ofMillis(50)).acquire();
            assertTrue(lease.fence() > 0);
            // Its validity ends before its ttl is over, since nothing renews it.
            Eventually.holds(ofSeconds(60), () -> client.counters().lost() == 2);
        }
    }

    @Test
    void recordsReachTheLoggerOfThePackage() throws Exception {
        List<LogRecord> records = new CopyOnWriteArrayList<>();
        Logger logger = Logger.getLogger("dev.leasehold");
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord entry) {
                records.add(entry);
                // What fails here, the reader of the log survives.
                throw new IllegalStateException("on purpose");
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        logger.addHandler(handler);
        try {
            lose(redis.url(), name);
            Eventually.holds(
                    ofSeconds(60),
                    () -> records.stream()
                                    .filter(entry -> entry.getMessage().contains("on '" + name + "'"))
                                    .count()
                            == 2);
            assertTrue(records.stream().allMatch(entry -> entry.getLevel() == Level.WARNING));
        } finally {
            logger.removeHandler(handler);
        }
    }

    /** Loses leases; with an argument more, the log is off. */
    static final class Program {
        private static final Logger LOGGER = Logger.getLogger("dev.leasehold");

        public static void main(String[] arguments) throws Exception {
            if (arguments.length > 2) {
                LOGGER.setLevel(Level.OFF);
            }
            lose(arguments[0], arguments[1]);
            System.out.println("done");
        }
    }

    @Test
    void withoutSettingsWarningsArePrinted() throws Exception {
        String output = ChildJvm.of(Program.class, redis.url(), name).run().succeeded();
        assertTrue(output.contains("WARNING: Lost(NotHeld): lease 1 on '" + name + "'"), output);
    }

    @Test
    void aLoggerThatIsOffPrintsNothing() throws Exception {
        String output = ChildJvm.of(Program.class, redis.url(), name, "off").run().succeeded();
        assertEquals("done\n", output);
    }
}
