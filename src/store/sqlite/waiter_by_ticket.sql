-- The waiter with a ticket. ?1 name, ?2 ticket
SELECT ticket, token, stamp FROM waiter WHERE name = ?1 AND ticket = ?2
