-- The first waiter from one ticket to another: of this token, unless the two tickets are the same.
-- Answers its ticket, and whether it stands under the token with a stamp that is fresh.
-- ?1 name, ?2 first ticket, ?3 last ticket, ?4 token, ?5 the oldest fresh stamp
SELECT ticket, token = ?4 AND stamp >= ?5 FROM waiter
WHERE name = ?1 AND ticket BETWEEN ?2 AND ?3 AND (?2 = ?3 OR token = ?4)
