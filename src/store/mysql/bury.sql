-- Only newcomers make the table longer, so they are the ones that remove the dead.
--
-- :name
DELETE FROM leasehold_waiter WHERE name = :name AND alive_until NOT BETWEEN :now AND :now + 60000000
ORDER BY ticket, token LIMIT 256
