-- What is locked, in the order of names: at most 256 rows, and as many as one message holds.
--
-- $1 the first name  $2 or the first one behind this  $3 before which name it ends  $4 if it does so
--
-- Answers one row: NULL where there are none, else one record for each behind the other: the length of
-- the name, the name, the token or zeros, for how many µs it has the lock or -1, the first and the last
-- fence, how many wait, and the server's time in µs. Numbers have 8 bytes.
SELECT string_agg(
    int8send(length(name)) || name || coalesce(uuid_send(token), '\x00000000000000000000000000000000')
        || int8send(span) || int8send(first) || int8send(last) || int8send(waiting)
        || int8send(CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)),
    ''::bytea ORDER BY name
)
FROM (
    SELECT name, token, first, last, cardinality(waiters)::bigint AS waiting,
        CASE WHEN token IS NOT NULL AND expiry > clock_timestamp()
            THEN CAST(extract(epoch FROM expiry - clock_timestamp()) * 1000000 AS bigint)
            ELSE -1 END AS span,
        sum(length(name) + 64) OVER (ORDER BY name) AS size
    FROM (
        SELECT * FROM leasehold.lease
        WHERE name >= $1 AND name > $2 AND (NOT $4 OR name < $3)
        ORDER BY name LIMIT 256
    ) page
) listed
WHERE size < 60000
