-- A waiter that has no ticket takes a place behind all others; one that has a place, as after a
-- request that was sent twice, keeps it. The answer has the ticket for an id. Behind await.sql.
--
-- :name :token :window (µs, for which it lives without another word)
INSERT INTO leasehold_waiter (name, ticket, token, alive_until)
SELECT :name, LAST_INSERT_ID(COALESCE(MAX(IF(token = :token, ticket, NULL)),
    GREATEST(:now, COALESCE(MAX(ticket) + 1, 0)))), :token,
    LEAST(:now + :window, (SELECT awaited FROM leasehold_lease WHERE name = :name))
FROM leasehold_waiter WHERE name = :name
ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until)
