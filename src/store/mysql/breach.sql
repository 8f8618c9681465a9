-- Who has broken a lock last: the token of the grant, the server's time, and who it was.
--
-- :name
SELECT token, moment, breaker FROM leasehold_broken WHERE name = :name
