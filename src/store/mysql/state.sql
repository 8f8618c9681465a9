-- What there is to see of a name. Changes nothing, and waits for nobody.
--
-- :name :ticket :token
--
-- Answers one row: the server's time; the row of the name, or NULLs; how many wait before the ticket;
-- and until when the place of the ticket and the token lives, or NULL.
SELECT :now, token, expiry, fence, last_fence, turn,
    (SELECT COUNT(*) FROM leasehold_waiter
        WHERE name = :name AND ticket < :ticket AND alive_until BETWEEN :now AND :now + 60000000 AND token <> :token),
    (SELECT alive_until FROM leasehold_waiter
        WHERE name = :name AND ticket = :ticket AND token = :token)
FROM (SELECT 1) always LEFT JOIN leasehold_lease ON leasehold_lease.name = :name
