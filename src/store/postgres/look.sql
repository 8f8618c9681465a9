-- What those who wait, or give, have to know of a name.
--
-- $1 name
--
-- Answers no row, or: the holder's token or NULL, for how many µs it has the lock, its first fence,
-- the last one reserved, and how many wait.
SELECT CASE WHEN expiry > clock_timestamp() THEN token END,
    CAST(extract(epoch FROM expiry - clock_timestamp()) * 1000000 AS bigint),
    first, last, cardinality(waiters)::bigint
FROM leasehold.lease WHERE name = $1
