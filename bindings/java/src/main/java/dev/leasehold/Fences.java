package dev.leasehold;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;

/** The comparison by which a database rejects a late writer. */
public final class Fences {
    private static final String RAISE = "UPDATE leasehold_fences SET fence = ?, writes = writes + 1"
            + " WHERE name = ? AND fence <= ?";
    private static final String BEGIN = "INSERT INTO leasehold_fences (name, fence, writes)"
            + " SELECT ?, ?, 0 FROM (SELECT 1 AS one) one"
            + " WHERE NOT EXISTS (SELECT 1 FROM leasehold_fences WHERE name = ?)";

    /** 2^53 - 1: no lease has a larger one. */
    private static final long LARGEST = (1L << 53) - 1;

    private Fences() {}

    /**
     * Throws if a later holder of the lock has already written. Make it the first call of a
     * transaction that writes what the lock protects. Until that transaction ends, no other one
     * gets past this call with the same name.
     *
     * <pre>{@code
     * connection.setAutoCommit(false);
     * Fences.check(connection, "stock", lease.fence());
     * statement.executeUpdate("UPDATE shelf SET count = 16 WHERE sku = 17");
     * connection.commit();
     * }</pre>
     *
     * @param connection to PostgreSQL, MySQL, MariaDB or SQLite, without auto-commit; the files in
     *     {@code examples/fences} create the table
     * @param name the name of what you write, usually the lock's name
     * @param fence the lease's
     * @throws LeaseLostException a later holder, with a larger fence, has already written
     * @throws LeaseholdException the connection has auto-commit
     * @throws SQLException from the database
     */
    public static void check(Connection connection, String name, long fence) throws SQLException {
        if (fence < 1 || fence > LARGEST) {
            throw LeaseholdException.badArgument(fence + " is no fence");
        }
        if (connection.getAutoCommit()) {
            throw LeaseholdException.badArgument(
                    "the connection has auto-commit: the fence would be compared in a transaction of its own");
        }
        // Between the first two, another transaction may begin the row with a smaller fence.
        if (!execute(connection, RAISE, fence, name, fence)
                && !execute(connection, BEGIN, name, fence, name)
                && !execute(connection, RAISE, fence, name, fence)) {
            throw new LeaseLostException(
                    "the fence " + fence + " of '" + name + "' is late: a later holder was here");
        }
    }

    private static boolean execute(Connection connection, String text, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            for (int at = 0; at < values.length; at++) {
                statement.setObject(at + 1, values[at]);
            }
            return statement.executeUpdate() > 0;
        }
    }
}
