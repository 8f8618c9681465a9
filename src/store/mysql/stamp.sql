-- A waiter with a ticket shows that it lives. Where others took it for dead, or another token had the
-- place, it has its old place again. Behind await.sql.
--
-- :name :ticket :token :window
INSERT INTO leasehold_waiter (name, ticket, token, alive_until)
VALUES (:name, :ticket, :token,
    LEAST(:now + :window, (SELECT awaited FROM leasehold_lease WHERE name = :name)))
ON DUPLICATE KEY UPDATE alive_until = VALUES(alive_until)
