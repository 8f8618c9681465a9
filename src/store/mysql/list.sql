-- What is locked, in the order of names.
--
-- :name (the first) :after (or behind this) :until (before this) :most (rows)
--
-- Answers a row for each: the name, the token, the expiry, the first and the last fence, the server's
-- time, and how many wait.
SELECT name, token, expiry, fence, last_fence, :now,
    (SELECT COUNT(*) FROM leasehold_waiter
        WHERE leasehold_waiter.name = leasehold_lease.name AND alive_until BETWEEN :now AND :now + 60000000)
FROM leasehold_lease WHERE name >= :name AND name > :after AND name < :until
ORDER BY name LIMIT :most
