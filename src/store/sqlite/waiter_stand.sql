-- Puts a waiter in its place, or has it show itself there, under the token it has now.
-- ?1 name, ?2 ticket, ?3 token, ?4 stamp, ?5 boot
-- Sent twice: the same row again, stamped later.
INSERT INTO waiter (name, ticket, token, stamp, boot) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (name, ticket) DO UPDATE SET token = ?3, stamp = ?4, boot = ?5
