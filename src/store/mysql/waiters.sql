-- The first who wait for a name, each with its ticket.
--
-- :name :most
SELECT token, ticket FROM leasehold_waiter WHERE name = :name AND alive_until BETWEEN :now AND :now + 60000000
ORDER BY ticket, token LIMIT :most
