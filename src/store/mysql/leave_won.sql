-- Behind a take of a waiter, in its transaction: its own place goes, and those before it, which are
-- of the dead; if it has the lock.
--
-- :name :token :ticket
DELETE FROM leasehold_waiter WHERE name = :name AND ticket <= :ticket
    AND EXISTS (SELECT 1 FROM leasehold_lease WHERE name = :name AND token = :token)
