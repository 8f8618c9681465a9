-- Sets the lock of a grant free, for the first living waiter. Its fences are not used again.
--
-- :name :token :fence (the first of the grant, or 0 where the token alone says which)
--
-- Safe to send twice and late: no later grant has the token.
UPDATE leasehold_lease SET token = NULL, used = :now DIV 3600000000
WHERE name = :name AND token = :token AND expiry > :now AND (:fence = 0 OR fence = :fence)
