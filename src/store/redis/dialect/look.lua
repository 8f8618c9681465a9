-- Reads a lock without changing anything.
--
-- KEYS[1]  the lock
-- KEYS[2]  its side key, "<0 or 1> <last fence reserved> <first fence of the last grant> <its token>"
--
-- Replies  {holder's value or nil, ttl left in ms, side key's value or nil}
--          an error, such as WRONGTYPE

return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) }
