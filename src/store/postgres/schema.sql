-- What `leasehold init` prints, and makes with --apply. Nothing else here makes or changes a table.
-- All of it may be said again. The user who runs it needs CREATE on the database.
BEGIN;
-- Two who make it at once would be in each other's way.
DO $$ BEGIN PERFORM pg_advisory_xact_lock(7810204931178165349); END $$;
CREATE SCHEMA IF NOT EXISTS leasehold;

-- Which statements go with these tables. A client that knows other ones takes no lock.
CREATE TABLE IF NOT EXISTS leasehold.version (number integer NOT NULL PRIMARY KEY);
INSERT INTO leasehold.version VALUES (1) ON CONFLICT DO NOTHING;

DO $$ BEGIN
    CREATE TYPE leasehold.waiter AS (
        ticket bigint,     -- its place: they stand in the order of these
        token  uuid,       -- for which it waits
        ear    bigint,     -- the advisory lock that its client's wake-up connection holds
        span   bigint      -- for how many milliseconds it is handed the lock
    );
EXCEPTION WHEN duplicate_object THEN NULL; END $$;

-- One row for each name. It outlives its holder for the sake of the fence. The waiters are in it, so
-- that one row lock orders everything that happens to a name. There is no CHECK: the server would
-- prepare it anew for each write.
CREATE TABLE IF NOT EXISTS leasehold.lease (
    name    bytea       NOT NULL PRIMARY KEY,
    token   uuid,                  -- the holder's; NULL when it was given back
    first   bigint      NOT NULL,  -- the first fence of the last grant, ...
    last    bigint      NOT NULL,  -- ... and the last one reserved
    expiry  timestamptz NOT NULL,  -- by this server's clock
    used    bigint      NOT NULL,  -- the hour of the last grant or extension; only for sweeping
    ear     bigint,                -- to whom the last write handed the lock, if to anybody
    waiters leasehold.waiter[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
-- Hours, so that a row in daily use does not move about in here.
CREATE INDEX IF NOT EXISTS lease_by_use ON leasehold.lease (used);

-- Who broke a lock last: its holder asks once it has lost it.
CREATE TABLE IF NOT EXISTS leasehold.broken (
    name  bytea       NOT NULL PRIMARY KEY,
    token uuid        NOT NULL,  -- that of the grant
    at    timestamptz NOT NULL,
    by    bytea       NOT NULL
);

-- Who the clients are, as they say: nothing depends on it, and without it nobody's name is shown.
CREATE TABLE IF NOT EXISTS leasehold.client (
    id     bigint      NOT NULL PRIMARY KEY,  -- the first 12 digits of each of its tokens
    record text        NOT NULL,
    expiry timestamptz NOT NULL
);

COMMIT;
