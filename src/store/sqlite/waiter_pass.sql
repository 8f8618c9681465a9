-- Removes a waiter that was granted the lock, with those ahead of it: they are dead, or it would
-- not have been granted. ?1 name, ?2 ticket
DELETE FROM waiter WHERE name = ?1 AND ticket <= ?2
