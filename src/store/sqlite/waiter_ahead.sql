-- For how long the first living waiter ahead of a ticket counts as living, if it does not show
-- itself again; no row if there is none.
-- ?1 name, ?2 ticket, ?3 token of the request, ?4 boot, ?5 the oldest stamp that counts
SELECT stamp - ?5 FROM waiter
WHERE name = ?1 AND ticket < ?2 AND token <> ?3 AND boot = ?4 AND stamp >= ?5
ORDER BY ticket LIMIT 1
