package dev.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** On real databases, with the tables of examples/fences. */
class FencesTest {
    private static final String FENCES = "../../examples/fences/";
    private static final long FENCE = 1_763_920_000_000_042L;
    private static final long LARGEST = 9_007_199_254_740_991L;

    @ParameterizedTest
    @ValueSource(strings = {"postgres", "mysql"})
    void aDatabaseRefusesASmallerFence(String kind) throws Exception {
        Process kit = new ProcessBuilder(RedisServer.KIT, kind)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        // The server ends with the kit's standard input.
        try (var input = kit.getOutputStream();
                var ready = kit.inputReader()) {
            String url = ready.readLine().split("[= ]")[1];
            try (Connection connection = DriverManager.getConnection(jdbc(url))) {
                refusesASmallerFence(connection, kind);
                comparesWithOneThatBeganTheRow(connection, jdbc(url));
            }
        }
    }

    @Test
    void sqliteRefusesASmallerFence(@TempDir Path folder) throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite:" + folder.resolve("stock.db"))) {
            refusesASmallerFence(connection, "sqlite");
        }
    }

    /** Two transactions begin a row at once: the second waits, and is compared with the first. */
    private static void comparesWithOneThatBeganTheRow(Connection connection, String url) throws Exception {
        for (long second : new long[] {FENCE + 1, FENCE - 1}) {
            String name = "begun " + second;
            Fences.check(connection, name, FENCE);
            CompletableFuture<Boolean> passed = CompletableFuture.supplyAsync(() -> passes(url, name, second));
            assertThrows(TimeoutException.class, () -> passed.get(300, TimeUnit.MILLISECONDS));
            connection.commit();
            assertEquals(second > FENCE, passed.get(60, TimeUnit.SECONDS));
        }
    }

    private static boolean passes(String url, String name, long fence) {
        try (Connection other = DriverManager.getConnection(url)) {
            other.setAutoCommit(false);
            try {
                Fences.check(other, name, fence);
                other.commit();
                return true;
            } catch (LeaseLostException late) {
                other.rollback();
                return false;
            }
        } catch (SQLException failed) {
            throw new IllegalStateException(failed);
        }
    }

    /** As a number of the driver's, both ways. */
    private static void comparesTheLargest(Connection connection) throws SQLException {
        for (long fence : new long[] {LARGEST - 1, LARGEST, LARGEST}) {
            Fences.check(connection, "largest", fence);
            connection.commit();
        }
        assertThrows(LeaseLostException.class, () -> Fences.check(connection, "largest", LARGEST - 1));
        connection.rollback();
        try (Statement statement = connection.createStatement();
                var row = statement.executeQuery("SELECT fence FROM leasehold_fences WHERE name = 'largest'")) {
            assertTrue(row.next());
            assertEquals(LARGEST, row.getLong(1));
        }
        // The look has begun a transaction.
        connection.rollback();
        for (long wrong : new long[] {LARGEST + 1, Long.MAX_VALUE}) {
            LeaseholdException refused =
                    assertThrows(LeaseholdException.class, () -> Fences.check(connection, "largest", wrong));
            assertEquals(Status.BAD_ARGUMENT, refused.status());
        }
    }

    private static String jdbc(String url) {
        String[] parts = url.split("://|@", 3);
        String kind = parts[0].equals("postgres") ? "postgresql" : "mariadb";
        return "jdbc:" + kind + "://" + parts[2] + "?user=" + parts[1];
    }

    private static void refusesASmallerFence(Connection connection, String kind) throws SQLException, IOException {
        try (Statement statement = connection.createStatement()) {
            String text = Files.readString(Path.of(FENCES + kind + ".sql"));
            statement.execute(text.substring(text.indexOf("CREATE TABLE"), text.indexOf(';')));
        }
        LeaseholdException refused =
                assertThrows(LeaseholdException.class, () -> Fences.check(connection, "stock", FENCE));
        assertTrue(refused.getMessage().contains("auto-commit"), refused.getMessage());
        connection.setAutoCommit(false);
        for (long fence : new long[] {FENCE - 1, FENCE, FENCE}) {
            Fences.check(connection, "stock", fence);
            connection.commit();
        }
        LeaseLostException late =
                assertThrows(LeaseLostException.class, () -> Fences.check(connection, "stock", FENCE - 1));
        assertTrue(late.getMessage().contains((FENCE - 1) + " of 'stock' is late"), late.getMessage());
        connection.rollback();
        refused = assertThrows(LeaseholdException.class, () -> Fences.check(connection, "stock", 0));
        assertEquals(Status.BAD_ARGUMENT, refused.status());
        Fences.check(connection, "another", 1);
        connection.rollback();
        comparesTheLargest(connection);
    }
}
