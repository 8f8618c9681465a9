-- The row of a name. ?1 name
SELECT token, fence, expiry, boot, used FROM lease WHERE name = ?1
