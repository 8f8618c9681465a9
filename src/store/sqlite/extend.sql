-- Moves the end of a lease that is the token's and has not ended; answers the hour noted so far, or
-- no row. ?1 name, ?2 token, ?3 boot, ?4 now, ?5 new expiry, ?6 whether a later expiry stays
-- Sent twice: reaches the same expiry, counted from the second time.
UPDATE lease SET expiry = max(?5, iif(?6, expiry, 0))
WHERE name = ?1 AND token = ?2 AND boot = ?3 AND expiry > ?4
RETURNING used
