-- The last ticket of a name, or no row. ?1 name
SELECT ticket FROM waiter WHERE name = ?1 ORDER BY ticket DESC LIMIT 1
