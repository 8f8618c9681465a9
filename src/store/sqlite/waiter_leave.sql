-- Removes a waiter that no longer waits. ?1 name, ?2 token
DELETE FROM waiter WHERE name = ?1 AND token = ?2
