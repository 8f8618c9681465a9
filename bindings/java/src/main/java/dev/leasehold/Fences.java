package dev.leasehold;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** The comparison by which a database rejects a late writer. */
public final class Fences {
    // Begins the row or raises its fence in one statement: two transactions that begin one at once would
    // fail otherwise, or each lock the gap that the other one fills.
    private static final String RAISE = "INSERT INTO leasehold_fences (name, fence, writes) VALUES (?, ?, 1)"
            + " ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, writes = leasehold_fences.writes + 1"
            + " WHERE leasehold_fences.fence <= excluded.fence";
    private static final String RAISE_IN_MYSQL = "INSERT INTO leasehold_fences (name, fence, writes)"
            + " VALUES (?, ?, 1) ON DUPLICATE KEY UPDATE writes = writes + (fence <= VALUES(fence)),"
            + " fence = GREATEST(fence, VALUES(fence))";
    // How many rows that has changed, MySQL's drivers count in different ways.
    private static final String SEE_IN_MYSQL = "SELECT fence FROM leasehold_fences WHERE name = ? FOR UPDATE";

    /** 2^53 - 1: no lease has a larger one. */
    private static final long LARGEST = (1L << 53) - 1;

    private Fences() {}

    /**
     * Throws if a later holder of the lock has already written. Make it the first call of a
     * transaction that writes what the lock protects. Until that transaction ends, no other one
     * gets past this call with the same name. After an exception, roll back.
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
        String product = connection.getMetaData().getDatabaseProductName();
        boolean isMysql = product.equals("MySQL") || product.equals("MariaDB");
        boolean passed;
        try (PreparedStatement raise = connection.prepareStatement(isMysql ? RAISE_IN_MYSQL : RAISE)) {
            raise.setString(1, name);
            raise.setLong(2, fence);
            passed = raise.executeUpdate() > 0;
        }
        if (isMysql) {
            passed = seen(connection, name) == fence;
        }
        if (!passed) {
            throw new LeaseLostException(
                    "the fence " + fence + " of '" + name + "' is late: a later holder was here");
        }
    }

    private static long seen(Connection connection, String name) throws SQLException {
        try (PreparedStatement see = connection.prepareStatement(SEE_IN_MYSQL)) {
            see.setString(1, name);
            try (ResultSet row = see.executeQuery()) {
                row.next();
                return row.getLong(1);
            }
        }
    }
}
