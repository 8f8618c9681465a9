-- A take that was sent before has the lock already: it lasts for as long as this one asks for. Only
-- under the fence that was seen: a copy of the take that came meanwhile may have it under another.
--
-- :name :token :fence :ttl
UPDATE leasehold_lease SET expiry = GREATEST(expiry, :now + :ttl)
WHERE name = :name AND token = :token AND fence = :fence AND expiry > :now
