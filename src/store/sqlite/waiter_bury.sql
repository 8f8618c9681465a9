-- Removes the waiters ahead of a ticket that no longer show themselves.
-- ?1 name, ?2 ticket, ?3 boot, ?4 the oldest stamp that counts
DELETE FROM waiter WHERE name = ?1 AND ticket < ?2 AND (boot <> ?3 OR stamp < ?4)
