-- Removes some rows that nobody has used for 25 hours, which is longer than any fence that was
-- reserved ahead of the clock matters.
DELETE FROM leasehold.lease WHERE name IN (
    SELECT name FROM leasehold.lease
    -- The time at which the transaction began: an index cannot be asked for one that goes on.
    WHERE used < CAST(extract(epoch FROM now()) AS bigint) / 3600 - 25
        AND (token IS NULL OR expiry <= clock_timestamp())
    ORDER BY used LIMIT 128 FOR UPDATE SKIP LOCKED
)
