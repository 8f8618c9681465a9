-- The everyday case of a try: the row is there, the lock is free, and nobody waits. Answers as take.sql
-- does, or with no row: then that is for it.
--
-- $1 name  $2 token  $3 ttl in ms
--
-- The clock is read before the row is locked: a lease that had to wait for that ends the earlier, and
-- its validity counts from before the request was sent.
UPDATE leasehold.lease SET token = $2, first = greatest(last + 1, us),
    last = greatest(last + 1, us), expiry = now + $3 * interval '1 ms', ear = NULL
FROM (
    SELECT now, CAST(extract(epoch FROM now) * 1000000 AS bigint) AS us FROM clock_timestamp() now
) clock
WHERE name = $1 AND (token IS NULL OR expiry <= now) AND waiters = '{}' AND used = us / 3600000000
RETURNING us, 1::bigint, first, 1::bigint
