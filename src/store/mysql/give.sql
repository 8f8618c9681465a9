-- Gives up a lock that is the token's, under that fence: one row is changed, or none. The next fence
-- follows the last one that was used.
--
-- :name :token :fence (the last one that was used under it, or 0 where none was)
UPDATE leasehold_lease SET token = NULL, used = :now DIV 3600000000,
    last_fence = IF(:fence = 0, last_fence, :fence)
WHERE name = :name AND token = :token AND expiry > :now
    AND (:fence = 0 OR :fence BETWEEN fence AND last_fence)
