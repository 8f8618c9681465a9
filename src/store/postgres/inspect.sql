-- What people see of a name: who has it, and the first who wait.
--
-- $1 name  $2 how many waiters are wanted
--
-- Answers no row, or: the holder's token or NULL, for how many µs it has the lock, its first fence,
-- the last one reserved, how many wait, for how many µs it has been granted, and a text with the token
-- of each waiter and for how many µs it waits.
SELECT CASE WHEN expiry > now THEN token END,
    CAST(extract(epoch FROM expiry - now) * 1000000 AS bigint),
    first, last, cardinality(waiters)::bigint, us - first,
    (SELECT string_agg(concat_ws(' ', replace(w.token::text, '-', ''), us - w.ticket), ' ' ORDER BY w.ticket)
        FROM (SELECT * FROM unnest(waiters) ORDER BY 1 LIMIT $2) w)
FROM leasehold.lease,
    LATERAL (SELECT clock_timestamp() AS now) clock,
    LATERAL (SELECT CAST(extract(epoch FROM now) * 1000000 AS bigint) AS us) micros
WHERE name = $1
