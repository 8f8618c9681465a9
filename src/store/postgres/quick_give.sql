-- The everyday case of a give: the lock is the token's, and nobody waits. Answers as give.sql does, or
-- with no row: then that is for it.
--
-- $1 name  $2 token  $3 the last fence that was used under it, or 0 where none was
UPDATE leasehold.lease SET token = NULL, last = CASE $3 WHEN 0 THEN last ELSE $3 END, ear = NULL
WHERE name = $1 AND token = $2 AND expiry > clock_timestamp() AND ($3 = 0 OR $3 BETWEEN first AND last)
    AND waiters = '{}'
RETURNING set_config('synchronous_commit', 'off', true)
