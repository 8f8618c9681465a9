-- A token waits no more. Behind a give that found no lock of its own, and a take that found one.
--
-- :name :token
DELETE FROM leasehold_waiter WHERE name = :name AND token = :token
