-- Removes a few rows that nobody has used since an hour and nobody holds, and answers their names.
-- The wall clock only picks candidates: what is held stays, whatever hour it is.
-- ?1 hour, ?2 boot, ?3 now
DELETE FROM lease
WHERE name IN (SELECT name FROM lease WHERE used < ?1 ORDER BY used LIMIT 4)
  AND (token IS NULL OR boot <> ?2 OR expiry <= ?3)
RETURNING name
