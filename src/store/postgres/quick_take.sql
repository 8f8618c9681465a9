-- The everyday case of a try: the row is there, the lock is free, and nobody waits. Answers as take.sql
-- does, or with no row: then that is for it.
--
-- $1 name  $2 token  $3 ttl in ms
--
-- The time is that at which the statement came: a lease that had to wait for the row ends the earlier,
-- and its validity counts from before the request was sent. What is not computed here costs nothing:
-- the server prepares each operation anew each time.
UPDATE leasehold.lease SET token = $2,
    first = greatest(last + 1, CAST(date_part('epoch', now()) * 1000000 AS bigint)),
    last = greatest(last + 1, CAST(date_part('epoch', now()) * 1000000 AS bigint)),
    expiry = now() + $3 * interval '1 ms'
WHERE name = $1 AND (token IS NULL OR expiry <= now()) AND waiters = '{}'
    AND used = CAST(date_part('epoch', now()) AS bigint) / 3600
RETURNING CAST(date_part('epoch', now()) * 1000000 AS bigint), 1::bigint, first, 1::bigint
