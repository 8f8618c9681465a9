-- Makes a lock that is the token's last longer. One row is changed if it is, or none.
--
-- :name :token :fence (one of the grant's) :ttl
--
-- It never ends earlier by this: one that was delayed on its way cuts nothing that a later one has
-- promised.
UPDATE leasehold_lease SET expiry = GREATEST(expiry, :now + :ttl), used = :now DIV 3600000000
WHERE name = :name AND token = :token AND :fence BETWEEN fence AND last_fence AND expiry > :now
