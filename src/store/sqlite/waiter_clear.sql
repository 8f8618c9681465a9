-- Removes the waiters of a name up to a ticket. ?1 name, ?2 ticket
DELETE FROM waiter WHERE name = ?1 AND ticket <= ?2
