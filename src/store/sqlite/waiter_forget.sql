-- Removes the waiters of a name that was swept. One that lives comes back with its ticket. ?1 name
DELETE FROM waiter WHERE name = ?1
