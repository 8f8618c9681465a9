package dev.leasehold;

import java.nio.file.Path;
import org.junit.jupiter.api.io.TempDir;

/** The contract on an SQLite file. */
class SqliteStoreTest extends StoreContract {
    @TempDir
    Path folder;

    @Override
    String url() {
        return "sqlite:" + folder.resolve("locks.db");
    }
}
