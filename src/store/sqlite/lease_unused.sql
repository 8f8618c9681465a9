-- The rows that have been unused for longest since before an hour, and whether they are free:
-- the wall clock only picks candidates. ?1 hour, ?2 boot, ?3 now
SELECT name, token IS NULL OR boot <> ?2 OR expiry <= ?3
FROM lease WHERE used < ?1 ORDER BY used LIMIT 4
