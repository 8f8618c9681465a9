-- Who has broken a lock last.
--
-- $1 name
--
-- Answers no row, or: the token of the grant, the server's time in µs, and who it was.
SELECT token, CAST(extract(epoch FROM at) * 1000000 AS bigint), by
FROM leasehold.broken WHERE name = $1
