-- Removes some rows that nobody has used for 25 hours, which is longer than any fence that was
-- reserved ahead of the clock matters.
DELETE FROM leasehold.lease WHERE name IN (
    SELECT name FROM leasehold.lease
    WHERE used < CAST(extract(epoch FROM clock_timestamp()) AS bigint) / 3600 - 25
        AND (token IS NULL OR expiry <= clock_timestamp())
    ORDER BY used LIMIT 128 FOR UPDATE SKIP LOCKED
)
