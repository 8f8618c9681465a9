-- Grants a free name. On a row that is there, lease_touch notes the hour.
-- ?1 name, ?2 token, ?3 fence, ?4 expiry, ?5 boot, ?6 hour
-- Sent twice: the second take finds its own token and does not come here.
INSERT INTO lease (name, token, fence, expiry, boot, used) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (name) DO UPDATE SET token = ?2, fence = ?3, expiry = ?4, boot = ?5
