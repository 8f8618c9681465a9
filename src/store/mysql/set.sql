-- Has a lock end after just so long. Only for a lease that nobody relies on any more.
--
-- :name :token :fence :ttl
UPDATE leasehold_lease SET expiry = :now + :ttl, used = :now DIV 3600000000
WHERE name = :name AND token = :token AND :fence BETWEEN fence AND last_fence AND expiry > :now
