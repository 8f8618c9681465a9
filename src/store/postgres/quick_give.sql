-- The everyday case of a give: the lock is the token's, and nobody waits. Answers as give.sql does, or
-- with no row: then that is for it. What it returns is in statements.rs.
--
-- $1 name  $2 token  $3 the last fence that was used under it
UPDATE leasehold.lease SET token = NULL, last = $3
WHERE name = $1 AND token = $2 AND expiry > now() AND $3 BETWEEN first AND last AND waiters = '{}'
