-- The two tables of the store, made once, in the transaction that also sets user_version.

-- One row for each name. It outlives its holder for the sake of the fence.
CREATE TABLE lease (
    name   BLOB    NOT NULL PRIMARY KEY,
    token  TEXT,               -- the holder's; NULL when it was given back
    fence  INTEGER NOT NULL,   -- the last one given out for the name
    expiry INTEGER NOT NULL,   -- nanoseconds of the suspend-aware clock of ...
    boot   TEXT    NOT NULL,   -- ... this boot; under any other boot the row is free
    used   INTEGER NOT NULL    -- hour of wall clock of the last grant or extension; only for sweeping
) STRICT, WITHOUT ROWID;

-- Hours, so that a row in daily use does not move about in here.
CREATE INDEX lease_by_use ON lease (used);

-- Who waits for a name, in the order of tickets. Holds nobody up once its stamp is old.
CREATE TABLE waiter (
    name   BLOB    NOT NULL,
    ticket INTEGER NOT NULL,
    token  TEXT    NOT NULL,
    stamp  INTEGER NOT NULL,   -- when it last showed itself, on the clock of lease.expiry
    boot   TEXT    NOT NULL,
    PRIMARY KEY (name, ticket)
) STRICT, WITHOUT ROWID;
