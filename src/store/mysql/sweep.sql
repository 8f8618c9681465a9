-- Removes some rows that nobody has used for 25 hours, which is longer than any fence that was
-- reserved ahead of the clock matters, with those who waited there. Waits for no row.
DELETE l, w FROM (
    SELECT name FROM leasehold_lease WHERE used < :now DIV 3600000000 - 25
        AND (token IS NULL OR expiry <= :now) ORDER BY used LIMIT 128
    FOR UPDATE SKIP LOCKED
) unused
JOIN leasehold_lease l ON l.name = unused.name
LEFT JOIN leasehold_waiter w ON w.name = unused.name
WHERE l.used < :now DIV 3600000000 - 25 AND (l.token IS NULL OR l.expiry <= :now)
