-- Makes a lock that is the token's last longer, or passes it on to another token.
--
-- $1 name  $2 token  $3 a fence of the grant, which is all of it once it was passed  $4 ttl in ms
-- $5 whether it never ends earlier than it would  $6 the other token, or NULL
--
-- Answers a row with the server's time in µs if the lock is the token's, or the other one's by now.
--
-- Safe to send twice and to arrive late: one that grows never cuts what a later one has promised, and
-- the others are only sent for a lease that nobody relies on any more. Of several clients that attach
-- one lease, only the first finds the mark.
UPDATE leasehold.lease SET
    token = coalesce($6, token),
    first = CASE WHEN $6 IS NULL THEN first ELSE $3 END,
    last = CASE WHEN $6 IS NULL THEN last ELSE $3 END,
    expiry = greatest(clock_timestamp() + $4 * interval '1 ms', CASE WHEN $5 THEN expiry END),
    used = CAST(date_part('epoch', clock_timestamp()) AS bigint) / 3600
WHERE name = $1 AND expiry > clock_timestamp() AND (token = $2 AND $3 BETWEEN first AND last
    OR token = $6 AND $3 = first)
RETURNING CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint)
