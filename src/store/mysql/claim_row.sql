-- Locks a row in a transaction, or is refused at once where another session keeps it.
--
-- :name
SELECT 1 FROM leasehold_lease WHERE name = :name FOR UPDATE NOWAIT
