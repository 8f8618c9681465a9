-- Frees a row that has the token; answers its fence and whether the lease had not ended, or no row.
-- ?1 name, ?2 token, ?3 boot, ?4 now
-- Sent twice: the second finds no such token and changes nothing.
UPDATE lease SET token = NULL
WHERE name = ?1 AND token = ?2
RETURNING fence, boot = ?3 AND expiry > ?4
