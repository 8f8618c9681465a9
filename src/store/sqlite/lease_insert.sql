-- The first grant of a name. ?1 name, ?2 token, ?3 fence, ?4 expiry, ?5 boot, ?6 hour
-- Sent twice: the second take finds its own token and does not come here.
INSERT INTO lease (name, token, fence, expiry, boot, used) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
