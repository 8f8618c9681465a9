package dev.leasehold;

import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.regex.Pattern;
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
                    () -> records.stream().filter(this::isOfOurLock).count() == 2);
            // What the client says of its server is no warning.
            assertTrue(records.stream()
                    .filter(this::isOfOurLock)
                    .allMatch(entry -> entry.getLevel() == Level.WARNING));
        } finally {
            logger.removeHandler(handler);
        }
    }

    private boolean isOfOurLock(LogRecord entry) {
        return entry.getMessage().contains("lock=" + name + " ");
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
        assertTrue(output.contains("WARNING: lost lock=" + name + " fence=1 reason=not_held"), output);
    }

    @Test
    void aLoggerThatIsOffPrintsNothing() throws Exception {
        String output = ChildJvm.of(Program.class, redis.url(), name, "off").run().succeeded();
        assertEquals("done\n", output);
    }

    /** Loses leases, and ends once it has printed both. */
    static final class Patient {
        public static void main(String[] arguments) throws Exception {
            PrintStream out = System.out;
            var said = new ByteArrayOutputStream();
            System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
            try {
                lose(arguments[0], arguments[1]);
                Eventually.holds(
                        ofSeconds(60),
                        () -> said.toString(StandardCharsets.UTF_8)
                                .lines()
                                .filter(line -> line.contains("lock=" + arguments[1] + " "))
                                .count() == 2);
            } finally {
                out.print(said.toString(StandardCharsets.UTF_8));
            }
        }
    }

    /** As in a program that adds the bridge and Logback, without settings of either. */
    @Test
    void theBridgeTakesRecordsToSlf4j() throws Exception {
        Path jars = Path.of("target", "slf4j");
        String output = ChildJvm.of(Patient.class, redis.url(), name).jarsOf(jars).run().succeeded();
        for (String loss : List.of("fence=1 reason=not_held", "fence=[0-9]+ reason=expired")) {
            var line = Pattern.compile(" WARN +dev\\.leasehold -- lost lock=" + Pattern.quote(name) + " " + loss);
            assertTrue(line.matcher(output).find(), output);
        }
    }
}
