-- Passes a lease that has not ended from one token to another, or finds it there; answers the hour
-- noted so far, or no row.
-- ?1 name, ?2 token, ?3 boot, ?4 now, ?5 new expiry, if that is later, ?6 the other token, ?7 the fence
-- Sent twice: reaches the same expiry, counted from the second time.
UPDATE lease SET token = ?6, expiry = max(?5, expiry)
WHERE name = ?1 AND token IN (?2, ?6) AND boot = ?3 AND expiry > ?4 AND fence = ?7
RETURNING used
