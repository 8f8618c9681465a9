-- Moves the end of a lease that is the token's and has not ended, and passes it on where ?5 is
-- another token; answers the hour noted so far, or no row. ?1 name, ?2 token, ?3 boot, ?4 now,
-- ?5 the token that has it then, ?6 new expiry, ?7 whether a later expiry stays,
-- ?8 the fence that it must have, or NULL
-- Sent twice: finds the lease under the other token, and reaches the same expiry, counted from the
-- second time.
UPDATE lease SET token = ?5, expiry = max(?6, iif(?7, expiry, 0))
WHERE name = ?1 AND (token = ?2 OR token = ?5) AND boot = ?3 AND expiry > ?4
    AND fence = ifnull(?8, fence)
RETURNING used
