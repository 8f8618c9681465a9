-- What `leasehold init` prints, and makes with --apply. Nothing else here makes or changes a table.
-- All of it may be said again. The user who runs it needs CREATE, INSERT and SELECT on the database.

-- One row for each name. It outlives its holder for the sake of the fence. All times are microseconds
-- since 1970 by this server's clock, in UTC.
CREATE TABLE IF NOT EXISTS leasehold_lease (
    name       VARBINARY(2048) NOT NULL PRIMARY KEY,
    token      BINARY(16),             -- the holder's; NULL when it was given back
    fence      BIGINT NOT NULL,        -- the first fence of the last grant, ...
    last_fence BIGINT NOT NULL CHECK (last_fence < 9007199254740992),  -- ... and the last one reserved
    expiry     BIGINT NOT NULL,
    used       INT NOT NULL,           -- the hour of the last change; only for sweeping
    turn       INT NOT NULL,           -- how long turns take lately; only says when to ask again
    awaited    BIGINT NOT NULL DEFAULT 0,  -- until when somebody may wait: each place ends by then
    KEY leasehold_by_use (used)        -- hours, so that a row in daily use does not move about in here
) ENGINE = InnoDB;

-- Who waits for a name, in the order of tickets. Holds nobody up once its time is over, or is further
-- ahead than any claim window: then the clock was set back.
CREATE TABLE IF NOT EXISTS leasehold_waiter (
    name        VARBINARY(2048) NOT NULL,
    ticket      BIGINT NOT NULL,
    token       BINARY(16) NOT NULL,   -- for which it waits; a ticket may pass on to another one
    alive_until BIGINT NOT NULL,
    PRIMARY KEY (name, ticket, token)
) ENGINE = InnoDB;

-- Who the clients are, as they say: nothing depends on it, and without it nobody's name is shown.
CREATE TABLE IF NOT EXISTS leasehold_client (
    id     BIGINT NOT NULL PRIMARY KEY,   -- the first 12 digits of each of its tokens
    record VARBINARY(4096) NOT NULL,
    expiry BIGINT NOT NULL,
    KEY leasehold_by_expiry (expiry)
) ENGINE = InnoDB;

-- Who broke a lock last: its holder asks once it has lost it.
CREATE TABLE IF NOT EXISTS leasehold_broken (
    name    VARBINARY(2048) NOT NULL PRIMARY KEY,
    token   BINARY(16) NOT NULL,          -- that of the grant
    moment  BIGINT NOT NULL,
    breaker VARBINARY(1024) NOT NULL,
    KEY leasehold_by_moment (moment)
) ENGINE = InnoDB;

-- Which statements go with these tables. A client that knows other ones takes no lock.
CREATE TABLE IF NOT EXISTS leasehold_version (number INT NOT NULL PRIMARY KEY) ENGINE = InnoDB;
INSERT IGNORE INTO leasehold_version VALUES (1);
