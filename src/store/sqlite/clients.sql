-- Who the clients are, as they say: nothing depends on it. Made by the first one that says so: a file
-- of an earlier version has no such table.
CREATE TABLE IF NOT EXISTS client (
    id     TEXT    NOT NULL PRIMARY KEY,   -- the first 12 digits of each of its tokens
    record TEXT    NOT NULL,
    expiry INTEGER NOT NULL,   -- as in the table lease
    boot   TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
