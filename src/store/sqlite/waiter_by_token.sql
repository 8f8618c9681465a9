-- The waiter with a token. ?1 name, ?2 token
SELECT ticket, token, stamp FROM waiter WHERE name = ?1 AND token = ?2
