-- A grant on a row that is free. ?1 name, ?2 token, ?3 fence, ?4 expiry, ?5 boot
-- Sent twice: the second take finds its own token and does not come here.
UPDATE lease SET token = ?2, fence = ?3, expiry = ?4, boot = ?5 WHERE name = ?1
