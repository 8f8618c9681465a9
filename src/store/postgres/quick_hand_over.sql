-- The everyday case of a give where somebody waits, in front of told.sql: the lock is the token's, and
-- the first waiter's wake-up connection is there, or nobody waits any more. Answers as give.sql does,
-- or with no row: then that is for it.
--
-- $1 name  $2 token  $3 the last fence that was used under it
UPDATE leasehold.lease l SET
    token = (waiters[1]).token,
    first = CASE WHEN waiters = '{}' THEN first
        ELSE greatest(last + 1, CAST(date_part('epoch', now()) * 1000000 AS bigint)) END,
    last = CASE WHEN waiters = '{}' THEN $3
        ELSE greatest(last + 1, CAST(date_part('epoch', now()) * 1000000 AS bigint)) + 63 END,
    expiry = CASE WHEN waiters = '{}' THEN expiry
        ELSE clock_timestamp() + (waiters[1]).span * interval '1 ms' END,
    ear = (waiters[1]).ear,
    waiters = waiters[2:]
WHERE name = $1 AND token = $2 AND expiry > now() AND $3 BETWEEN first AND last
    -- As in hand_over.sql. Where nobody waits, there is no ear to try.
    AND CASE WHEN pg_try_advisory_lock_shared((waiters[1]).ear)
        THEN NOT pg_advisory_unlock_shared((waiters[1]).ear) ELSE true END
