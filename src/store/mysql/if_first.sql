-- Behind take.sql: unless somebody who lives waits before the ticket.
--
-- :ticket
    AND NOT EXISTS (
        SELECT 1 FROM leasehold_waiter
        WHERE name = :name AND ticket < :ticket AND alive_until BETWEEN :now AND :now + 60000000 AND token <> :token)
